"""A TCP proxy on loopback that does what networks do: cut, reset, fall silent, stop reading,
delay, trickle, refuse."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypeVar

Direction = Literal["up", "down"]
# What a link does from some point on. "cut" closes both ends in order, "reset" with a RST;
# "silence" swallows everything in both directions, "stall" reads no more from either end.
Fault = Literal["cut", "reset", "silence", "stall"]
Watch = Callable[[Direction, int], "Fault | None"]
T = TypeVar("T")

UP: Direction = "up"  # client to broker
DOWN: Direction = "down"  # broker to client

_CHUNK = 65536  # bytes read at once
_LOOPBACK = "127.0.0.1"


@dataclass
class Way:
    """How one direction of a link behaves.

    limit: bytes that pass before `then` happens, None for no end. delay: seconds that each
    chunk is held. trickle: every byte is sent by itself.
    """

    limit: int | None = None
    then: Fault = "cut"
    delay: float = 0
    trickle: bool = False


@dataclass
class Rules:
    """How one link behaves.

    watch: called in the proxy's thread before each MQTT packet is passed on, with the direction
    and the first byte of the packet; the fault that it returns happens in place of passing it.
    """

    up: Way = field(default_factory=Way)
    down: Way = field(default_factory=Way)
    watch: Watch | None = None


class _Packets:
    """Finds where packets begin in a stream of bytes that comes in chunks."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the packet under way
        self._head = bytearray()  # what is there of a fixed header

    def starts(self, data: bytes) -> list[tuple[int, int]]:
        """(position, first byte) of each packet that begins in `data`."""
        found = []
        for at, byte in enumerate(data):
            if self._left:
                self._left -= 1
                continue
            if not self._head:
                found.append((at, byte))
            self._head.append(byte)
            if len(self._head) > 1 and (byte < 128 or len(self._head) == 5):
                for i, digit in enumerate(self._head[1:]):
                    self._left |= (digit & 127) << 7 * i
                self._head.clear()
        return found


class _Link:
    """A client's connection and the one made for it to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket, rules: Rules) -> None:
        self.ends = {UP: client, DOWN: broker}  # the sockets read from in each direction
        self.ended = asyncio.Event()
        self.served: asyncio.Task[None] | None = None
        self._rules = rules
        self._silent = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._passed = {UP: 0, DOWN: 0}
        self._packets = {UP: _Packets(), DOWN: _Packets()}
        self._finished: set[Direction] = set()

    async def serve(self, target: tuple[str, int]) -> None:
        """Passes bytes in both directions until the link ends, and closes both ends."""
        loop = asyncio.get_running_loop()
        ways: list[asyncio.Task[None]] = []
        try:
            for end in self.ends.values():
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                await loop.sock_connect(self.ends[DOWN], target)
                ways = [loop.create_task(self._carry(way)) for way in (UP, DOWN)]
                await self.ended.wait()
        finally:
            # A socket is closed only when nobody waits for it: its number is used again.
            for task in ways:
                task.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in self.ends.values():
                end.close()

    def strike(self, fault: Fault) -> None:
        """Has a fault happen."""
        if fault == "silence":
            self._silent = True
        elif fault == "stall":
            self._flowing.clear()
        else:
            if fault == "reset":
                for end in self.ends.values():
                    linger = struct.pack("ii", 1, 0)
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.ended.set()

    async def _carry(self, way: Direction) -> None:
        try:
            await self._pass(way)
        except OSError:
            self.ended.set()
        finally:
            self._finished.add(way)
            if len(self._finished) == 2:
                self.ended.set()

    async def _pass(self, way: Direction) -> None:
        loop = asyncio.get_running_loop()
        source = self.ends[way]
        sink = self.ends[DOWN if way == UP else UP]
        behaviour = self._rules.up if way == UP else self._rules.down
        while True:
            await self._flowing.wait()
            data = await loop.sock_recv(source, _CHUNK)
            if not data:
                break
            if behaviour.delay:
                await asyncio.sleep(behaviour.delay)
            fault: Fault | None = None
            if behaviour.limit is not None:
                data = data[: behaviour.limit - self._passed[way]]
                if self._passed[way] + len(data) == behaviour.limit:
                    fault = behaviour.then
            if self._rules.watch:
                for at, first in self._packets[way].starts(data):
                    seen = self._rules.watch(way, first)
                    if seen:
                        data, fault = data[:at], seen
                        break
            if not self._silent:
                await self._send(sink, data, behaviour.trickle)
                self._passed[way] += len(data)
            if fault:
                self.strike(fault)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    async def _send(self, sink: socket.socket, data: bytes, trickle: bool) -> None:
        loop = asyncio.get_running_loop()
        for at in range(0, len(data), 1 if trickle else _CHUNK):
            await loop.sock_sendall(sink, data[at : at + (1 if trickle else _CHUNK)])
            if trickle:
                await asyncio.sleep(0)


class Proxy:
    """Passes connections to its `port` on to a broker at `host` and `port`.

    `rules(count)` gives the Rules of connection number `count` (from 0); without it they pass
    unharmed. Use it as a context manager, or call `stop`. Listens on loopback alone.
    """

    def __init__(
        self, host: str, port: int, rules: Callable[[int], Rules] = lambda count: Rules()
    ) -> None:
        self.host = _LOOPBACK
        self.port = 0
        self.accepted = 0  # connections so far
        self.rules = rules
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._listen())

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._links)

    def strike(self, fault: Fault) -> None:
        """Has a fault happen to every link that is open now."""
        self._do(self._strike(fault))

    def refuse(self, refused: bool = True) -> None:
        """Refuses new connections from now on, or accepts them again on the same port."""
        self._do(self._close_listener() if refused else self._listen())

    def stop(self) -> None:
        """Closes every link and ends; may be called again."""
        if not self._thread.is_alive():
            return
        self._do(self._close_listener())
        self._do(self._strike("cut"))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _listen(self) -> None:
        if self._listener:
            return
        self._listener = listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK, self.port))
        listener.listen(16)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._accepting = self._loop.create_task(self._accept(listener))

    async def _close_listener(self) -> None:
        if self._accepting:
            self._accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._accepting
        if self._listener:
            self._listener.close()
        self._listener = self._accepting = None

    async def _strike(self, fault: Fault) -> None:
        links = list(self._links)
        for link in links:
            link.strike(fault)
        if fault in ("cut", "reset"):
            await asyncio.gather(*(link.served for link in links if link.served))

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = await self._loop.sock_accept(listener)
            link = _Link(client, socket.socket(), self.rules(self.accepted))
            self.accepted += 1
            self._links.add(link)
            link.served = self._loop.create_task(self._serve(link))

    async def _serve(self, link: _Link) -> None:
        try:
            await link.serve(self._target)
        finally:
            self._links.discard(link)
