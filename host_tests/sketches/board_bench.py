"""A board on the desk: its sketch in a MicroPython with fake pins, and a line to it."""

from __future__ import annotations

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

from paho.mqtt import client as paho

from conftest import LIB, ROOT, interpreter_command
from flatmq_tools import boards, broker, bytecode

HERE = Path(__file__).parent
BOARDS = ROOT / "boards"
SHARED = BOARDS / "shared"
HEAP = "192k"  # of a 64-bit interpreter, with a sketch and its compiler
ANSWER = 30.0  # seconds that anything may take on a loaded machine

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
        """Switch it on, with `setup` for the bench."""
        self.told = queue.SimpleQueue()
        (self.folder / "setup").write_text(setup)
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


class Watcher:
    """A second client, which is subscribed to all of a device."""

    def __init__(self, host: str, port: int, device: str) -> None:
        self.device = device
        self.messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        ready = threading.Event()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._client.on_message = lambda _c, _d, message: self.messages.put(message)
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.connect(host, port)
        self._client.loop_start()
        self._client.subscribe(f"dev/{device}/#", 1)
        assert ready.wait(ANSWER)

    def next(self, topic: str) -> bytes:
        """The payload of the next message to a topic of the device."""
        deadline = time.monotonic() + ANSWER
        while True:
            try:
                message = self.messages.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"nothing at {topic}") from None
            if message.topic == f"dev/{self.device}/{topic}":
                return bytes(message.payload)

    def until(self, topic: str, wanted: bytes) -> None:
        """Wait for a payload."""
        deadline = time.monotonic() + ANSWER
        while self.next(topic) != wanted:
            assert time.monotonic() < deadline, f"never {wanted!r} at {topic}"

    def pack(self, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """Return the next pack for which `wanted` returns True."""
        deadline = time.monotonic() + ANSWER
        while True:
            pack = resolved(self.next("telemetry"))
            if wanted(pack):
                return pack
            assert time.monotonic() < deadline, pack

    def command(self, name: str, payload: bytes = b"", retain: bool = False) -> bytes:
        """Give a command, and return what is answered to it."""
        self._client.publish(f"dev/{self.device}/cmd/{name}", payload, 1, retain)
        deadline = time.monotonic() + ANSWER
        while True:
            answer = self.next("answer")
            assert time.monotonic() < deadline, answer
            if answer.startswith(name.encode() + b": "):
                return answer[len(name) + 2 :]

    def send(self, name: str, payload: bytes = b"", retain: bool = False) -> None:
        """Give a command, and do not wait for its answer."""
        done = self._client.publish(f"dev/{self.device}/cmd/{name}", payload, 1, retain)
        done.wait_for_publish(ANSWER)

    def retained(self, topic: str) -> bytes | None:
        """Return what a client that subscribes now receives on a topic of the device."""
        found: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        other = paho.Client(paho.CallbackAPIVersion.VERSION2)
        host, port = self._client.host, self._client.port
        probe = f"dev/{self.device}/probe"

        def take(_c: Any, _d: Any, message: paho.MQTTMessage) -> None:
            found.put(bytes(message.payload) if message.topic != probe else None)

        other.on_message = take
        other.on_subscribe = lambda *_: other.publish(probe, b"", 1)
        other.connect(host, port)
        other.loop_start()
        other.subscribe([(f"dev/{self.device}/{topic}", 1), (probe, 1)])
        try:
            return found.get(timeout=ANSWER)
        finally:
            other.disconnect()
            other.loop_stop()

    def close(self) -> None:
        """End it."""
        self._client.disconnect()
        self._client.loop_stop()


@contextlib.contextmanager
def switched_on(board: Board, setup: str) -> Iterator[Board]:
    """A board that runs for the time of the block."""
    board.boot(setup)
    try:
        yield board
    finally:
        board.kill()
