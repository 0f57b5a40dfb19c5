"""A grammar of hostile cases: packets that suit the client's state, then spoilt.

Every choice is made by a function `pick(n)`, which returns 0 to n - 1: hypothesis, chance with a
seed, or the bytes of a guided fuzzer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import peer
from hostile import cases

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
BAD_TOPICS = (
    b"", b"a/+", b"#", b"a/#", b"+", b"a\0", b"\0", b"\xff", b"a\x80", b"\xc0\x80", b"\xc1\xbf",
    b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80",
    b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"a\xc3", b"a\xe2\x82",
    b"a\xf0\x9f\xa6", b"\xc3a", b"\xe2\x82a", b"\xf0\x9f\xa6a", b"a" * 30 + b"+", b"\xfe\xfe",
)  # fmt: skip
PAYLOADS = (0, 1, 2, 5, 5, 10, 30, 57, 58, 100, 118, 124, 126, 200, 400)
VALUES = (0, 1, 2, 3, 4, 15, 16, 31, 32, 35, 43, 47, 63, 64, 127, 128, 129, 192, 254, 255)
LENGTHS = (
    b"\0", b"\1", b"\2", b"\3", b"\4", b"\x7f", b"\x80\1", b"\xff\x7f", b"\xff\xff\x7f",
    b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80\1", b"\xff\xff\xff\xff\x7f", b"\x80\0", b"\x82\0",
    b"\x82\x80\0", b"\x82\x80\x80\0", b"\x80\x80\x80\x80", b"\x40", b"\x80\x80\1",
)  # fmt: skip


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
        options = cases.Options(self.first, self.second)
        self.last_id = options.last_id + len(options.filters) + 2
        self.steps: list[tuple] = []
        self.packets = self.changed = 0
        self.fresh: list[int] = []  # identifiers given out of late

    def case(self, segments: int) -> Case:
        """Return the whole case, of at most `segments` segments."""
        for _ in range(1 + self.pick(segments)):
            self.segment()
        return Case(cases.encode(self.first, self.second, self.steps), self.packets, self.changed)

    def one(self, values):
        """One of several values."""
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


def maker(pick: Pick, version: int = 4) -> Maker:
    """A Maker of cases for 3.1.1 (and 3.1), or for MQTT 5."""
    if version < 5:
        return Maker(pick)
    from hostile.grammar5 import Maker5

    return Maker5(pick)


def case(pick: Pick, segments: int = 5, version: int = 4) -> Case:
    """Return a case of at most `segments` segments, by these choices."""
    return maker(pick, version).case(segments)
