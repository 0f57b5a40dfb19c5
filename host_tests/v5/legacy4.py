"""MQTT 3.1.1 in terms of the packets of MQTT 5, for a broker that speaks both.

A packet from a client becomes one of MQTT 5 by the Property Lengths that it lacks, and is then
held to the rules of that version, which are those of 3.1.1 where 3.1.1 has any.
"""

from __future__ import annotations

import peer
from v5.fields5 import Broken
from v5.properties5 import ACKS
from v5.strict5 import NAMES, Packet, from_client

# CONNACK: reason code to return code (3.1.1, table 3.1); any other is "server unavailable".
_RETURN_CODES = {0: 0, 0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5, 0x8C: 5}


def _after_text(body: bytes, at: int) -> int:
    return at + 2 + int.from_bytes(body[at : at + 2], "big")


def _connect(body: bytes) -> bytes:
    if body[:7] != b"\0\4MQTT\4" or len(body) < 12:
        raise Broken("CONNECT: neither MQTT 5 nor 3.1.1", 0x84)
    if body[7] & 0xC0 == 0x40:
        raise Broken("CONNECT: a password without a user name [MQTT-3.1.2-22]")
    at = _after_text(body, 10)
    if at == 12 and not body[7] & 2:
        raise Broken("CONNECT: an empty identifier of a kept session [MQTT-3.1.3-8]", 0x85)
    will = b"\0" if body[7] & 4 else b""
    return body[:6] + b"\5" + body[7:10] + b"\0" + body[10:at] + will + body[at:]


def decoded(first: int, body: bytes) -> Packet:
    """The packet of that first byte and body, which a client sent at level 4."""
    name = NAMES[first >> 4]
    if name == "CONNECT":
        body = _connect(body)
    elif name == "PUBLISH":
        at = _after_text(body, 0) + (2 if first & 6 else 0)
        body = body[:at] + b"\0" + body[at:]
    elif name in ("SUBSCRIBE", "UNSUBSCRIBE"):
        body = body[:2] + b"\0" + body[2:]
    elif name == "AUTH" or len(body) != (2 if name in ACKS else 0):
        raise Broken(f"{name} of {len(body)} bytes at level 4")
    packet = from_client(first, body)
    if name == "SUBSCRIBE" and any(each.options > 2 for each in packet.filters):
        raise Broken("SUBSCRIBE: reserved bits of a QoS [MQTT-3-8.3-4]")
    return packet


def encoded(p: Packet) -> bytes:
    """The packet for a client at level 4; b"" if 3.1.1 has none like it."""
    if p.name == "CONNACK":
        return peer.connack(_RETURN_CODES.get(p.code, 3), present=bool(p.present))
    if p.name == "PUBLISH":
        return peer.publish(
            p.topic, p.payload, p.qos, p.pid, retain=bool(p.retain), dup=bool(p.dup)
        )
    if p.name in ACKS:
        first = NAMES.index(p.name) << 4 | (2 if p.name == "PUBREL" else 0)
        return peer.packet(first, p.pid.to_bytes(2, "big"))
    if p.name == "SUBACK":
        return peer.suback(p.pid, *(min(code, 0x80) for code in p.codes))
    if p.name == "UNSUBACK":
        return peer.unsuback(p.pid)
    return peer.PINGRESP if p.name == "PINGRESP" else b""
