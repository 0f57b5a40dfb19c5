"""The bytes of packets of both versions, in both directions.

Nothing is checked: a test may build what the standard forbids. Properties that are None are left
out together with their length, as in MQTT 3.1.1.
"""

from packets.fields import length, text
from packets.properties import ACKS, NONE, Pairs, encoded
from packets.strict import FLAGS, NAMES, Connect, Filter, Packet

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
# CONNACK: reason code to return code (3.1.1, table 3.1); any other is "server unavailable".
RETURN_CODES = {0: 0, 0x84: 1, 0x85: 2, 0x86: 4, 0x87: 5, 0x8C: 5}


def packet(first: int, body: bytes = b"") -> bytes:
    return bytes([first]) + length(len(body)) + body


def _named(name: str, body: bytes, flags: int = 0) -> bytes:
    return packet(NAMES.index(name) << 4 | FLAGS.get(name, flags), body)


def _block(properties: Pairs | None) -> bytes:
    return b"" if properties is None else encoded(properties)


def encode(p: Packet, level: int = 5) -> bytes:
    """The packet in its shortest form; b"" for an AUTH or DISCONNECT that 3.1.1 does not have."""
    more = p.properties if level > 4 else None
    if p.name == "CONNECT":
        assert p.connect is not None
        return connect(p.connect, p.properties, level=level)
    if p.name == "PUBLISH":
        flags = {"retain": p.retain, "dup": p.dup}
        return publish(p.topic, p.payload, p.qos, p.pid, more, **flags)
    if p.name in ACKS:
        return ack(p.name, p.pid, (p.code or None) if level > 4 else None, more or None)
    if p.name == "CONNACK":
        code = p.code if level > 4 else RETURN_CODES.get(p.code, 3)
        return connack(code, p.present, more)
    if p.name == "SUBACK" and level < 5:
        return answer(p.name, p.pid, bytes(min(code, 0x80) for code in p.codes), None)
    if p.name in ("SUBACK", "UNSUBACK"):
        return answer(p.name, p.pid, p.codes if level > 4 else b"", more)
    if p.name == "SUBSCRIBE":
        return subscribe(p.pid, *p.filters, properties=more)
    if p.name == "UNSUBSCRIBE":
        return unsubscribe(p.pid, *(each.topic for each in p.filters), properties=more)
    if p.name in ("DISCONNECT", "AUTH"):
        return ending(p.name, p.code or None, p.properties or None) if level > 4 else b""
    return _named(p.name, b"")


def connect(c: Connect, properties: Pairs = NONE, *, level: int = 5, flags: int = 0) -> bytes:
    """A CONNECT. `flags` are set in addition to those that follow from its fields."""
    flags |= c.clean_start << 1
    body = text(c.client_id)
    if c.will is not None:
        flags |= 4 | c.will.qos << 3 | c.will.retain << 5
        body += _block(c.will.properties if level > 4 else None)
        body += text(c.will.topic) + text(c.will.payload)
    if c.username is not None:
        flags |= 0x80
        body += text(c.username)
    if c.password is not None:
        flags |= 0x40
        body += text(c.password)
    start = text(b"MQTT") + bytes([level, flags]) + c.keepalive.to_bytes(2, "big")
    return _named("CONNECT", start + _block(properties if level > 4 else None) + body)


def connack(code: int = 0, present: int = 0, properties: Pairs | None = NONE) -> bytes:
    return _named("CONNACK", bytes([present, code]) + _block(properties))


def publish(
    topic: bytes,
    payload: bytes = b"",
    qos: int = 0,
    pid: int = 0,
    properties: Pairs | None = NONE,
    *,
    retain: int = 0,
    dup: int = 0,
) -> bytes:
    number = pid.to_bytes(2, "big") if qos else b""
    body = text(topic) + number + _block(properties) + payload
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
    if code is None and properties is None:
        return b""
    return bytes([code or 0]) + _block(properties)


def answer(name: str, pid: int, codes: bytes, properties: Pairs | None = NONE) -> bytes:
    """A SUBACK or UNSUBACK."""
    return _named(name, pid.to_bytes(2, "big") + _block(properties) + codes)


def subscribe(pid: int, *filters: Filter, properties: Pairs | None = NONE) -> bytes:
    payload = b"".join(text(each.topic) + bytes([each.options]) for each in filters)
    return _named("SUBSCRIBE", pid.to_bytes(2, "big") + _block(properties) + payload)


def unsubscribe(pid: int, *topics: bytes, properties: Pairs | None = NONE) -> bytes:
    payload = b"".join(text(topic) for topic in topics)
    return _named("UNSUBSCRIBE", pid.to_bytes(2, "big") + _block(properties) + payload)
