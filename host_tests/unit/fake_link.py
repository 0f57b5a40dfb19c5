"""A client on a link without a network, and with a clock that only the test moves."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import flatmq.port
import peer
from flatmq import Client


class Clock:
    """Milliseconds, wrapping as those of a board do."""

    def __init__(self, now: int = 1000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now & 0x3FFFFFFF


def raises(error: BaseException) -> Callable[..., None]:
    """Return a function that raises that."""

    def call(*_: object) -> None:
        raise error

    return call


class FakeStream:
    """Gives the chunks of `incoming`, one for each read, and keeps what is written.

    `room` is the number of bytes that it still takes, None for any number; `ended` the peer's
    end of file; `raises` is what a "read" or a "write" raises.
    """

    def __init__(self) -> None:
        self.incoming: deque[bytes] = deque()
        self.written = bytearray()
        self.writes: list[bytes] = []
        self.reads = 0
        self.room: int | None = None
        self.ended = False
        self.raises: dict[str, BaseException] = {}  # by "read" and "write"
        self.attempts = 0  # to write

    def readinto(self, buf: memoryview) -> int | None:
        self.reads += 1
        if "read" in self.raises:
            raise self.raises["read"]
        if not self.incoming:
            return 0 if self.ended else None
        chunk = self.incoming.popleft()
        n = min(len(chunk), len(buf))
        buf[:n] = chunk[:n]
        if n < len(chunk):
            self.incoming.appendleft(chunk[n:])
        return n

    def write(self, buf: bytes, off: int, n: int) -> int | None:
        self.attempts += 1
        if "write" in self.raises:
            raise self.raises["write"]
        assert n > 0, "an empty write"
        if self.room is not None:
            n = min(n, self.room)
            if not n:
                return None
            self.room -= n
        piece = bytes(memoryview(buf)[off : off + n])
        self.written += piece
        self.writes.append(piece)
        return n


class FakeLink:
    """A link that counts what it is asked for.

    `fails` names the step that raises OSError, `slow` is the number of times that a connection
    is not there yet.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.address: str | None = None
        self.made: list[FakeStream] = []
        self.calls: list[str] = []
        self.waits: list[tuple[int, bool]] = []
        self.on_wait: list = []  # functions, each called in one wait
        self.fails = ""
        self.slow = 0
        self.open = False

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if self.fails == name:
            raise OSError(errno.EHOSTUNREACH, name)

    def resolve(self) -> None:
        self._step("resolve")
        self.address = "an address"

    def connect(self) -> None:
        assert self.address is not None
        assert not self.open, "the link before is not closed"
        self.open = True
        self._step("connect")

    def stream(self) -> FakeStream | None:
        self._step("stream")
        if self.slow:
            self.slow -= 1
            return None
        self.made.append(FakeStream())
        return self.made[-1]

    def wait(self, ms: int, out: bool) -> None:
        assert ms > 0
        self.waits.append((ms, out))
        if self.on_wait:
            self.on_wait.pop(0)()
        else:
            self.clock.now += ms

    def close(self) -> None:
        self.open = False


class Bench:
    """A client, its link and its clock; `sent()` are the packets written since the last call."""

    def __init__(self, clock: Clock, **options) -> None:
        self.clock = clock
        self.link = FakeLink(clock)
        options.setdefault("client_id", b"unit")
        self.client = Client(options.pop("client_id"), link=self.link, **options)
        self._read = 0

    @property
    def stream(self) -> FakeStream:
        """The connection made last."""
        return self.link.made[-1]

    def greet(self) -> peer.Packet:
        """Poll a client that is to connect until it awaits CONNACK; return its CONNECT."""
        self.client.start()
        while self.client.state != "greeting":
            if self.client.poll() or self.client.state == "waiting":
                self.clock.now += 100
        self._read = 0
        (connect,) = self.sent()
        assert connect.first == 0x10
        return connect

    def online(self, code: int = 0, *, present: bool = False) -> Bench:
        """Have the client connected, with that CONNACK."""
        self.greet()
        self.feed(peer.connack(code, present=present))
        return self

    def feed(self, *packets: bytes) -> None:
        """Give these bytes in one read, and poll until everything is read."""
        self.stream.incoming.append(b"".join(packets))
        self.drain()

    def drain(self) -> None:
        """Poll as long as something is received."""
        while self.client.poll():
            pass

    def sent(self) -> list[peer.Packet]:
        """The packets written since the last call; there must be no rest."""
        packets, rest = peer.split(bytes(self.stream.written[self._read :]))
        assert rest == b"", f"a packet is cut: {rest!r}"
        self._read = len(self.stream.written)
        return packets

    def lose(self) -> None:
        """End the connection from the other side."""
        self.stream.ended = True
        self.drain()
        assert not self.client.connected

    def outage(self) -> None:
        """End the connection from neither side: the network has failed."""
        self.stream.raises["read"] = OSError(errno.EHOSTUNREACH, "read")
        self.drain()
        assert not self.client.connected

    def published(self) -> list[peer.Publish]:
        """The same, when all of them are to be PUBLISH."""
        return [peer.take_apart(p) for p in self.sent()]

    def pass_time(self, ms: int, step: int = 50) -> None:
        """Move the clock and poll in between."""
        end = self.clock.now + ms
        while self.clock.now < end:
            self.clock.now += step
            self.client.poll()


@contextmanager
def fake_clock(now: int = 1000) -> Iterator[Clock]:
    """Yield a clock that replaces the client's own."""
    clock = Clock(now)
    with mock.patch.object(flatmq.port, "ticks_ms", clock):
        yield clock
