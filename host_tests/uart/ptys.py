"""A real interpreter at the end of a serial line made of two terminals, and a bridge at the other.

What passes between the two terminals passes through a relay, which may harm it.
"""

import asyncio
import contextlib
import os
import pty
import queue
import select
import subprocess
import sys
import tempfile
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from pathlib import Path

from conftest import interpreter_command, library
from flatmq_tools import broker, interpreter
from flatmq_tools.bridge import Pump

HERE = Path(__file__).parent
HEAP = "96k"
PATIENCE_MS = 40
UP, DOWN = "up", "down"
Harm = Callable[[bytes], bytes]


def _as_a_console(end: int) -> None:
    """Set up a terminal as terminals are, but without echo and without line buffering.

    Ctrl-C interrupts, Ctrl-S stops, "\\r" is "\\n" to who reads, "\\n" is "\\r\\n" from who
    writes.
    """
    tty.setraw(end)
    mode = termios.tcgetattr(end)
    mode[0] |= termios.ICRNL | termios.IXON
    mode[1] |= termios.OPOST | termios.ONLCR
    mode[3] |= termios.ISIG
    termios.tcsetattr(end, termios.TCSANOW, mode)


class Wire:
    """A line between a terminal for a board and one for a bridge, whose path is `port`.

    `seen` is all that has passed.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="flatmq-wire-")
        self.port = str(Path(self._folder.name, "board"))
        self._board, self.board_end = pty.openpty()
        _as_a_console(self.board_end)
        self._desk: tuple[int, int] | None = None
        self.harm: dict[str, Harm] = {UP: bytes, DOWN: bytes}
        self.seen = {UP: bytearray(), DOWN: bytearray()}
        self._wishes: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._wake, self._wake_up = os.pipe()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.plug()

    def type(self, data: bytes) -> None:
        """Have somebody type at the board's console."""
        os.write(self._board, data)

    def plug(self) -> None:
        """The port of the bridge's end appears."""
        self._do(self._plug)

    def unplug(self) -> None:
        """It disappears, with what was on its way; what the board sends goes nowhere."""
        self._do(self._unplug)

    def stop(self) -> None:
        self._do(self._unplug)
        self._wishes.put(None)
        os.write(self._wake_up, b"x")
        self._thread.join()
        for end in (self._board, self.board_end, self._wake, self._wake_up):
            os.close(end)
        self._folder.cleanup()

    def _do(self, wish: Callable[[], None]) -> None:
        done = threading.Event()
        self._wishes.put(lambda: (wish(), done.set())[0])
        os.write(self._wake_up, b"x")
        assert done.wait(30)

    def _plug(self) -> None:
        self._desk = pty.openpty()
        tty.setraw(self._desk[1])
        os.symlink(os.ttyname(self._desk[1]), self.port)

    def _unplug(self) -> None:
        if self._desk:
            os.unlink(self.port)
            for end in self._desk:
                os.close(end)
            self._desk = None

    def _run(self) -> None:
        while True:
            sources = [self._board, self._wake, *(self._desk[:1] if self._desk else ())]
            for source in select.select(sources, [], [])[0]:
                if source == self._wake:
                    os.read(self._wake, 1)
                    wish = self._wishes.get()
                    if wish is None:
                        return
                    wish()
                    break
                self._pass(source)

    def _pass(self, source: int) -> None:
        direction = UP if source == self._board else DOWN
        data = self.harm[direction](os.read(source, 4096))
        self.seen[direction] += data
        sink = self._board if direction == DOWN else self._desk and self._desk[0]
        while data and sink:
            # Not permanently: an end that is gone reads nothing more.
            if not select.select([], [sink], [], 0.5)[1]:
                break
            data = data[os.write(sink, data[:256]) :]


_WITH_CONSOLE = (
    "import fcntl, os, sys, termios; "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


class Board:
    """A MicroPython that runs a program of this folder at the end of a wire.

    What it prints on standard error is in `told` once it has ended.
    """

    def __init__(self, wire: Wire, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [
                # The terminal becomes the one that Ctrl-C comes from.
                *(sys.executable, "-c", _WITH_CONSOLE),
                *interpreter_command("micropython", HEAP),
                str(HERE / program),
                *arguments,
            ],
            stdin=wire.board_end,
            stdout=wire.board_end,
            stderr=subprocess.PIPE,
            env=interpreter.environment(library("micropython"), HERE, HERE.parent / "device"),
            start_new_session=True,
        )
        self.told = ""

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def reset(self) -> None:
        """It stops at once, as by its reset button."""
        self._process.kill()
        self._end(None)

    def wait(self, seconds: float) -> int:
        """Its exit status; subprocess.TimeoutExpired when it goes on."""
        return self._end(seconds)

    def _end(self, seconds: float | None) -> int:
        status = self._process.wait(seconds)
        if self._process.stderr and not self._process.stderr.closed:
            self.told += self._process.stderr.read().decode()
            self._process.stderr.close()
        return status


class Bridge:
    """A bridge in a thread of this process.

    `lines` is what it said and what the board printed, as ("bridge" or "board", text).
    """

    def __init__(self, port: str, target: broker.Broker, patience_ms: int = PATIENCE_MS) -> None:
        self.lines: list[tuple[str, str]] = []
        self._where = (port, target.host, target.port)
        self._patience = patience_ms / 1000
        self._began = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._began.wait(30)

    async def _run(self) -> None:
        port, host, number = self._where
        self.loop = asyncio.get_running_loop()
        self.pump = Pump(
            port,
            115200,
            host,
            number,
            lambda who, text: self.lines.append((who, text)),
            patience=self._patience,
        )
        self._task = asyncio.create_task(self.pump.run())
        self._began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def stop(self) -> None:
        """As Ctrl-C."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()

    def printed(self) -> list[str]:
        return [text for who, text in self.lines if who == "board"]


@contextlib.contextmanager
def bench(
    target: broker.Broker, program: str, *arguments: str
) -> Iterator[tuple[Wire, Board, Bridge]]:
    with contextlib.ExitStack() as stack:
        wire = Wire()
        stack.callback(wire.stop)
        bridge = Bridge(wire.port, target)
        stack.callback(bridge.stop)
        board = Board(wire, program, *arguments)
        stack.callback(board.reset)
        yield wire, board, bridge
