"""A link and streams in memory that fail by chance, between a client and the model of a broker."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from model.judge import Fault, hold
from packets.strict import Packet

if TYPE_CHECKING:
    from model.chance import Life

BY_PEER = ("end of file", "reset", "broken pipe")
OVERTAKES = ("PUBACK", "SUBACK", "UNSUBACK", "PINGRESP")
ENDS = (*BY_PEER, "unreachable", "silence")
ERRORS = {"reset": errno.ECONNRESET, "broken pipe": errno.EPIPE, "unreachable": errno.EHOSTUNREACH}


class Due(NamedTuple):
    """A packet of the broker, and when it may be read."""

    at: int
    data: bytes


class Stream:
    """One connection. It is cut after so many bytes in one direction, or when `cut` is called.

    `ended` says how: by the peer, by the network, or in silence, when nothing comes any more and
    what is written gets lost.
    """

    def __init__(self, life: Life) -> None:
        self.life = life
        self.chance = life.chance
        self.ended = ""
        self.out_left = life.cut_after()  # bytes that still reach the broker
        self.in_left = life.cut_after()  # bytes that the client can still read
        self.blocked_until = 0  # the network takes nothing before this time
        self.waiting: deque[Due] = deque()
        self.connacked = self.greeted = False  # CONNACK was sent; it was read
        self.gave = 0  # bytes that the client has read
        self.offered = b""  # what must be offered next

    def cut(self, how: str) -> None:
        """End the connection."""
        if not self.ended:
            self.life.say(f"cut: {how}")
            self.ended = how
            self.life.broker.closed()

    # What the broker calls

    def send(self, packet: Packet, data: bytes) -> None:
        """Send a packet, now or later, or never; some may overtake others."""
        life = self.life
        if packet.name == "CONNACK":
            self.connacked = True
        if life.calm or packet.name in ("CONNACK", "PUBLISH"):
            delay = 0
        else:
            if life.swallows(packet.name):
                life.say(f"swallows {packet.name} {packet.pid}")
                return
            delay = life.delay()
        due = Due(life.clock.now + delay, data)
        if packet.name in OVERTAKES and len(self.waiting) > 1 and life.fails(0.2):
            self.waiting.insert(len(self.waiting) - 1, due)
        else:
            self.waiting.append(due)

    # What the client calls

    def write(self, buf: memoryview, at: int, n: int) -> int | None:
        """Take some of these bytes."""
        life, data = self.life, bytes(memoryview(buf)[at : at + n])
        hold(n > 0, "an empty write")
        if self.offered:
            hold(data == self.offered, "a write that was cut short goes on with other bytes")
        life.ctrl_c("write")
        if self.ended in BY_PEER:
            raise OSError(errno.EPIPE, "write")
        if self.ended == "unreachable":
            raise OSError(errno.EHOSTUNREACH, "write")
        n = 0 if life.clock.now < self.blocked_until else life.room(n)
        self.offered = data[n:]
        if not n:
            return None
        try:
            life.judge.wrote(data[:n])
            self._deliver(data[:n])
        except Exception as e:  # the decoders have found it malformed
            raise Fault(f"{type(e).__name__}: {e}") from e
        return n

    def _deliver(self, data: bytes) -> None:
        """Have the broker receive bytes, as far as they reach it."""
        broker = self.life.broker
        if self.ended:  # in silence
            return
        if self.out_left is None or len(data) < self.out_left:
            broker.received(data)
        else:
            broker.received(data[: self.out_left])
            self.cut(self.life.end())
        if self.out_left is not None:
            self.out_left -= len(data)

    def readinto(self, buf: memoryview) -> int | None:
        """Give some of the bytes that have come."""
        try:
            return self._read(buf)
        except OSError:
            raise
        except Exception as e:
            raise Fault(f"{type(e).__name__}: {e}") from e

    def next_in(self) -> int | None:
        """Return the ms until bytes come, None if none are on their way."""
        if not self.waiting or self.ended == "silence":
            return None
        return max(self.waiting[0].at - self.life.clock.now, 0)

    def _read(self, buf: memoryview) -> int | None:
        life = self.life
        if not life.leaves:  # else the client discards what it reads
            life.judge.handled()
        life.ctrl_c("read")
        now = life.clock.now
        data = bytearray()
        while self.waiting and self.waiting[0].at <= now and self.ended != "silence":
            data += self.waiting.popleft().data
        n = life.read(min(len(data), len(buf)))
        if self.in_left is not None:
            n = min(n, max(self.in_left, 0))
            self.in_left -= n
        if data[n:]:
            self.waiting.appendleft(Due(now, bytes(data[n:])))
        if n:
            buf[:n] = data[:n]
            self.gave += n
            for packet in life.judge.read(bytes(data[:n])):
                if packet.name == "CONNACK":
                    self.greeted = True
                    life.say(f"CONNACK, session present {packet.present}")
            return n
        if self.in_left is not None and self.in_left <= 0:
            self.cut(life.end())
        if self.ended in ("", "silence"):
            return None
        if self.ended == "end of file":
            return 0
        raise OSError(ERRORS[self.ended], "read")

    def close(self) -> None:
        """Handle the end of the connection, which the client has closed or given up."""
        life = self.life
        # The client cannot know whether CONNECT has reached the broker, and may count it as sent
        # before it is.
        if not self.greeted:
            life.say("CONNACK was not seen")
            life.judge.in_doubt(self.connacked)
            life.broker.doubt()
        life.judge.closed(self.ended in BY_PEER)
        life.broker.closed()


class Link:
    """The link of a client, over which it makes one connection after another."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.address: str | None = None
        self.current: Stream | None = None
        self.open = False

    def resolve(self) -> None:
        if self.life.fails(0.1):
            raise OSError(errno.EIO, "resolve")
        self.address = "an address"

    def connect(self) -> None:
        hold(self.address is not None, "connect before resolve")
        hold(not self.open, "the connection before is not closed")
        self.open = True
        if self.life.fails(0.1):
            raise OSError(errno.EHOSTUNREACH, "connect")

    def stream(self) -> Stream | None:
        if self.life.fails(0.1):
            raise OSError(errno.ECONNREFUSED, "stream")
        if self.life.fails(0.2):
            return None
        self.life.connects()
        self.current = Stream(self.life)
        return self.current

    def wait(self, ms: int, out: bool) -> None:
        hold(ms > 0, "a wait of no time")
        self.life.ctrl_c("wait")
        self.life.waited(ms)

    def close(self) -> None:
        self.open = False
        if self.current:
            self.current.close()
            self.current = None
