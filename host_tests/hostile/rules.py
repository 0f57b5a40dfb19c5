"""Bytes for every rule that clients most often get wrong, by name; what is right, the oracle says.

They come to a client that is online. With "greeting" it awaits CONNACK; before the others it has
subscribed to two filters, or published, with packet identifier 5: the driver took the others.
"""

from __future__ import annotations

from typing import NamedTuple

from peer import packet


class Rule(NamedTuple):
    """The bytes of a rule, what the client has done before they come, and its options."""

    data: bytes
    given: str = "online"
    version: int = 4
    clean_session: bool = True


TOPIC = b"\0\1t"
MESSAGE = b"\x30\x05\0\1tmm"  # an ordinary message
RULES: dict[str, Rule] = {}


def rule(name: str, data: bytes, given: str = "online", **options) -> None:
    RULES[name] = Rule(data, given, **options)


def publish(topic: bytes, qos: int = 0, pid: int | None = None, payload: bytes = b"x") -> bytes:
    """A PUBLISH of less than 128 bytes."""
    number = b"" if pid is None else pid.to_bytes(2, "big")
    return packet(0x30 | qos << 1, bytes((0, len(topic))) + topic + number + payload)


def large(first: int, n: int, body: bytes) -> bytes:
    """The beginning of a packet that says it goes on for n bytes, 128 to 268,435,455."""
    length = bytearray()
    while n > 127:
        length.append(n & 127 | 128)
        n >>= 7
    return bytes((first, *length, n)) + body


# The packet types 0 and 15, and those that only a client sends

for kind in (0, 15):
    rule(f"type {kind}", packet(kind << 4, b"\0\1"))
    rule(f"type {kind}, empty", packet(kind << 4, b""))
    rule(f"type {kind}, with flags", packet(kind << 4 | 2, b"\0\1"))
    skipped = large(kind << 4, 5000, b"\0\1t")
    rule(f"type {kind}, as large as a message that is skipped", skipped)
rule("server-bound: CONNECT", packet(0x10, b"\0\4MQTT\4\2\0\0\0\0"))
rule("server-bound: SUBSCRIBE", packet(0x82, b"\0\1\0\1t\0"))
rule("server-bound: UNSUBSCRIBE", packet(0xA2, b"\0\1\0\1t"))
rule("server-bound: PINGREQ", packet(0xC0, b""))
rule("server-bound: DISCONNECT", packet(0xE0, b""))

# Flag bits, Remaining Length and packet identifier of what is small

NAMES = {
    0x40: "PUBACK", 0x50: "PUBREC", 0x62: "PUBREL", 0x70: "PUBCOMP", 0x90: "SUBACK",
    0xB0: "UNSUBACK",
}  # fmt: skip
for first, name in NAMES.items():
    more = b"\0" if first == 0x90 else b""  # a return code
    for bits in range(16):
        if bits != first & 15:
            rule(f"flag bits of {name}: {bits}", packet(first & 0xF0 | bits, b"\0\1" + more))
    rule(f"packet identifier 0: {name}", packet(first, b"\0\0" + more))
    rule(f"Remaining Length: {name} of 0", packet(first, b""))
    rule(f"Remaining Length: {name} of 1", packet(first, b"\1"))
    rule(f"not in flight: {name}", packet(first, b"\0\x09" + more))
    if more:
        rule("Remaining Length: SUBACK of 2", packet(0x90, b"\0\1"))
    else:
        rule(f"Remaining Length: {name} of 3", packet(first, b"\0\1\0"))
        most = large(first, 268435455, b"\0\1")
        rule(f"Remaining Length: {name} of 268,435,455", most)
for bits in range(1, 16):
    rule(f"flag bits of PINGRESP: {bits}", packet(0xD0 | bits, b""))
    rule(f"flag bits of CONNACK: {bits}", packet(0x20 | bits, b"\0\0"), "greeting")
for bits in (0, 1, 3, 6, 8, 10, 11, 15):  # it may carry DUP
    rule(f"flag bits at level 3: PUBREL {bits}", packet(0x60 | bits, b"\0\5"), version=3)

rule("Remaining Length: a fifth byte", b"\x30\x80\x80\x80\x80\x01")
rule("Remaining Length: a fifth byte, of a type that is refused", b"\x00\xff\xff\xff\xff\x00")
rule("Remaining Length: PINGRESP of 1", packet(0xD0, b"\0"))
rule("Remaining Length: PINGRESP of 2", packet(0xD0, b"\0\1"))
rule("Remaining Length: PUBLISH of 0", packet(0x30, b""))
rule("Remaining Length: PUBLISH of 1", packet(0x30, b"\0"))
rule("Remaining Length: more bytes than are needed", b"\x30\x84\x80\x00\0\1tm")
rule("Remaining Length: 129 is 81 01", b"\x30\x81\x01\0\1t" + b"x" * 126)

# QoS, DUP and packet identifier of a message

for bits in (6, 7, 14, 15):
    skipped = large(0x30 | bits, 5000, TOPIC + b"\0\1")
    rule(f"QoS 3: flags {bits}", packet(0x30 | bits, TOPIC + b"\0\1x"))
    rule(f"QoS 3: flags {bits}, of a message that is skipped", skipped)
for bits in (8, 9):
    rule(f"DUP at QoS 0: flags {bits}", packet(0x30 | bits, TOPIC + b"x"))
for qos in (1, 2):
    skipped = large(0x30 | qos << 1, 5000, TOPIC + b"\0\0")
    rule(f"packet identifier 0: PUBLISH at QoS {qos}", publish(b"t", qos, 0))
    rule(f"packet identifier 0: a message that is skipped, at QoS {qos}", skipped)
    rule(f"no packet identifier: PUBLISH at QoS {qos}", publish(b"t", qos, payload=b""))
    rule(f"half a packet identifier: PUBLISH at QoS {qos}", publish(b"t", qos, payload=b"\1"))

# Topic names

BAD_TEXT = {
    "empty": b"",
    "U+0000": b"a\0b",
    "+": b"a/+",
    "#": b"#",
    "# in a level": b"a#b",
    "UTF-8: a byte that there is not, FF": b"a\xff",
    "UTF-8: FE": b"\xfe",
    "UTF-8: a continuation alone": b"a\x80",
    "UTF-8: no continuation": b"\xc3a",
    "UTF-8: cut, one of two bytes": b"a\xc3",
    "UTF-8: cut, two of three bytes": b"a\xe2\x82",
    "UTF-8: cut, three of four bytes": b"a\xf0\x9f\xa6",
    "UTF-8: not the shortest form, 2 bytes": b"\xc1\xbf",
    "UTF-8: not the shortest form of U+0000": b"\xc0\x80",
    "UTF-8: not the shortest form, 3 bytes": b"\xe0\x9f\xbf",
    "UTF-8: not the shortest form, 4 bytes": b"\xf0\x8f\xbf\xbf",
    "UTF-8: a surrogate, D800": b"\xed\xa0\x80",
    "UTF-8: a surrogate, DFFF": b"\xed\xbf\xbf",
    "UTF-8: past U+10FFFF": b"\xf4\x90\x80\x80",
    "UTF-8: a first byte past F4": b"\xf5\x80\x80\x80",
}
for name, text in BAD_TEXT.items():
    skipped = large(0x30, 5000, bytes((0, len(text))) + text)
    rule("topic name: " + name, publish(text))
    rule(f"topic name: {name}, of a message that is skipped", skipped)
GOOD_TEXT = {
    "one space": b" ",
    "U+0001": b"\x01",
    "U+007F and U+0080": b"\x7f\xc2\x80",
    "U+07FF and U+0800": b"\xdf\xbf\xe0\xa0\x80",
    "U+D7FF and U+E000": b"\xed\x9f\xbf\xee\x80\x80",
    "U+FFFF and U+10000": b"\xef\xbf\xbf\xf0\x90\x80\x80",
    "U+10FFFF": b"\xf4\x8f\xbf\xbf",
    "empty levels": b"//",
    "$": b"$SYS",
}
for name, text in GOOD_TEXT.items():
    rule("topic name, a good one: " + name, publish(text))
rule("topic name: one byte longer than the packet", packet(0x30, b"\0\2t"))
rule("topic name: longer than the packet", packet(0x30, b"\xff\xfft"))
rule("topic name: takes the place of the packet identifier", packet(0x32, b"\0\3t\0\1"))

# CONNACK

ACCEPTED, PRESENT = packet(0x20, b"\0\0"), packet(0x20, b"\1\0")
rule("CONNACK is not first: PUBLISH", publish(b"t"), "greeting")
rule("CONNACK is not first: PINGRESP", packet(0xD0, b""), "greeting")
rule("CONNACK is not first: SUBACK", packet(0x90, b"\0\1\0"), "greeting")
skipped = large(0x30, 5000, TOPIC)
rule("CONNACK is not first: a message larger than rx_size", skipped, "greeting")
rule("a second CONNACK", ACCEPTED)
rule("a second CONNACK, which refuses", packet(0x20, b"\0\5"))
rule("a second CONNACK at once", ACCEPTED * 2, "greeting")
for n in (0, 1, 3):
    rule(f"Remaining Length: CONNACK of {n}", packet(0x20, bytes(n)), "greeting")
for bits in (2, 3, 0x80, 0xFF):
    connack = packet(0x20, bytes((bits, 0)))
    rule(f"CONNACK: reserved flags {bits}", connack, "greeting", clean_session=False)
rule("CONNACK: session present on a clean session", PRESENT, "greeting")
rule("CONNACK: session present", PRESENT, "greeting", clean_session=False)
refusal = packet(0x20, b"\1\5")
rule("CONNACK: session present with a refusal", refusal, "greeting", clean_session=False)
reserved = packet(0x20, b"\xff\0")
rule("CONNACK at level 3: no flags, but a reserved byte", reserved, "greeting", version=3)
for code in (1, 2, 3, 4, 5, 6, 255):
    rule(f"CONNACK: return code {code}", packet(0x20, bytes((0, code))), "greeting")

# SUBACK

for code in (3, 4, 0x7F, 0x80, 0x81, 0xFF):  # 0x80 is a refusal, and breaks no rule
    rule(f"SUBACK: return code {code}", packet(0x90, bytes((0, 5, 0, code))), "subscribing")
    rule(f"SUBACK of nobody: return code {code}", packet(0x90, bytes((0, 9, code))))
for what, codes in (("fewer", b"\0"), ("more", b"\0\0\0")):
    suback = packet(0x90, b"\0\5" + codes)
    rule(f"SUBACK: {what} return codes than filters", suback, "subscribing")
rule("a PUBLISH before the SUBACK", publish(b"a") + packet(0x90, b"\0\5\0\0"), "subscribing")

# Acknowledgements, which end nothing

PUBACK, PUBREC, PUBCOMP = [packet(first, b"\0\5") for first in (0x40, 0x50, 0x70)]
rule("in flight: QoS 1", PUBACK, "publishing 1")
rule("in flight: QoS 1, the wrong acknowledgements", PUBREC + PUBCOMP, "publishing 1")
for name, data in (
    ("PUBREC comes again", PUBREC * 2),
    ("to the end", PUBREC + PUBCOMP),
    ("PUBACK of a broker that does not have it", PUBACK + PUBREC),
    ("PUBACK after PUBREC settles nothing", PUBREC + PUBACK + PUBREC),
    ("PUBCOMP before PUBREC", PUBCOMP + PUBREC),
):
    rule("in flight: QoS 2, " + name, data, "publishing 2")

# Messages

again = packet(0x3A, b"\0\1t\0\5x"), packet(0x3C, b"\0\1t\0\5x")
rule("QoS 1 is acknowledged", publish(b"t", 1, 0x1234))
rule("QoS 1, twice: delivered twice", publish(b"t", 1, 5) + again[0])
rule("QoS 2, twice: delivered once", publish(b"t", 2, 5) + again[1])
released = publish(b"t", 2, 5) + packet(0x62, b"\0\5")
rule("QoS 2, after its release it is another message", released + publish(b"t", 2, 5))
rule("QoS 2, RETAIN and DUP", packet(0x3D, b"\0\1t\0\6x"))
rule("a message without a payload", publish(b"t", payload=b""))

# What does not fit

for first in (0x32, 0x34):
    skipped = large(first, 205, TOPIC + b"\0\7" + b"x" * 200)
    rule(f"larger than rx_size: {first:x} is skipped and acknowledged", skipped)
rule("larger than rx_size: a SUBACK", large(0x90, 200, b"\0\5\0"), "subscribing")
rule("larger than rx_size: a topic name", large(0x30, 205, b"\0\xc8"))
rule("larger than rx_size: a message of 256 MB", large(0x32, 268435455, TOPIC + b"\0\7"))
many = b"".join(publish(b"t", 2, pid) for pid in range(1, 41))
rule("more QoS 2 messages than `incoming`", many)
