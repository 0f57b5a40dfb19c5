"""A grammar of hostile cases: packets that suit the client's state, then spoilt.

Every choice is made by a function `pick(n)`, which returns 0 to n - 1: hypothesis, or chance
with a seed.
"""

from collections.abc import Callable
from typing import NamedTuple

import peer
from hostile import cases
from packets import build as build5
from packets.properties import BYTE, DATA, FOUR, INTEGER, PAIR, TABLE, TEXT, TWO, Id, encoded

Pick = Callable[[int], int]


class Case(NamedTuple):
    """A case in its form of bytes; of its packets, so many are not as they were made."""

    data: bytes
    packets: int
    changed: int


TOPICS = (
    b"a/b", b"a/b", b"a/b", b"a/x", b"c", b"out", b"/", b"$SYS/up", b"a/b/x", "é/ß".encode(),
    "\U0001f980/a".encode(), b"a" * 40, b"a/" + b"t" * 70, b"z" * 140, b"\x7f ", "퟿".encode(),
)  # fmt: skip
# Empty, with U+0000, with wildcards, and not UTF-8: cut, not the shortest form, surrogates.
BAD_TOPICS = (
    b"", b"a\0b", b"a/+", b"#", b"a#b", b"a\xff", b"\xfe", b"a\x80", b"\xc3a", b"a\xc3",
    b"a\xe2\x82", b"a\xf0\x9f\xa6", b"\xc1\xbf", b"\xc0\x80", b"\xe0\x9f\xbf",
    b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80", b"\0", b"\xe2\x82a", b"a" * 30 + b"+",
)  # fmt: skip
PAYLOADS = (0, 1, 2, 5, 5, 10, 30, 57, 58, 100, 118, 124, 126, 200, 400)
VALUES = (0, 1, 2, 3, 4, 15, 16, 31, 32, 35, 43, 47, 63, 64, 127, 128, 129, 192, 254, 255)
LENGTHS = (
    b"\0", b"\1", b"\2", b"\3", b"\4", b"\x7f", b"\x80\1", b"\xff\x7f", b"\xff\xff\x7f",
    b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80\1", b"\xff\xff\xff\xff\x7f", b"\x80\0", b"\x82\0",
    b"\x82\x80\0", b"\x82\x80\x80\0", b"\x80\x80\x80\x80", b"\x40", b"\x80\x80\1",
)  # fmt: skip

# Of MQTT 5
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


class Maker:
    """A maker of one case.

    It keeps a rough account of packet identifiers, so that most of those that it uses mean
    something to the client.
    """

    spoilings = 18  # kinds of them
    greeted = 4  # one CONNACK in so many is not that of the driver
    actions: tuple[int, ...] = (
        cases.PUBLISH, cases.PUBLISH, cases.PUBLISH, cases.PUBLISH, cases.SUBSCRIBE,
        cases.SUBSCRIBE, cases.UNSUBSCRIBE, cases.ROOM, cases.BLOCK, cases.RAISE,
        cases.REPLY, cases.PING, cases.TICK, cases.SPLIT, cases.SYNC,
    )  # fmt: skip

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.first, self.second = pick(256), pick(64)
        self.third: int | None = None
        options = cases.Options(self.first, self.second)
        self.last_id = options.last_id + len(options.filters) + 2
        self.steps: list[tuple] = []
        self.packets = self.changed = 0
        self.fresh: list[int] = []  # identifiers given out of late

    def case(self, segments: int) -> Case:
        """Return the whole case, of at most `segments` segments."""
        for _ in range(1 + self.pick(segments)):
            self.segment()
        data = cases.encode(self.first, self.second, self.steps, self.third)
        return Case(data, self.packets, self.changed)

    def one(self, values):
        return values[self.pick(len(values))]

    # Steps

    def segment(self) -> None:
        """Go on with a connection, do something as an application, and feed packets."""
        pick = self.pick
        how = 0
        raw = False
        if pick(3) == 0:
            how = self.one((0, cases.CUT, cases.CUT | cases.BREAK)) | pick(2) * cases.PRESENT
            raw = how & cases.CUT and pick(self.greeted) == 0
        self.steps.append((cases.NEXT, how | (cases.RAW if raw else 0)))
        for _ in range(pick(4)):
            self.action()
        stream = [self.packet() for _ in range(1 + pick(7))]
        if raw:
            stream.insert(0, self.connack())
        spoilt = [False] * len(stream)
        for _ in range(self.one((0, 1, 1, 1, 2, 2, 3, 5))):
            self.spoil(stream, spoilt)
        self.packets += len(stream)
        self.changed += sum(spoilt)
        self.feed(stream)

    def action(self) -> None:
        """Something that the application, the network or the clock does."""
        pick = self.pick
        step = self.one(self.actions)
        argument = pick(256)
        if step in (cases.ROOM, cases.SPLIT):
            argument = self.one((0, 1, 2, 3, 5, 7, 13))
        elif step == cases.TICK:
            argument = self.one((1, 5, 21, 90, 93, 120))
        elif step == cases.RAISE:
            argument = pick(4)
        elif step in (cases.SUBSCRIBE, cases.UNSUBSCRIBE, cases.REQUEST) or (
            step == cases.PUBLISH and argument & 3 in (1, 2)
        ):
            self.last_id = self.last_id % 65535 + 1
            self.fresh.append(self.last_id)
        self.steps.append((step, argument))

    def feed(self, stream: list[bytes]) -> None:
        """Feed packets: all at once, one by one, or cut anywhere."""
        pick = self.pick
        way = pick(4)
        pieces = stream
        if way == 0:
            pieces = [b"".join(stream)]
        elif way == 1:
            data = b"".join(stream)
            cuts = sorted(pick(len(data) + 1) for _ in range(1 + pick(4)))
            pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        for piece in pieces:
            if piece:
                self.steps.append((cases.FEED, piece))
            if pick(12) == 0:
                self.action()

    # Packets

    def connack(self) -> bytes:
        """A CONNACK, which mostly accepts."""
        pick = self.pick
        return peer.packet(0x20, bytes((pick(2), pick(4) // 3 * pick(7))))

    def given(self) -> int:
        """An identifier that the client has given out, as a rule."""
        pick = self.pick
        if self.fresh and pick(8):
            return self.fresh.pop(pick(len(self.fresh))) if pick(2) else self.one(self.fresh)
        return (self.last_id - pick(6)) % 65536 or 1

    def packet(self) -> bytes:
        """A packet that breaks no rule."""
        pick = self.pick
        kind = pick(20)
        if kind < 10:
            return self.publish(self.one(TOPICS), self.one(PAYLOADS))
        if kind < 13:
            return peer.packet(0x62, bytes((0, 1 + pick(6))))
        if kind < 17:
            return peer.packet(self.one((0x40, 0x50, 0x70)), self.given().to_bytes(2, "big"))
        if kind == 17:
            codes = bytes(self.one((0, 1, 2, 128)) for _ in range(1 + pick(3)))
            return peer.packet(0x90, self.given().to_bytes(2, "big") + codes)
        if kind == 18:
            return peer.packet(0xB0, self.given().to_bytes(2, "big"))
        return peer.packet(0xD0, b"") if pick(2) else self.publish(b"a/b", 450 + pick(300))

    def publish(self, topic: bytes, size: int, pid: int | None = None) -> bytes:
        """A PUBLISH of that topic name, with a payload of that size."""
        qos = self.pick(3)
        first = 0x30 | qos << 1 | self.pick(2) | (8 * self.pick(2) if qos else 0)
        if pid is None:
            pid = 1 + self.pick(6)
        payload = (b"%d" % pid * size)[:size]
        number = pid.to_bytes(2, "big") if qos else b""
        return peer.packet(first, peer.text(topic) + number + payload)

    # Spoiling

    def spoil(self, stream: list[bytes], spoilt: list[bool]) -> None:
        """Spoil a stream in one place."""
        pick = self.pick
        i = pick(len(stream))
        p = bytearray(stream[i])
        kind = pick(self.spoilings)
        if kind == 0:  # drop
            if len(stream) == 1:
                return
            del stream[i], spoilt[i]
            i = min(i, len(stream) - 1)
            p = bytearray(stream[i])  # what follows comes where it was not to come
        elif kind == 1:  # twice
            stream.insert(i, bytes(p))
            spoilt.insert(i, False)
        elif kind == 2:  # in another order
            j = pick(len(stream))
            if stream[i] == stream[j]:
                return
            stream[i], stream[j] = stream[j], stream[i]
            spoilt[j] = True
            p = bytearray(stream[i])
        elif kind == 3:  # the beginning of one and the end of another
            other = self.one(stream)
            p = p[: pick(len(p) + 1)] + other[pick(len(other) + 1) :]
        elif kind == 4 and p:  # cut off
            del p[pick(len(p)) :]
        elif kind == 5 and p:  # a bit
            p[pick(len(p))] ^= 1 << pick(8)
        elif kind == 6 and p:  # a byte
            p[pick(len(p))] = self.one(VALUES)
        elif kind == 7 and p:  # the first bytes, which matter most
            p[pick(min(len(p), 6))] = pick(256)
        elif kind == 8 and p:  # flags
            p[0] = p[0] & 0xF0 | pick(16)
        elif kind == 16:  # flags of what is small
            first = self.one((0x20, 0x40, 0x50, 0x60, 0x60, 0x70, 0x90, 0xB0, 0xD0))
            body = b"" if first == 0xD0 else self.one((b"\0\0", self.given().to_bytes(2, "big")))
            p[:] = peer.packet(first | pick(16), body + b"\1" * (first == 0x90))
        elif kind == 9 and p:  # the type
            p[0] = pick(16) << 4 | (p[0] & 15 if pick(2) else self.one((0, 2)))
        elif kind == 10 and len(p) > 1:  # Remaining Length, with the body as it was
            p[1 : 3 if p[1] > 127 else 2] = self.one(LENGTHS)
        elif kind == 11 and len(p) > 1:  # a little more or less
            p[1] = (p[1] + self.one((-2, -1, 1, 2))) & 255
        elif kind in (12, 17):  # a topic name that is none
            p[:] = self.publish(self.one(BAD_TOPICS), pick(4))
        elif kind == 13 and p and p[0] >> 4 == 3 and len(p) > 3:  # the topic's length
            at = 3 if p[1] > 127 else 2
            if at + 1 < len(p):
                p[at + pick(2)] = self.one(VALUES)
        elif kind == 14:  # packet identifier 0, or any
            pid = self.one((0, 0, pick(65536)))
            if pick(2):
                p[:] = self.publish(b"a/b", pick(4), pid)
            else:
                first = self.one((0x40, 0x50, 0x62, 0x70, 0xB0))
                p[:] = peer.packet(first, pid.to_bytes(2, "big"))
        elif kind >= 18:
            p[:] = self.spoil_more(bytes(p))
        elif kind == 15:  # a body that is too long or too short, with the right length
            body = bytes(p[2:]) if len(p) > 1 and p[1] < 128 else b""
            body = body + bytes(1 + pick(2)) if pick(2) else body[: -1 - pick(2)]
            p[:] = peer.packet(p[0] if p else 0, body)
        if kind > 2 and bytes(p) == stream[i]:
            return
        stream[i] = bytes(p)
        spoilt[i] = True

    def spoil_more(self, packet: bytes) -> bytes:
        """A packet, spoilt in a way that 3.1.1 does not have."""
        return packet


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
        length = None
        if not block or pick(3) == 0:
            block += plain(self.some(name)) if pick(2) else b""
        kind = pick(12)
        if kind == 0:  # the length of the block
            length = peer.length(max(0, len(block) + self.one((-3, -2, -1, 1, 2, 3, 100))))
        elif kind == 1:  # ... of five bytes, or with needless ones
            many = (b"\x80\x80\x80\x80\1", b"\xff\xff\xff\xff\x7f", b"\xff", b"\x80\x80\x80\x80")
            needless = bytes((len(block) & 127 | 128, len(block) >> 7 | 128, 0))
            length = self.one((*many, needless))
        elif kind == 2:  # an identifier that there is not
            block += bytes((self.one(UNKNOWN),)) + bytes(pick(3))
        elif kind == 3:  # twice
            identifier = self.one(self.allowed(name))
            block += plain([(identifier, self.value(identifier)) for _ in range(2)])
        elif kind == 4:  # not allowed in this packet
            identifier = self.one(list(Id))
            block += plain([(identifier, self.value(identifier))])
        elif kind == 5 and block:  # a value that is cut
            block = block[: -1 - pick(len(block))]
        elif kind == 6:  # text that is none
            block += self.bad_text(name)
        elif kind == 7:  # a flag that is neither
            flags = [each for each in self.allowed(name) if TABLE[each][0] == BYTE]
            if flags:
                block += plain([(self.one(flags), self.one((2, 3, 127, 128, 255)))])
        elif kind == 8:  # 0 where it must not be
            zero = [each for each in NOT_ZERO if name in TABLE[each][1]]
            if zero:
                block += plain([(self.one(zero), 0)])
        elif kind == 9 and name == "PUBLISH":  # a topic alias, and mostly no topic name
            block += plain([(Id.TOPIC_ALIAS, self.one((0, 1, 2, 65535)))])
            if pick(2):
                head = b"\0\0" + (head[-2:] if packet[0] & 6 else b"")
        elif kind == 10 and block:  # a byte
            at = pick(len(block))
            block = block[:at] + bytes((self.one(VALUES),)) + block[at + 1 :]
        elif kind == 11:  # integers of five bytes, or with needless ones
            block += b"\x0b" + self.one((b"\x80\x80\x80\x80\1", b"\x81\0", b"\x82\x80\0", b"\x80"))
        length = peer.length(len(block)) if length is None else length
        body = head + length + block + rest
        return packet[:1] + peer.length(len(body)) + body

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


def plain(properties: list[tuple[int, object]]) -> bytes:
    """Properties without their length."""
    data = encoded(properties)
    at = 0
    while data[at] > 127:
        at += 1
    return data[at + 1 :]


def case(pick: Pick, segments: int = 5, version: int = 4) -> Case:
    """Return a case of at most `segments` segments, by these choices."""
    return (Maker if version < 5 else Maker5)(pick).case(segments)
