"""A TCP proxy on loopback that does what networks do.

It can cut, reset, fall silent, stop reading, delay, trickle and refuse.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import sys
import termios
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Direction = Literal["up", "down"]
# What a link does from some point on. "cut" closes both ends in order, "reset" with a RST;
# "silence" swallows everything in both directions, "stall" reads no more from either end. In
# these two an end does not learn that the other one closed; the link ends when both have.
Fault = Literal["cut", "reset", "silence", "stall"]
Watch = Callable[[Direction, int], "Fault | None"]
T = TypeVar("T")

UP: Direction = "up"  # client to broker
DOWN: Direction = "down"  # broker to client

_CHUNK = 65536  # bytes read at once
_READS = 256  # of that many bytes, at most, before a connection is closed
_LOOK = 0.02  # seconds between two looks at whether the ends of a stalled link have closed
_HUNG_UP = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
_LOOPBACK = "127.0.0.1"
# Linux refuses connections to a socket that is bound and does not listen; a BSD drops them, so
# that there the port is free while it refuses.
_KEEPS_PORT = sys.platform == "linux"


@dataclass
class Way:
    """The behaviour of one direction of a link.

    limit: bytes that pass before `then` happens, None for no end; 0 has it happen instead of
    passing the first. delay: seconds that each chunk is held. trickle: every byte is sent by
    itself. change: called in the proxy's thread with each chunk; what it returns passes instead.
    """

    limit: int | None = None
    then: Fault = "cut"
    delay: float = 0
    trickle: bool = False
    change: Callable[[bytes], bytes] | None = field(default=None, compare=False)


@dataclass
class Rules:
    """The behaviour of one link.

    watch: called in the proxy's thread before each MQTT packet is passed on, with the direction
    and the first byte of the packet; the fault that it returns happens instead of passing it.
    idle: seconds after which a link is cut on which neither end has sent anything.
    """

    up: Way = field(default_factory=Way)
    down: Way = field(default_factory=Way)
    watch: Watch | None = None
    idle: float | None = None


class _Packets:
    """A finder of the beginnings of packets in a stream of bytes that comes in chunks."""

    def __init__(self) -> None:
        self._left = 0  # bytes of the packet under way
        self._head = bytearray()  # what is there of a fixed header

    def starts(self, data: bytes) -> list[tuple[int, int]]:
        """(position, first byte) of each packet that begins in `data`."""
        found = []
        at = 0
        while at < len(data):
            skipped = min(self._left, len(data) - at)
            if skipped:
                self._left -= skipped
                at += skipped
                continue
            if not self._head:
                found.append((at, data[at]))
            self._head.append(data[at])
            at += 1
            if len(self._head) > 1 and (self._head[-1] < 128 or len(self._head) == 5):
                for i, digit in enumerate(self._head[1:]):
                    self._left |= (digit & 127) << 7 * i
                self._head.clear()
        return found


def _hung_up(end: socket.socket) -> bool:
    """Return whether the peer has closed, though bytes of it may be unread."""
    look = select.poll()
    look.register(end, _HUNG_UP)
    return bool(look.poll(0))


def _drain(end: socket.socket) -> None:
    """Shut down the sending side, and read what is there.

    Closing with bytes unread would reset the connection, and could discard what was sent.
    """
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_WR)
        for _ in range(_READS):  # a peer that never ends to write is not waited for
            if not end.recv(_CHUNK):
                break


class _Link:
    """A client's connection and the one made for it to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket, rules: Rules) -> None:
        self.ends = {UP: client, DOWN: broker}  # the sockets read from in each direction
        self.ended = asyncio.Event()
        self.served: asyncio.Task[None] | None = None
        self.error: Exception | None = None  # what `watch` raised
        self._rules = rules
        self._tasks: list[asyncio.Task[None]] = []
        self._silent = False
        self._reset = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.passed = {UP: 0, DOWN: 0}  # bytes so far
        self._chunks = 0  # that came from either end
        self._packets = {UP: _Packets(), DOWN: _Packets()}
        self._finished: set[Direction] = set()

    async def serve(self, target: tuple[str, int]) -> None:
        """Pass bytes in both directions until the link ends, and close both ends."""
        loop = asyncio.get_running_loop()
        try:
            for end in self.ends.values():
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._tasks.append(loop.create_task(self._run(target)))
            await self.ended.wait()
        finally:
            # A socket is closed only when nobody waits for it: its number is used again.
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for end in self.ends.values():
                if not self._reset:
                    _drain(end)
                end.close()

    async def _run(self, target: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(self.ends[DOWN], target)
        except OSError:
            self.ended.set()
            return
        self._tasks += [loop.create_task(self._carry(way)) for way in (UP, DOWN)]
        if self._rules.idle is not None:
            self._tasks.append(loop.create_task(self._until_idle(self._rules.idle)))

    def strike(self, fault: Fault) -> None:
        if fault == "silence":
            self._silent = True
        elif fault == "stall":
            if self._flowing.is_set():
                self._flowing.clear()
                self._tasks.append(asyncio.create_task(self._until_hung_up()))
        else:
            if fault == "reset":
                self._reset = True
                for end in self.ends.values():
                    linger = struct.pack("ii", 1, 0)
                    with contextlib.suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.ended.set()

    def resume(self) -> None:
        self._flowing.set()

    async def _until_hung_up(self) -> None:
        while not all(map(_hung_up, self.ends.values())):
            await asyncio.sleep(_LOOK)
        self.ended.set()

    async def _until_idle(self, seconds: float) -> None:
        before = -1
        while before != self._chunks:
            before = self._chunks
            await asyncio.sleep(seconds)
        self.strike("cut")

    async def _carry(self, way: Direction) -> None:
        try:
            await self._pass(way)
        except OSError:
            # A read may have been under way when the stall began.
            if not self._silent and self._flowing.is_set():
                self.ended.set()
        except Exception as error:
            self.error = error
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
            if data and behaviour.delay:
                await asyncio.sleep(behaviour.delay)
            await self._flowing.wait()  # a stall that has begun meanwhile holds it
            if not data:
                break
            self._chunks += 1
            if behaviour.change:
                data = behaviour.change(data)
            fault: Fault | None = None
            if behaviour.limit is not None:
                data = data[: behaviour.limit - self.passed[way]]
                if self.passed[way] + len(data) == behaviour.limit:
                    fault = behaviour.then
            if self._rules.watch:
                for at, first in self._packets[way].starts(data):
                    seen = self._rules.watch(way, first)
                    if seen:
                        data, fault = data[:at], seen
                        break
            await self._send(way, sink, data, behaviour.trickle)
            if fault:
                self.strike(fault)
                if self.ended.is_set():  # what is there already must not pass after it
                    return
        if not self._silent:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    async def _send(self, way: Direction, sink: socket.socket, data: bytes, trickle: bool) -> None:
        loop = asyncio.get_running_loop()
        step = 1 if trickle else _CHUNK
        for at in range(0, len(data), step):
            if self._silent:
                return
            chunk = data[at : at + step]
            await loop.sock_sendall(sink, chunk)
            self.passed[way] += len(chunk)
            if trickle:
                await asyncio.sleep(0)
                await self._flowing.wait()


class Proxy:
    """A proxy that passes connections to its `port` on to a broker at `host` and `port`.

    `rules(count)` gives the Rules of connection number `count` (from 0), and is called in the
    proxy's thread; without it they pass unharmed. Use it as a context manager, or call `stop`.
    Listens on loopback alone.
    """

    def __init__(
        self, host: str, port: int, rules: Callable[[int], Rules] = lambda count: Rules()
    ) -> None:
        self.host = _LOOPBACK
        self.port = 0
        self.accepted = 0  # connections so far
        self.rules = rules
        self.passed: list[dict[Direction, int]] = []  # bytes so far, of each connection
        self._target = (host, port)
        self._links: set[_Link] = set()
        self._error: Exception | None = None
        self._listener: socket.socket | None = None  # refuses while nobody accepts from it
        self._accepting: asyncio.Task[None] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._listen())

    @property
    def open(self) -> int:
        """The number of connections that are open now."""
        return len(self._links)

    def strike(self, fault: Fault) -> None:
        """Apply a fault to every link that is open now.

        "cut" and "reset" have happened when it returns. Not for `rules` and `watch`, which
        the proxy waits for.
        """
        self._do(self._strike(fault))

    def unsent(self) -> int:
        """Return how many bytes the systems of clients have not taken yet, of all open links.

        A client that leaves bytes unread turns a cut into a reset, which throws these away. 0
        where the system does not say.
        """
        return int(self._do(self._unsent()))

    async def _unsent(self) -> int:
        count = 0
        for link in self._links:
            with contextlib.suppress(OSError):
                left = fcntl.ioctl(link.ends[UP], termios.TIOCOUTQ, struct.pack("i", 0))
                count += struct.unpack("i", left)[0]
        return count

    def resume(self) -> None:
        """Have every link that is stalled flow again."""
        self._do(self._resume())

    def refuse(self, refused: bool = True) -> None:
        """Refuse new connections from now on, or accept them again on the same port."""
        self._do(self._refuse() if refused else self._listen())

    def stop(self) -> None:
        """Close every link and end; may be called again.

        Raises what `rules` or `watch` did.
        """
        if not self._thread.is_alive():
            return
        self._do(self._close_listener())
        self._do(self._strike("cut"))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._error:
            raise self._error

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        try:
            self.stop()
        except Exception:
            if error is None:
                raise

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            what.close()
            raise RuntimeError("rules and watch must not call the proxy: it waits for them")
        return asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _listen(self) -> None:
        if self._accepting:
            return
        listener = self._listener or self._bound()
        listener.listen(64)
        self._listener = listener
        self.port = listener.getsockname()[1]
        self._accepting = self._loop.create_task(self._accept(listener))

    def _bound(self) -> socket.socket:
        """Return a socket on the port, beside one that is there already.

        Nobody else gets the port while there is one: SO_REUSEADDR would let others bind it
        as long as none listens.
        """
        listener = socket.socket()
        option = socket.SO_REUSEPORT if _KEEPS_PORT else socket.SO_REUSEADDR
        listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind((_LOOPBACK, self.port))
        listener.setblocking(False)
        return listener

    async def _close_listener(self) -> None:
        if self._accepting:
            self._accepting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._accepting
        if self._listener:
            self._listener.close()
        self._listener = self._accepting = None

    async def _refuse(self) -> None:
        if self._accepting:
            silent = self._bound() if _KEEPS_PORT else None  # before the other one is closed
            await self._close_listener()
            self._listener = silent

    async def _strike(self, fault: Fault) -> None:
        links = list(self._links)
        for link in links:
            link.strike(fault)
        if fault in ("cut", "reset"):
            await asyncio.gather(*(link.served for link in links if link.served))

    async def _resume(self) -> None:
        for link in self._links:
            link.resume()

    async def _accept(self, listener: socket.socket) -> None:
        family = socket.AF_INET6 if ":" in self._target[0] else socket.AF_INET
        while True:
            client, _ = await self._loop.sock_accept(listener)
            try:
                rules = self.rules(self.accepted)
            except Exception as error:
                self._error = self._error or error
                rules = Rules(Way(0), Way(0))
            link = _Link(client, socket.socket(family), rules)
            self.accepted += 1
            self.passed.append(link.passed)
            self._links.add(link)
            link.served = self._loop.create_task(self._serve(link))

    async def _serve(self, link: _Link) -> None:
        try:
            await link.serve(self._target)
        finally:
            self._error = self._error or link.error
            self._links.discard(link)
