"""Move bytes between a line, a conversation and the broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from .conversation import PATIENCE, Conversation
from .line import Line, LineError

RETRY = 1.0  # seconds between two tries to open the port, at least
_CONNECT = 8.0  # seconds that TCP and TLS may take, less than a board waits
_FINISH = 2.0  # seconds that a broker has to close after this end did


class Pump:
    """A bridge between a serial port and a broker: `run` it until it is cancelled.

    say: called with a line on what happens ("bridge", text) or was printed ("board", text).
    tls: called for the context of each connection to the broker; None: no TLS.
    """

    def __init__(
        self,
        url: str,
        baud: int,
        host: str,
        port: int,
        say: Callable[[str, str], None],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.conversation = Conversation(self, patience)
        self.plugged = False
        self.received = self.written = 0  # bytes on the line
        self._where = (url, baud)
        self.broker = (host, port)
        self._say = say
        self._noted = ""
        self.tls = tls
        self._line: Line | None = None
        self._unplugged = asyncio.Event()
        self._up: _Upstream | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._printed = bytearray()  # of a line that has not ended

    async def run(self) -> None:
        """Bridge until it is cancelled. Raises LineError if the port cannot be opened at first.

        Later it waits for the port: boards are unplugged and reset.
        """
        loop = asyncio.get_running_loop()
        opened = False
        try:
            while True:
                began = loop.time()
                try:
                    line = await asyncio.to_thread(
                        Line, *self._where, self._on_bytes, self._on_unplugged
                    )
                except LineError as error:
                    if not opened:
                        raise
                    self.note(f"{error}; waiting for it")
                    await asyncio.sleep(RETRY)
                    continue
                opened = True
                self.note(f"{self._where[0]} is open")
                self._unplugged.clear()
                self._line = line
                self.plugged = True
                line.start(loop)
                self.talk(Conversation.plugged)
                try:
                    await self._unplugged.wait()
                finally:
                    if not self._unplugged.is_set():
                        self.talk(Conversation.leave)
                    self.plugged = False
                    self._line = None
                    self.conversation.unplugged()
                    await asyncio.to_thread(line.close)
                await asyncio.sleep(began + RETRY - loop.time())
        finally:
            if self._timer:
                self._timer.cancel()
            if self._tasks:  # what the board sent last may still be on its way to the broker
                await asyncio.wait(self._tasks, timeout=_FINISH)

    # The line

    def _on_unplugged(self, reason: str) -> None:
        self.note(f"{self._where[0]} is gone: {reason}")
        self._unplugged.set()

    def _on_bytes(self, data: bytes) -> None:
        self.received += len(data)
        self.talk(Conversation.receive, data)

    def talk(self, what: Callable[..., None], *arguments: bytes) -> None:
        """Pass an event to the conversation, and do what it asks for."""
        loop = asyncio.get_running_loop()
        talk = self.conversation
        what(talk, *arguments, loop.time())
        if talk.out and self._line:
            self._line.write(bytes(talk.out))
            self.written += len(talk.out)
        talk.out.clear()
        if self._up:
            self._up.flow(talk.wants)
        if talk.text:
            self._show(bytes(talk.text))
            talk.text.clear()
        if self._timer:
            self._timer.cancel()
        due = talk.due
        self._timer = loop.call_at(due, self.talk, Conversation.tick) if due is not None else None

    def note(self, text: str) -> None:
        """Say what happens, and not again what it said last: boards go on trying."""
        if text != self._noted:
            self._noted = text
            self._say("bridge", text)

    def keep(self, task: asyncio.Task[None]) -> None:
        """See that a task ends with this pump at the latest."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _show(self, text: bytes) -> None:
        self._printed += text
        *lines, rest = bytes(self._printed).split(b"\n")
        for line in lines:
            # What is left of a frame that lost its beginning is nobody's to read.
            readable = line[line.rfind(b"\xfb") + 1 :].strip(b"\r")
            if readable and max(readable) < 0xFA:
                self._say("board", readable.decode(errors="replace"))
        self._printed = bytearray(rest[-4096:])

    # The broker, as the conversation uses it

    def open(self) -> None:
        """Begin a connection to the broker."""
        self._up = _Upstream(self)
        self._up.begin()

    def send(self, data: bytes) -> None:
        """Pass bytes to the broker."""
        if self._up:
            self._up.send(data)

    def close(self) -> None:
        """Let go of the connection: it ends by itself once its bytes are with the broker."""
        up, self._up = self._up, None
        if up:
            up.finish()


class _Upstream(asyncio.Protocol):
    """One connection to the broker, kept until its bytes have arrived."""

    def __init__(self, pump: Pump) -> None:
        self._pump: Pump | None = pump  # None once it is to end
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()

    def begin(self) -> None:
        assert self._pump is not None
        self._task = asyncio.get_running_loop().create_task(self._connect())
        self._pump.keep(self._task)

    async def _connect(self) -> None:
        pump = self._pump
        assert pump is not None
        host, port = pump.broker
        try:
            connecting = asyncio.get_running_loop().create_connection(
                lambda: self, host, port, ssl=pump.tls and pump.tls()
            )
            await asyncio.wait_for(connecting, _CONNECT)
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            if self._pump:
                pump.note(f"no connection to {host}:{port}: {error or 'no answer'}")
                self._over()
            return
        if self._pump:
            pump.note(f"the board is connected to {host}:{port}")
            pump.talk(Conversation.opened)

    def send(self, data: bytes) -> None:
        if self._transport:
            self._transport.write(data)

    def flow(self, wanted: bool) -> None:
        """Read on, or does not: the kernel and then the broker keep what comes."""
        if self._transport and not self._transport.is_closing():
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def finish(self) -> None:
        """End the connection to the broker after the board ended it or went away.

        What the board sent before still goes out. Closing with unread bytes could discard
        it, so the broker's end is awaited for a while.
        """
        pump, self._pump = self._pump, None
        if not self._transport:
            if self._task:
                self._task.cancel()
        elif not self._transport.is_closing():
            assert pump is not None
            pump.note("the connection has ended")
            self.flow(True)
            if self._transport.can_write_eof():
                self._transport.write_eof()
                pump.keep(asyncio.get_running_loop().create_task(self._part()))
            else:
                self._transport.close()

    async def _part(self) -> None:
        assert self._transport is not None
        try:
            await asyncio.wait_for(self._lost.wait(), _FINISH)
        except asyncio.TimeoutError:
            self._transport.abort()

    def _over(self) -> None:
        if self._pump:
            self._pump.talk(Conversation.ended)

    # As a protocol of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if not self._pump:
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self._pump:
            self._pump.talk(Conversation.send, data)

    def eof_received(self) -> None:
        self._over()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()
        if error and self._pump:
            self._pump.note(f"the connection to {self._pump.broker[0]} ended: {error}")
        self._over()

    def pause_writing(self) -> None:
        if self._pump:
            self._pump.conversation.hold = True

    def resume_writing(self) -> None:
        if self._pump:
            self._pump.conversation.hold = False
            self._pump.talk(Conversation.tick)
