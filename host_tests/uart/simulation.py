"""A client, a serial line, a bridge and a broker in this process, with a clock of their own.

The line does harm and is slow as a test asks. Time passes where the client waits, and a
millisecond for each poll.
"""

from __future__ import annotations

import binascii
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterator
from unittest import mock

import flatmq.dial
import flatmq.port
import flatmq.setup
from flatmq import Client, frames, stream_uart
from flatmq_tools.bridge.conversation import Conversation
from spool.model_broker import Broker

ROOM = 256  # bytes of the board's buffer
UP, DOWN = "up", "down"
Harm = Callable[[bytes], bytes]  # what becomes of the bytes of a direction
TEXT = b"Traceback (most recent call last):\r\n  caf\xc3\xa9\r\n"


class Struck:
    """Harm that is done once, at byte `at` of what passes."""

    def __init__(self, way: str, at: int) -> None:
        self.way = way
        self.at = at
        self.passed = 0
        self.done = False
        self._silent = False

    def __call__(self, data: bytes) -> bytes:
        if self._silent:
            return b""
        at = self.at - self.passed
        self.passed += len(data)
        if self.done or not 0 <= at < len(data):
            return data
        self.done = True
        head, byte, tail = data[:at], data[at], data[at + 1 :]
        match self.way:
            case "lose a byte":
                return head + tail
            case "flip a bit":
                return head + bytes((byte ^ 1 << at % 8,)) + tail
            case "print":
                return head + TEXT + data[at:]
            case "tear":
                self._silent = True
                return head
        raise AssertionError(self.way)


WAYS = ["lose a byte", "flip a bit", "print", "tear"]


def quick_crc(src: bytes, at: int, end: int, value: int) -> int:
    """Return what `frames.crc` does, in less time; see test_frames_on_a_line.py."""
    return binascii.crc_hqx(memoryview(src)[at:end], value)


class Board(stream_uart.Link):
    """The link of a board whose UART is the simulated line."""

    def __init__(self, line: Line, room: int = ROOM) -> None:
        self._line = line
        super().__init__(None, room)

    def _attach(self, uart):
        pass

    def _read(self, buf):
        taken = self._line.ring[: len(buf)]
        del self._line.ring[: len(buf)]
        buf[: len(taken)] = taken
        return len(taken) or None

    def _write(self, buf, at, n):
        n = min(n, self._line.takes)
        self._line.to_bridge(bytes(buf[at : at + n]))
        return n or None

    def _sleep(self, ms):
        self._line.sleep(ms)


class Line:
    """The line, the bridge at its end and the clock. As an upstream it leads to `broker`."""

    def __init__(self, broker: Broker, room: int = ROOM) -> None:
        self.broker = broker
        self.now = 1000  # ms
        self.harm: dict[str, Harm] = {UP: bytes, DOWN: bytes}
        self.ring = bytearray()  # what the board has not read
        self.size = room
        self.fullest = 0
        self.delay = {UP: 0, DOWN: 0}  # ms that bytes are under way
        self._under_way: dict[str, deque[tuple[int, bytes]]] = {UP: deque(), DOWN: deque()}
        self.takes = 1 << 20  # bytes that one write of the board gets rid of
        self.printed = bytearray()
        self._plug()
        self._connecting = False

    # As the upstream

    def open(self) -> None:
        self.broker.connect()
        self._connecting = True

    def send(self, data: bytes) -> None:
        self.broker.write(data, 0, len(data))

    def close(self) -> None:
        self.broker.close()
        self._connecting = False

    # What moves

    @property
    def seconds(self) -> float:
        return self.now / 1000

    def to_bridge(self, data: bytes) -> None:
        self._under_way[UP].append((self.now + self.delay[UP], self.harm[UP](data)))
        self.turn()

    def turn(self) -> None:
        """Carry out what the line, the bridge and the broker have to do."""
        for data in self._arrived(UP):
            self.bridge.receive(data, self.seconds)
        if self._connecting:
            self._connecting = False
            self.bridge.opened(self.seconds)
        buffer = bytearray(512)
        while self.bridge.wants:
            n = self.broker.readinto(buffer)
            if not n:
                break
            self.bridge.send(bytes(buffer[:n]), self.seconds)
        self.printed += self.bridge.text
        self.bridge.text.clear()
        data = bytes(self.bridge.out)
        self.bridge.out.clear()
        if data:
            self._under_way[DOWN].append((self.now + self.delay[DOWN], self.harm[DOWN](data)))
        for data in self._arrived(DOWN):
            self.ring += data
        self.fullest = max(self.fullest, len(self.ring))

    def _arrived(self, direction: str) -> Iterator[bytes]:
        way = self._under_way[direction]
        while way and way[0][0] <= self.now:
            data = way.popleft()[1]
            if data:
                yield data

    def sleep(self, ms: int) -> None:
        self.turn()
        if not self.ring:
            self.lapse(ms)

    def lapse(self, ms: int) -> None:
        """Time passes, up to so much that something happens."""
        end = self.now + ms
        due = self.bridge.due
        if due is not None and due * 1000 < end:
            end = max(self.now, int(due * 1000) + 1)
        arrivals = [way[0][0] for way in self._under_way.values() if way]
        self.now = min([end, *arrivals])
        self.bridge.tick(self.seconds)
        self.turn()

    def restart(self) -> None:
        """The bridge is killed, and another one begun."""
        self.bridge.unplugged()
        self._plug()
        self.turn()

    def hang_up(self) -> None:
        """The broker ends the connection."""
        self.broker.close()
        self.bridge.ended(self.seconds)
        self.turn()

    def _plug(self) -> None:
        self.bridge = Conversation(self)
        self.bridge.plugged(self.seconds)


class World:
    """A broker, a line and a client on it, which has a session that outlives its connections.

    It begins once the client is connected, unless `is_new`.
    """

    def __init__(self, room: int = ROOM, *, is_new: bool = False, **options) -> None:
        self.broker = Broker()
        self.line = Line(self.broker, room)
        self.got: list[bytes] = []
        self._room = room
        self._options = options
        # The same identifiers in every run, and others in each life of the board.
        self._random = random.Random(1)
        self._is_new = is_new
        self._patches = contextlib.ExitStack()

    def boot(self) -> None:
        """Restart the board."""
        self.line.ring.clear()
        self.link = Board(self.line, self._room)
        self.client = Client(
            b"b", link=self.link, clean_session=False, incoming=8, rx_size=256, **self._options
        )
        self.client.subscribe(b"in", lambda m: self.got.append(m.payload), 2)
        self.client.start()

    def __enter__(self) -> World:
        patch = self._patches.enter_context
        for module in (flatmq.port, stream_uart):
            patch(mock.patch.object(module, "ticks_ms", self.ticks))
        for module in (flatmq.setup, flatmq.dial, stream_uart):
            patch(mock.patch.object(module, "random", self._random))
        patch(mock.patch.object(frames, "crc", quick_crc))
        self.boot()
        if not self._is_new:
            self.until("the bridge", lambda: self.client.connected)
        return self

    def __exit__(self, *error: object) -> None:
        self._patches.close()

    def ticks(self) -> int:
        return self.line.now & 0x3FFFFFFF

    def until(self, what: str, condition: Callable[[], bool], seconds: int = 120) -> None:
        """Poll until it is so; fail after that many seconds of the world's clock."""
        end = self.line.now + 1000 * seconds
        while not condition():
            assert self.line.now < end, (what, self.client.state, self.client.error)
            self.client.poll(1000)
            self.line.lapse(1)
