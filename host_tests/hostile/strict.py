"""A strict decoder of what a server may send.

Written from MQTT 3.1.1 (and 3.1 where it differs), apart from the client and with nothing of it:
it has all bytes of a packet before it looks at any of them, and lets Python judge UTF-8.
"""

from __future__ import annotations

from typing import NamedTuple


class Broken(Exception):
    """The bytes break a rule, which is the text."""


class Header(NamedTuple):
    """A fixed header (section 2.2)."""

    first: int
    size: int  # its own bytes
    length: int  # the Remaining Length

    @property
    def total(self) -> int:
        """Bytes of the whole packet."""
        return self.size + self.length


class Packet(NamedTuple):
    """A packet that breaks no rule by itself. `pid` is 0 where there is none."""

    name: str
    pid: int = 0
    topic: bytes = b""
    payload: bytes = b""
    qos: int = 0
    retain: int = 0
    dup: int = 0
    present: int = 0
    code: int = 0
    codes: bytes = b""


NAMES = {2: "CONNACK", 4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP", 9: "SUBACK"}
NAMES |= {11: "UNSUBACK", 13: "PINGRESP"}
FLAGS = {6: 2}  # table 2.2; 0 for the others


def header(data: bytes | bytearray) -> Header | None:
    """The fixed header at the start of `data`; None when it is not all there."""
    multiplier, value = 1, 0
    for i in range(1, 5):
        if i >= len(data):
            return None
        value += (data[i] & 127) * multiplier
        if not data[i] & 128:
            return Header(data[0], 1 + i, value)
        multiplier *= 128
    raise Broken("Remaining Length of five bytes")


def topic_name(raw: bytes) -> bytes:
    """A topic name as it is, when it is one (sections 1.5.3 and 4.7)."""
    try:
        text = raw.decode("utf-8", "strict")
    except UnicodeDecodeError:
        raise Broken("a topic name that is not UTF-8") from None
    if not text or "\0" in text or "+" in text or "#" in text:
        raise Broken("not a topic name")
    return raw


def first_byte(first: int, level: int) -> str:
    """The name of the packet that begins so."""
    kind, flags = first >> 4, first & 15
    if kind == 3:
        if flags & 6 == 6:
            raise Broken("QoS 3")
        return "PUBLISH"
    if kind not in NAMES:
        raise Broken("a type that no server sends")
    if flags != FLAGS.get(kind, 0) and not (level == 3 and first == 0x6A):
        raise Broken("flags")
    return NAMES[kind]


def fixed_length(name: str, length: int) -> None:
    """Check the Remaining Length of a packet of that name."""
    least, most = {
        "CONNACK": (2, 2),
        "PINGRESP": (0, 0),
        "SUBACK": (3, 268435455),
        "PUBLISH": (3, 268435455),
    }.get(name, (2, 2))
    if not least <= length <= most:
        raise Broken(f"a {name} of that length")


def publish_head(first: int, body: bytes) -> tuple[bytes, int, int]:
    """Topic name, packet identifier and where the payload begins, of a PUBLISH."""
    if len(body) < 2:
        raise Broken("no topic name")
    at = 2 + (body[0] << 8 | body[1])
    if at > len(body):
        raise Broken("a topic name that runs past its packet")
    name = topic_name(bytes(body[2:at]))
    if not first & 6:
        return name, 0, at
    if at + 2 > len(body):
        raise Broken("no packet identifier")
    pid = body[at] << 8 | body[at + 1]
    if not pid:
        raise Broken("packet identifier 0")
    return name, pid, at + 2


def publication(first: int, body: bytes) -> Packet:
    """The PUBLISH of that first byte and body, or of as much of the body as there is."""
    topic, pid, at = publish_head(first, body)
    return Packet(
        "PUBLISH", pid, topic, bytes(body[at:]), first >> 1 & 3, first & 1, first >> 3 & 1
    )


def packet(first: int, body: bytes, level: int) -> Packet:
    """The packet of that first byte and body, from a server at that protocol level."""
    name = first_byte(first, level)
    fixed_length(name, len(body))
    if name == "PUBLISH":
        return publication(first, body)
    if name == "PINGRESP":
        return Packet(name)
    if name == "CONNACK":
        flags, code = body
        if level == 3:  # a reserved byte there
            flags = 0
        if flags > 1:
            raise Broken("reserved acknowledge flags")
        if flags and code:
            raise Broken("session present, and refused")
        return Packet(name, present=flags, code=code)
    pid = body[0] << 8 | body[1]
    if not pid:
        raise Broken("packet identifier 0")
    codes = bytes(body[2:])
    if any(code not in (0, 1, 2, 0x80) for code in codes):
        raise Broken("a return code that there is not")
    return Packet(name, pid, codes=codes)


def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Return whether a topic filter matches a topic name (section 4.7)."""
    if topic[:1] == b"$" and topic_filter[:1] in (b"+", b"#"):
        return False
    wanted, levels = topic_filter.split(b"/"), topic.split(b"/")
    if wanted[-1] == b"#":
        wanted.pop()
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        w in (b"+", level) for w, level in zip(wanted, levels, strict=True)
    )
