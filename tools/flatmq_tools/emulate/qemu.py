"""An ESP32 or ESP32-C3, by a QEMU that has one.

QEMU connects to three ports of this process: the board's UART, the frames of its radio (a length
of four bytes before each), and the monitor (QMP).
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import re
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from .. import boards
from ..errors import ToolError
from ..ports import LOOPBACK
from . import events
from .events import report
from .gateway import PatientRouter
from .network import Network
from .order import Order

_FLASH = "flash.bin"
_TICK = 0.25  # seconds between two questions whether QEMU still runs
_LOOK = 0.002  # seconds between two looks at whether the flash is being written
# What the boot loader in ROM prints after each reset.
_BOOTED = re.compile(r"\brst:0x[0-9a-f]+ \((\w+)\)")
_CRASHED = ("Guru Meditation Error", "abort() was called", "assert failed:")
_CAUSES = {"POWERON": "power", "WDT": "watchdog", "SW": "machine.reset()"}  # by a part of it


class Machine:
    """QEMU, and what its board is connected to."""

    def __init__(self, order: Order, folder: Path) -> None:
        self._order = order
        self._folder = folder
        self._router = PatientRouter(self, self._to_board, Network(order.broker, order.ports))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._console: asyncio.StreamWriter | None = None
        self._monitor: asyncio.StreamWriter | None = None
        self._air: asyncio.StreamWriter | None = None
        self._client: asyncio.StreamWriter | None = None  # of the serial line, such as mpremote
        self._typed = False
        self._process: asyncio.subprocess.Process | None = None
        self._rest = ""  # of a line that the board has not ended
        self._boots = 0
        self._cause = ""  # of the next reset, where it comes from outside
        self._crashed = False

    def schedule_threadsafe(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of the router, which runs in the same thread."""
        self._keep(asyncio.get_running_loop().create_task(work))

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self, done: asyncio.Event) -> None:
        """Run until `done`. Raises ToolError if QEMU ends by itself."""
        async with contextlib.AsyncExitStack() as stack:
            ports = []
            for handler, port in (
                (self._on_client, self._order.port),
                (self._on_console, 0),
                (self._on_monitor, 0),
                (self._on_air, 0),
            ):
                server = await asyncio.start_server(handler, LOOPBACK, port)
                stack.callback(server.close)
                ports.append(server.sockets[0].getsockname()[1])
            line, *own = ports
            report(serial=line)
            ended = asyncio.ensure_future(done.wait())
            while not done.is_set():
                self._process = process = await self._power_on(own)
                gone = asyncio.ensure_future(process.wait())
                while not (done.is_set() or gone.done()):
                    await asyncio.wait({ended, gone}, timeout=_TICK, return_when="FIRST_COMPLETED")
                    self._ask("query-status")
                if gone.done() and not done.is_set() and self._cause != "power":
                    raise ToolError(self._last_words(await gone))
                if not gone.done():
                    process.kill()
                    await gone

    async def _power_on(self, ports: list[int]) -> asyncio.subprocess.Process:
        order = self._order
        console, monitor, air = (f"{LOOPBACK}:{port}" for port in ports)
        chip = order.machine.partition("-")[0]
        with (self._folder / "errors.txt").open("wb") as errors:
            return await asyncio.create_subprocess_exec(
                order.qemu,
                *("-machine", order.machine, "-display", "none"),
                # The board's own clock counts instructions, so nothing on it times out where this
                # machine is busy. The radio of QEMU keeps to this machine's clock.
                *("-icount", "shift=3,align=off,sleep=on"),
                *("-drive", f"file={_FLASH},if=mtd,format=raw"),
                *("-serial", f"tcp:{console}", "-monitor", "none", "-qmp", f"tcp:{monitor}"),
                # The watchdogs of ESP-IDF run out where the machine is slower than a board.
                *("-global", f"driver=timer.{chip}.timg,property=wdt_disable,value=true"),
                "-nic",
                f"socket,model={chip}_wifi,connect={air}" if order.wifi else "none",
                cwd=self._folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def _last_words(self, status: int) -> str:
        lines = (self._folder / "errors.txt").read_text(errors="replace").strip().splitlines()
        return f"QEMU ended with status {status}" + (f": {lines[-1]}" if lines else "")

    # What happens to the board

    def _begin(self) -> None:
        """Start the board's clock, and plan what is ordered."""
        began = time.monotonic()
        events.clock = lambda: (time.monotonic() - began) * 1000
        order = self._order
        loop = asyncio.get_running_loop()
        for at in order.resets:
            loop.call_later(at, self._press)
        for at, seconds in order.losses:
            loop.call_later(at, self._lose, True)
            loop.call_later(at + seconds, self._lose, False)
        for at in order.cuts:
            loop.call_later(at, lambda: self._keep(loop.create_task(self._cut())))

    def _press(self) -> None:
        self._cause = "button"
        self._ask("system_reset")

    def _lose(self, lost: bool) -> None:
        self._router.lost = lost
        if lost:
            self._router.reset()
        report(wifi=not lost)

    async def _cut(self) -> None:
        """Kill QEMU as soon as the flash is written to; it is started again."""
        flash = self._folder / _FLASH
        before = flash.stat().st_mtime_ns
        while flash.stat().st_mtime_ns == before:
            await asyncio.sleep(_LOOK)
        self._cause = "power"
        assert self._process is not None
        self._process.kill()

    def _ask(self, command: str) -> None:
        if self._monitor is not None:
            self._monitor.write(b'{"execute": "%s"}\n' % command.encode())

    # Connections

    async def _on_monitor(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        is_first = self._monitor is None
        self._monitor = writer
        self._ask("qmp_capabilities")
        if is_first:
            self._begin()
        async for answer in reader:
            if b'"return"' in answer:
                report()

    async def _on_air(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._air = writer
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                self._router.handle_outbound_ethernet_frame(await reader.readexactly(size))

    def _to_board(self, frame: bytes) -> None:
        if self._air is not None and not self._router.lost:
            self._air.write(len(frame).to_bytes(4, "big") + frame)

    async def _on_console(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._console = writer
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := await reader.read(4096):
            if self._client is not None:
                self._client.write(data)
            self._hear(decoder.decode(data))

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._client is not None:  # a serial line has one
            writer.close()
            return
        self._client = writer
        with contextlib.suppress(OSError):
            while data := await reader.read(4096):
                if not self._typed:
                    self._typed = True
                    report(typed=True)
                if self._console is not None:
                    self._console.write(data)
                    await self._console.drain()
        self._client = None
        writer.close()

    def _hear(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._crashed |= any(words in line for words in _CRASHED)
            found = _BOOTED.search(line)
            if found:
                self._booted(found[1])
            report(log=line + "\n")

    def _booted(self, name: str) -> None:
        self._boots += 1
        cause = self._cause or next((_CAUSES[key] for key in _CAUSES if key in name), name)
        if self._crashed and not self._cause:
            cause = "crash"
        self._cause, self._crashed = "", False
        if self._boots > 1:
            report(reset=cause)


def content(board: boards.Board, image: bytes) -> bytes:
    """Return what is in the whole flash with an image."""
    flash = b"\xff" * board.flashing.offset + image
    return flash.ljust(board.flash.size, b"\xff")


async def run(order: Order, done: asyncio.Event) -> None:
    """Run the machine until `done`."""
    board = boards.load(order.board)
    with tempfile.TemporaryDirectory(prefix="flatmq-qemu-") as name:
        folder = Path(name)
        (folder / _FLASH).write_bytes(content(board, Path(order.image).read_bytes()))
        await Machine(order, folder).run(done)
