"""The bytes of MQTT 5 packets, in both directions.

Nothing is checked: a test may build what the standard forbids.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import peer
from v5.properties5 import ACKS, NONE
from v5.properties5 import encoded as encoded_properties
from v5.strict5 import FLAGS, NAMES, Connect, Filter, Packet, Will

Pairs = Iterable[tuple[int, Any]]

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"


def _named(name: str, body: bytes, flags: int = 0) -> bytes:
    return peer.packet(NAMES.index(name) << 4 | FLAGS.get(name, flags), body)


def encode(p: Packet) -> bytes:
    """The packet in its shortest form."""
    if p.name == "CONNECT":
        assert p.connect is not None
        return connect(p.connect, p.properties)
    if p.name == "PUBLISH":
        more = {"retain": p.retain, "dup": p.dup}
        return publish(p.topic, p.payload, p.qos, p.pid, p.properties, **more)
    if p.name in ACKS:
        return ack(p.name, p.pid, p.code or None, p.properties or None)
    if p.name == "CONNACK":
        return connack(p.code, p.present, p.properties)
    if p.name in ("SUBACK", "UNSUBACK"):
        return answer(p.name, p.pid, p.codes, p.properties)
    if p.name == "SUBSCRIBE":
        return subscribe(p.pid, *p.filters, properties=p.properties)
    if p.name == "UNSUBSCRIBE":
        return unsubscribe(p.pid, *(each.topic for each in p.filters), properties=p.properties)
    if p.name in ("DISCONNECT", "AUTH"):
        return ending(p.name, p.code or None, p.properties or None)
    return _named(p.name, b"")


def connect(c: Connect, properties: Pairs = NONE, *, level: int = 5, flags: int = 0) -> bytes:
    """A CONNECT. `flags` are set in addition to those that follow from its fields."""
    flags |= c.clean_start << 1
    body = peer.text(c.client_id)
    if c.will is not None:
        flags |= 4 | c.will.qos << 3 | c.will.retain << 5
        body += will(c.will)
    if c.username is not None:
        flags |= 0x80
        body += peer.text(c.username)
    if c.password is not None:
        flags |= 0x40
        body += peer.text(c.password)
    start = peer.text(b"MQTT") + bytes([level, flags]) + c.keepalive.to_bytes(2, "big")
    return _named("CONNECT", start + encoded_properties(properties) + body)


def will(w: Will) -> bytes:
    """The properties, topic and payload of a will."""
    return encoded_properties(w.properties) + peer.text(w.topic) + peer.text(w.payload)


def connack(code: int = 0, present: int = 0, properties: Pairs = NONE) -> bytes:
    """A CONNACK."""
    return _named("CONNACK", bytes([present, code]) + encoded_properties(properties))


def publish(
    topic: bytes,
    payload: bytes = b"",
    qos: int = 0,
    pid: int = 0,
    properties: Pairs = NONE,
    *,
    retain: int = 0,
    dup: int = 0,
) -> bytes:
    """A PUBLISH."""
    number = pid.to_bytes(2, "big") if qos else b""
    body = peer.text(topic) + number + encoded_properties(properties) + payload
    return _named("PUBLISH", body, dup << 3 | qos << 1 | retain)


def ack(name: str, pid: int, code: int | None = None, properties: Pairs | None = None) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP.

    Without a code and properties its Remaining Length is 2, without properties 3, and else 4
    or more.
    """
    return _named(name, pid.to_bytes(2, "big") + _code_and_properties(code, properties))


def ending(name: str, code: int | None = None, properties: Pairs | None = None) -> bytes:
    """A DISCONNECT or AUTH: of Remaining Length 0, 1, or 2 and more."""
    if name == "AUTH" and code is not None and properties is None:
        properties = NONE
    return _named(name, _code_and_properties(code, properties))


def _code_and_properties(code: int | None, properties: Pairs | None) -> bytes:
    if properties is not None:
        return bytes([code or 0]) + encoded_properties(properties)
    return b"" if code is None else bytes([code])


def answer(name: str, pid: int, codes: bytes, properties: Pairs = NONE) -> bytes:
    """A SUBACK or UNSUBACK."""
    return _named(name, pid.to_bytes(2, "big") + encoded_properties(properties) + codes)


def subscribe(pid: int, *filters: Filter, properties: Pairs = NONE) -> bytes:
    """A SUBSCRIBE."""
    payload = b"".join(peer.text(each.topic) + bytes([each.options]) for each in filters)
    return _named("SUBSCRIBE", pid.to_bytes(2, "big") + encoded_properties(properties) + payload)


def unsubscribe(pid: int, *topics: bytes, properties: Pairs = NONE) -> bytes:
    """An UNSUBSCRIBE."""
    payload = b"".join(peer.text(topic) for topic in topics)
    return _named("UNSUBSCRIBE", pid.to_bytes(2, "big") + encoded_properties(properties) + payload)
