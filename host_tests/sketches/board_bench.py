"""A board on the desk: its sketch in a MicroPython with fake pins, and a line to it."""

import contextlib
import functools
import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from conftest import LIB, ROOT, interpreter_command
from flatmq_tools import boards, broker, bytecode
from observer import Observer, retained
from sketches import bme280_registers

HERE = Path(__file__).parent
BOARDS = ROOT / "boards"
SHARED = BOARDS / "shared"
HEAP = "192k"  # of a 64-bit interpreter, with a sketch and its compiler
ANSWER = 30.0  # seconds that anything may take on a loaded machine

RAW = (415148, 519888, 30000)  # pressure, temperature: the datasheet's example; humidity
ROM = bytes.fromhex("28ff641e8216c3a1")
# 27.6 degrees in a Pico, 39 or 53.3 in an ESP32. A sketch waits a second for its sensors, which
# these do not need.
SETUP = "adc[4] = 14000; mcu_temperature = 39; import station; station.READY_MS = 30\n"
# A DS18B20 at -10.125 degrees, a DHT22 at -4.1 with 65.2 %, and a BME280.
ATTACHED = (
    f"one_wire[{ROM!r}] = bytes.fromhex('5eff4b467fff0210a1');"
    "dht = bytes((2, 0x8c, 0x80, 41, (2 + 0x8c + 0x80 + 41) & 255));"
    f"i2c[0x76] = bytearray({bme280_registers.registers(*RAW)!r})"
)

# Instead of the serial line, where standard input is that of the test.
_LINE = """
from flatmq.stream_tcp import TCP

def usb():
    return TCP({host!r}, {port})
"""


@functools.cache
def _library() -> tempfile.TemporaryDirectory[str]:
    """A folder with what is in a board's /lib, removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="flatmq-board-")
    bytecode.compiled(Path(folder.name), LIB / "flatmq")
    for source in SHARED.glob("*.py"):
        bytecode.compile_module(source, Path(folder.name, f"{source.stem}.mpy"), source.name)
    return folder


def library() -> Path:
    """The folder with the client and the shared modules as .mpy."""
    return Path(_library().name)


def resolved(payload: bytes) -> dict[str, Any]:
    """Return the content of a pack: "n" without the base name to (value, unit)."""
    pack = json.loads(payload, parse_float=Decimal)
    assert pack[0]["bn"].endswith("/")
    return {r["n"]: (r["v"], r.get("u")) for r in pack}


def settings(device: str, host: str, port: int, **of_device: Any) -> dict[str, Any]:
    """The settings of a board that reads every second."""
    return {
        "device": {"name": device, "interval": 1, **of_device},
        "wifi": {"ssid": "home", "password": "s3cret"},
        "broker": {"host": host, "port": port},
    }


def sketch(name: str) -> Path:
    """The main.py of a board's own sketch."""
    return BOARDS / boards.load(name).sketch / "main.py"


class Board:
    """A board whose file system is `folder`; `boot` may be called again when it has ended.
    `serial`: `boot` is not for it, as its line is needed by the sketch."""

    def __init__(
        self, name: str, folder: Path, settings: dict[str, Any], port: int, serial: bool = False
    ) -> None:
        self.name = name
        self.folder = folder
        self.first = SETUP
        self.port = port
        self.told: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.output: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text(json.dumps(settings))
        (folder / "main.py").write_text(sketch(name).read_text())
        lib = folder / "lib"
        lib.mkdir()
        for entry in library().rglob("*.mpy"):
            target = lib / entry.relative_to(library())
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(entry.read_bytes())
        if not serial:
            line = lib / "flatmq" / "stream_uart.mpy"
            line.unlink()
            line.with_suffix(".py").write_text(_LINE.format(host=broker.LOOPBACK, port=port))

    def boot(self, setup: str = "") -> None:
        """Switch it on, with `first` and `setup` for the bench."""
        self.told = queue.SimpleQueue()
        (self.folder / "setup").write_text(self.first + setup)
        self._process = subprocess.Popen(
            [
                *interpreter_command("micropython", HEAP),
                str(HERE / "run_board.py"),
                str(self.folder),
                str(HERE / "fakes"),
                self.name,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, args=(self._process, self.told), daemon=True).start()

    def _read(self, process: subprocess.Popen[str], told: queue.SimpleQueue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line)
            if line.startswith("@"):
                told.put(line[1:].strip())
        told.put(None)

    def do(self, line: str) -> None:
        """Have the bench execute a line of Python in a turn of the sketch's loop."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def next(self) -> str | None:
        """Return the next line of the bench; None when the sketch has ended."""
        try:
            return self.told.get(timeout=ANSWER)
        except queue.Empty:
            raise AssertionError("silence after:\n" + "".join(self.output)) from None

    def await_(self, start: str) -> str:
        """Return the next line that begins so."""
        while True:
            line = self.next()
            assert line is not None, f"ended before {start}:\n" + "".join(self.output)
            if line.startswith(start):
                return line

    def ask(self, expression: str) -> str:
        """Return the value of a Python expression on the bench."""
        self.do(f"tell('answer', {expression})")
        return self.await_("answer")[7:]

    def until(self, expression: str) -> None:
        """Wait until it is true on the bench."""
        deadline = time.monotonic() + ANSWER
        while self.ask(f"bool({expression})") != "True":
            assert time.monotonic() < deadline, f"never {expression}\n" + "".join(self.output)

    def kill(self) -> None:
        """Take its power away."""
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError, ValueError):
                    if pipe is self._process.stdin and pipe:
                        pipe.close()
            self._process = None


class Watcher(Observer):
    """A second client, which is subscribed to all of a device."""

    def __init__(self, host: str, port: int, device: str) -> None:
        super().__init__(host, port, f"dev/{device}/#")
        self.device = device
        self._where = host, port
        self._at = 0  # of `messages`, those before were looked at

    def next(self, topic: str, wanted: Callable[[bytes], bool] = lambda payload: True) -> bytes:
        """Return the next payload at a topic of the device for which `wanted` returns True."""
        found: list[bytes] = []

        def came() -> bool:
            while self._at < len(self.messages) and not found:
                message = self.messages[self._at]
                self._at += 1
                if message.topic == f"dev/{self.device}/{topic}" and wanted(message.payload):
                    found.append(message.payload)
            return bool(found)

        self.until(came)
        return found[0]

    def status(self, wanted: bytes) -> None:
        self.next("status", lambda payload: payload == wanted)

    def pack(self, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Return the next pack for which `wanted` returns True."""
        return resolved(self.next("telemetry", lambda payload: wanted(resolved(payload))))

    def command(self, name: str, payload: bytes = b"") -> bytes:
        """Give a command, and return what is answered to it."""
        self.order(name, payload)
        start = name.encode() + b": "
        return self.next("answer", lambda answer: answer.startswith(start)).removeprefix(start)

    def order(self, name: str, payload: bytes = b"", retain: bool = False) -> None:
        """Give a command, and do not wait for its answer."""
        self.publish(f"dev/{self.device}/cmd/{name}", payload, retain=retain)

    def retained(self, topic: str) -> bytes | None:
        """Return what a client that subscribes now receives on a topic of the device."""
        return retained(*self._where, f"dev/{self.device}/{topic}")


@contextlib.contextmanager
def switched_on(board: Board, setup: str = "") -> Iterator[Board]:
    """A board that runs for the time of the block."""
    board.boot(setup)
    try:
        yield board
    finally:
        board.kill()
