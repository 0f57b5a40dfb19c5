"""A grammar of hostile cases for MQTT 5; see `grammar`.

They have packets with properties, reason codes and limits, and what is spoilt in them.
"""

from __future__ import annotations

import peer
from hostile import cases
from hostile.grammar import PAYLOADS, TOPICS, VALUES, Case, Maker, Pick
from v5 import build5
from v5.properties5 import BYTE, DATA, FOUR, INTEGER, PAIR, TABLE, TEXT, TWO, Id, encoded

TOPICS5 = (*TOPICS, cases.REPLIES, cases.REPLIES, cases.REPLIES)
TEXTS = (b"", b"t", b"text/plain", "\u00e9".encode(), b"x" * 60)
NAMES = (b"k", b"k", b"", b"long", b"n" * 30)
LONG = (b"l" * 40, b"l" * 100, b"l" * 300)
# Values that a broker may well give; others by their type.
GIVEN: dict[Id, tuple[int, ...]] = {
    Id.RECEIVE_MAXIMUM: (1, 1, 2, 3, 8, 65535),
    Id.MAXIMUM_PACKET_SIZE: (1, 3, 4, 12, 40, 40, 60, 60, 100, 1000, 268435455, 0xFFFFFFFF),
    Id.SUBSCRIPTION_IDENTIFIER: (1, 1, 2, 2, 3, 3, 4, 5, 6, 127, 128, 268435455),
    Id.TOPIC_ALIAS_MAXIMUM: (0, 1, 2, 10, 65535),
    Id.SERVER_KEEP_ALIVE: (0, 1, 2, 5, 60, 65535),
    Id.TOPIC_ALIAS: (1, 2),
}
NUMBERS = {TWO: (0, 1, 256, 65535), FOUR: (0, 1, 60, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)}
BAD_TEXTS = (b"\0", b"a\0", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xc3")
NOT_ZERO = (
    Id.RECEIVE_MAXIMUM, Id.MAXIMUM_PACKET_SIZE, Id.SUBSCRIPTION_IDENTIFIER, Id.TOPIC_ALIAS,
)  # fmt: skip
UNKNOWN = (0x00, 0x04, 0x07, 0x0A, 0x10, 0x14, 0x1B, 0x20, 0x2B, 0x7F, 0x80, 0xFF)

_FAILED = (0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
ACK_CODES = {
    "PUBACK": (0, 0, 0, 0x10, *_FAILED, 0x01, 0x7F, 0xFF),
    "PUBREC": (0, 0, 0, 0, 0, 0x10, *_FAILED, 0x92),
    "PUBREL": (0, 0, 0, 0x92, 0x10),
    "PUBCOMP": (0, 0, 0, 0x92, 0x10),
}
SUBACK_CODES = (0, 1, 2, 0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)
UNSUBACK_CODES = (0, 0, 0, 0x11, 0x80, 0x87)
CONNACK_CODES = (
    0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99,
    0x9A, 0x9B, 0x9C, 0x9D, 0x9F, 1, 5,
)  # fmt: skip
DISCONNECT_CODES = (0x80, 0x81, 0x82, 0x87, 0x8B, 0x8D, 0x8E, 0x93, 0x95, 0x98, 0x9C, 0x9D, 0, 4)

CARRIERS = {2: "CONNACK", 3: "PUBLISH", 4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP"}
CARRIERS |= {9: "SUBACK", 11: "UNSUBACK", 14: "DISCONNECT", 15: "AUTH"}


def parts(packet: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the parts of a right packet: before, inside and after its properties.

    The length of the properties is left out. Returns None if it cannot have any. What a short
    one has left out is put in.
    """
    kind = packet[0] >> 4
    at = 1
    while packet[at] > 127:
        at += 1
    body = packet[at + 1 :]
    if kind not in CARRIERS:
        return None
    if kind == 3:
        n = 2 + (body[0] << 8 | body[1]) + (2 if packet[0] & 6 else 0)
    else:
        n = {2: 2, 9: 2, 11: 2, 14: 1, 15: 1}.get(kind, 3)
        body = body + bytes(max(0, n - len(body)))
    if len(body) == n:
        return body, b"", b""
    end = n
    size = shift = 0
    while True:
        size |= (body[end] & 127) << shift
        shift += 7
        end += 1
        if body[end - 1] < 128:
            break
    return body[:n], body[end : end + size], body[end + size :]


class Maker5(Maker):
    """Makes one case for MQTT 5."""

    greeted = 2
    spoilings = 32
    actions = (
        *Maker.actions, cases.PUBLISH, cases.PROPERTIES, cases.PROPERTIES, cases.REQUEST,
        cases.REQUEST, cases.ALIAS, cases.ALIAS, cases.AUTHENTICATE, cases.SYNC,
    )  # fmt: skip

    def __init__(self, pick: Pick) -> None:
        super().__init__(pick)
        self.third = pick(128)
        options = cases.Options(self.first, self.second | cases.VERSION_5, self.third)
        # The first session has one request and one subscription more.
        self.last_id = options.last_id + len(options.filters) + 4
        self.asked = 1  # requests

    def case(self, segments: int) -> Case:
        made = super().case(segments)
        data = cases.encode(self.first, self.second, self.steps, self.third)
        return Case(data, made.packets, made.changed)

    # Properties

    def value(self, identifier: Id):
        """A value that the property may have."""
        kind = TABLE[identifier][0]
        if identifier in GIVEN:
            return self.one(GIVEN[identifier])
        if kind == BYTE:
            return self.pick(2)
        if kind in NUMBERS:
            return self.one(NUMBERS[kind])
        if kind == INTEGER:
            return 1 + self.pick(5)
        if identifier == Id.AUTHENTICATION_METHOD:
            return b"m" if self.pick(8) else b"n"
        if identifier == Id.RESPONSE_TOPIC:
            return self.one((b"r", b"reply/x", "\u00fc/1".encode()))
        if identifier == Id.CORRELATION_DATA:
            return bytes((self.pick(3), 0, 0, self.pick(6))) if self.pick(8) else b""
        if kind == PAIR:
            name = self.one(NAMES)
            return name, self.one(LONG) if not self.pick(12) else self.one(TEXTS)
        return self.one(LONG) if kind == TEXT and not self.pick(20) else self.one(TEXTS)

    def some(self, name: str) -> list[tuple[int, object]]:
        """Properties that a packet of that name may have, often none."""
        pick = self.pick
        if pick(3) == 0:
            return []
        out: list[tuple[int, object]] = []
        for _ in range(1 + pick(4)):
            identifier = self.one(self.allowed(name))
            many = (Id.USER_PROPERTY, Id.SUBSCRIPTION_IDENTIFIER)
            if identifier in many or all(identifier != each for each, _ in out):
                out.append((identifier, self.value(identifier)))
        return out

    def allowed(self, name: str) -> list[Id]:
        """The properties that a server may put into a packet of that name."""
        never = {("PUBLISH", Id.TOPIC_ALIAS), ("DISCONNECT", Id.SESSION_EXPIRY)}
        return [
            each for each, (_, names) in TABLE.items()
            if name in names and (name, each) not in never
        ]  # fmt: skip

    # Packets

    def connack(self) -> bytes:
        pick = self.pick
        if pick(40) == 0:
            return bytes((0x20, 2, 0, pick(6)))  # of a broker for 3.1.1
        code = self.one(CONNACK_CODES) if pick(8) == 0 else 0
        present = 0 if code else pick(2) if not self.first & 2 else pick(30) == 0
        more = self.some("CONNACK")
        if self.third & 1 and pick(8):
            more = [each for each in more if each[0] != Id.AUTHENTICATION_METHOD]
            more.append((Id.AUTHENTICATION_METHOD, b"m"))
        made = build5.connack(code, int(present), more)
        if self.third & 1 and pick(3) == 0:
            return self.auth(0x18) + made
        return made

    def auth(self, code: int) -> bytes:
        """An AUTH packet."""
        more: list[tuple[int, object]] = [(Id.AUTHENTICATION_METHOD, b"m")]
        if self.pick(2):
            more.append((Id.AUTHENTICATION_DATA, self.one(TEXTS)))
        return build5.ending("AUTH", code, more)

    def packet(self) -> bytes:
        pick = self.pick
        kind = pick(40)
        if kind < 18:
            return self.publish(self.one(TOPICS5), self.one(PAYLOADS))
        if kind < 22:
            return self.ack("PUBREL", 1 + pick(6))
        if kind < 31:
            return self.ack(self.one(("PUBACK", "PUBREC", "PUBREC", "PUBCOMP")), self.given())
        if kind < 35:
            name, codes = self.one((("SUBACK", SUBACK_CODES), ("UNSUBACK", UNSUBACK_CODES)))
            given = bytes(self.one(codes) for _ in range(1 + pick(3)))
            return build5.answer(name, self.given(), given, self.some(name))
        if kind == 35 and pick(3) == 0:
            if pick(4) == 0:
                return build5.ending("DISCONNECT")
            more = self.some("DISCONNECT") if pick(2) else None
            return build5.ending("DISCONNECT", self.one(DISCONNECT_CODES), more)
        if kind == 36 and pick(3) == 0:
            return self.auth(self.one((0, 0x18, 0x18)))
        if kind < 38:
            return b"\xd0\0"
        return self.publish(self.one(TOPICS5), 450 + pick(300))

    def ack(self, name: str, pid: int) -> bytes:
        """A PUBACK, PUBREC, PUBREL or PUBCOMP: in its short form, or in one of the long ones."""
        if self.pick(2):
            return build5.ack(name, pid)
        code = self.one(ACK_CODES[name])
        if self.pick(2):
            return build5.ack(name, pid, code)
        return build5.ack(name, pid, code, self.some(name))

    def publish(self, topic: bytes, size: int, pid: int | None = None) -> bytes:
        pick = self.pick
        qos = pick(3)
        if pid is None:
            pid = 1 + pick(6)
        payload = (b"%d" % pid * size)[:size]
        more = self.some("PUBLISH")
        if topic == cases.REPLIES:
            more = [each for each in more if each[0] != Id.CORRELATION_DATA]
            more.append((Id.CORRELATION_DATA, bytes((pick(2), 0, 0, 1 + pick(4)))))
        flags = {"retain": pick(2), "dup": pick(2) if qos else 0}
        return build5.publish(topic, payload, qos, pid, more, **flags)

    # Spoiling

    def spoil_more(self, packet: bytes) -> bytes:
        """Spoil the properties of a packet in one place. A packet that was spoilt before stays."""
        try:
            found = parts(packet)
        except IndexError:
            return packet
        if found is None:
            return packet
        head, block, rest = found
        pick = self.pick
        name = CARRIERS[packet[0] >> 4]
        length = peer.length(len(block))
        if not block or pick(3) == 0:
            block += plain(self.some(name)) if pick(2) else b""
            length = peer.length(len(block))
        kind = pick(12)
        if kind == 0:  # the length of the block
            length = peer.length(max(0, len(block) + self.one((-3, -2, -1, 1, 2, 3, 100))))
        elif kind == 1:  # ... of five bytes, or with needless ones
            many = (b"\x80\x80\x80\x80\1", b"\xff\xff\xff\xff\x7f", b"\xff", b"\x80\x80\x80\x80")
            needless = bytes((len(block) & 127 | 128, len(block) >> 7 | 128, 0))
            length = self.one((*many, needless))
        elif kind == 2:  # an identifier that there is not
            length, block = self.block(block + bytes((self.one(UNKNOWN),)) + bytes(pick(3)))
        elif kind == 3:  # twice
            identifier = self.one(self.allowed(name))
            more = [(identifier, self.value(identifier)), (identifier, self.value(identifier))]
            length, block = self.block(block + plain(more))
        elif kind == 4:  # not allowed in this packet
            identifier = self.one(list(Id))
            length, block = self.block(block + plain([(identifier, self.value(identifier))]))
        elif kind == 5 and block:  # a value that is cut
            length, block = self.block(block[: -1 - pick(len(block))])
        elif kind == 6:  # text that is none
            length, block = self.block(block + self.bad_text(name))
        elif kind == 7:  # a flag that is neither
            flags = [each for each in self.allowed(name) if TABLE[each][0] == BYTE]
            if flags:
                more = [(self.one(flags), self.one((2, 3, 127, 128, 255)))]
                length, block = self.block(block + plain(more))
        elif kind == 8:  # 0 where it must not be
            zero = [each for each in NOT_ZERO if name in TABLE[each][1]]
            if zero:
                length, block = self.block(block + plain([(self.one(zero), 0)]))
        elif kind == 9 and name == "PUBLISH":  # a topic alias, and mostly no topic name
            length, block = self.block(
                block + plain([(Id.TOPIC_ALIAS, self.one((0, 1, 2, 65535)))])
            )
            if pick(2):
                head = b"\0\0" + (head[-2:] if packet[0] & 6 else b"")
        elif kind == 10 and block:  # a byte
            at = pick(len(block))
            block = block[:at] + bytes((self.one(VALUES),)) + block[at + 1 :]
        elif kind == 11:  # integers of five bytes, or with needless ones
            value = self.one((b"\x80\x80\x80\x80\1", b"\x81\0", b"\x82\x80\0", b"\x80"))
            length, block = self.block(block + b"\x0b" + value)
        body = head + length + block + rest
        return packet[:1] + peer.length(len(body)) + body

    def block(self, data: bytes) -> tuple[bytes, bytes]:
        """Properties with the length that they have."""
        return peer.length(len(data)), data

    def bad_text(self, name: str) -> bytes:
        """A property with text that is not UTF-8, or a response topic that is none."""
        bad = peer.text(self.one(BAD_TEXTS))
        texts = [each for each in self.allowed(name) if TABLE[each][0] in (TEXT, DATA)]
        kind = self.pick(3)
        if kind == 0 and texts:
            return bytes((self.one(texts),)) + bad
        if kind == 1 and name == "PUBLISH":
            return b"\x08" + peer.text(self.one((b"", b"a/+", b"#", b"a#")))
        good = peer.text(b"k")
        return b"\x26" + (bad + good if self.pick(2) else good + bad)


def plain(properties: list[tuple[int, object]]) -> bytes:
    """Properties without their length."""
    data = encoded(properties)
    at = 0
    while data[at] > 127:
        at += 1
    return data[at + 1 :]
