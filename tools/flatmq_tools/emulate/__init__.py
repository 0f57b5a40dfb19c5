"""`flatmq emulate`: run a sketch on an emulated board, next to a broker.

The image is that of `flatmq image`. The emulator runs in a child process (`machine.py`), which
reports what happens on the board (`events.py`); here that is shown and judged.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from flatmq import Client, MQTTError
from flatmq.message import Message
from flatmq.rare.wild import matches
from flatmq.wire import is_filter

from .. import board_tls, boards, broker, contents, desk_client, image, interpreter, settings
from ..bridge import readable
from ..errors import ToolError
from ..ota import package
from ..plain import PlainConsole
from ..ports import LOOPBACK
from ..trust import Trust
from . import archive, network, qemu_program
from .bridged import Bridge
from .order import Order

CHIPS = ("rp2040", *qemu_program.PROGRAMS)  # those that are emulated
MACHINE = [sys.executable, "-m", "flatmq_tools.emulate.machine"]
LIMIT = 60.0  # seconds of the board's clock in which a message is to come
QEMU_LIMIT = 180.0  # the same, where that is the clock of this machine
SILENCE = 120.0  # seconds without a word from the emulator until it is given up
_HOLD = b'__import__("time").sleep_ms(150)'  # until there is USB, which keeps what is printed
_LAST = 1.0  # seconds that a message may be behind the program's end, and for the emulator's end
_STEP = 50  # ms of a turn
_RX_SIZE = 64 * 1024  # bytes of a packet; a board's messages are smaller
_REPL = 'Type "help()" for more information.'  # MicroPython: after a program has ended
_ENDS = {"watchdog": "its watchdog ran out", "crash": "MicroPython crashed"}  # resets that are
_LINK = '__import__("flatmq.stream_uart").stream_uart.usb()'
_TRACEBACK = re.compile(r'^  File ".*\n(?:[ \t].*\n)*(.*)', re.MULTILINE)


@dataclass
class Run:
    """The state of the board and its program."""

    until: tuple[bytes, bytes | None] | None
    ms: float = 0.0  # the board's clock
    seen: bool = False  # the message has come
    is_typed: bool = False  # somebody is on the serial line, so a prompt is not the program's end
    ended: str | None = None  # why the program ended; "" for a normal end
    text: str = field(default="", repr=False)  # printed since the last reset
    shown: int = 0  # characters of it that are on the screen

    def hear(self, topic: bytes, payload: bytes) -> None:
        """Take in a message that the broker has passed on."""
        if self.until and matches(self.until[0], bytearray(topic), 0, len(topic)):
            self.seen |= self.until[1] in (None, payload)

    def take(self, event: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Take in an event; yield the lines to show, and who says each."""
        self.ms = max(self.ms, event.get("ms", 0.0))
        if "serial" in event:
            yield "serial", f"mpremote connect socket://127.0.0.1:{event['serial']}"
        if "bridge" in event:
            yield "bridge", event["bridge"]
        self.is_typed |= event.get("typed", False)
        if "log" in event:
            self.text += event["log"].replace("\r\n", "\n")
            yield from self._lines()
            self._judge()
        if "wifi" in event:
            yield "radio", "Wi-Fi is back" if event["wifi"] else "Wi-Fi is lost"
        if "reset" in event:
            yield from self._lines(whole=True)
            self.text, self.shown = "", 0
            yield "board", f"reset by {event['reset']}"
            self.ended = _ENDS.get(event["reset"], self.ended)

    def _lines(self, whole: bool = False) -> Iterator[tuple[str, str]]:
        end = len(self.text) if whole else self.text.rfind("\n") + 1
        if end > self.shown:
            for line in self.text[self.shown : end].splitlines():
                yield "board", line
            self.shown = end

    def _judge(self) -> None:
        if self.is_typed or _REPL not in self.text:
            return
        errors = _TRACEBACK.findall(self.text)
        self.ended = (errors[-1] or "an error") if errors else ""


class Machine:
    """The child process; `events` has what it reports, None at its end.

    If it is `bridged`, a Bridge gets the serial line, and reports what the board prints.
    """

    def __init__(self, order: Order, folder: Path, *, bridged: bool = False) -> None:
        self.events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._errors = folder / "errors.txt"
        here = Path(__file__).parents[2]  # also from a checkout that is not installed
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*MACHINE, order.text()],
                env=interpreter.environment(here),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for this process
            )
        self._serial: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._bridged = bridged
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if self._bridged:
                    event = self._apart(event)
                self.events.put(event)
        self._serial.put(None)
        self.events.put(None)

    def _apart(self, event: dict[str, Any]) -> dict[str, Any]:
        """The event without what goes over the serial line, which is the bridge's to report."""
        if "serial" in event:
            self._serial.put(event["serial"])
        return {key: event[key] for key in event if key not in ("serial", "log", "typed")}

    def bridge(self, broker: tuple[str, int]) -> Bridge:
        """Start a bridge from the board's serial line to the broker.

        Raises ToolError if the emulator has ended.
        """
        port = self._serial.get()
        if port is None:
            raise self.died()

        def say(who: str, text: str) -> None:
            self.events.put({"log": text + "\n"} if who == "board" else {"bridge": text})

        return Bridge(port, broker, say)

    def died(self) -> ToolError:
        """Return the error of a child that has ended.

        Raises ModuleNotFoundError if the emulator is not installed.
        """
        status = self._process.wait()
        lines = self._errors.read_text(errors="replace").strip().splitlines() or [""]
        if lines[-1].endswith("No module named 'rp2040py'"):
            raise ModuleNotFoundError(lines[-1], name="rp2040py")
        why = lines[-1] and f": {lines[-1]}"
        return ToolError(f"the emulator ended with status {status}{why}")

    def stop(self) -> None:
        """End it; kill it if it does not end by itself."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST)
        with contextlib.suppress(AttributeError, ProcessLookupError):  # Windows has no groups
            os.killpg(self._process.pid, signal.SIGKILL)  # with its QEMU
        self._process.kill()
        self._process.wait()
        self._reader.join(_LAST)
        if not self._reader.is_alive():
            self._process.stdout.close()


def build(
    board: boards.Board,
    firmware: Path,
    sketch: str | None,
    overrides: tuple[str, ...],
    wifi: bool,
    slots: package.Slots | None = None,
) -> tuple[image.Made, int]:
    """Return the image for the emulated network, and the port of its broker in the settings.

    Without `wifi`, a sketch for a board that has it is changed to the serial line.
    """
    chosen = package.settled(settings.load(overrides), slots)
    ssid = network.SSIDS[board.port]
    chosen["wifi"] = {**chosen.get("wifi", {}), "ssid": ssid, "password": ""}
    far = chosen["broker"] = {**chosen.get("broker", {})}
    far["host"] = far.get("host") or network.GATEWAY
    ready, keys, _ = board_tls.prepare_for(board, chosen)
    files = contents.contents(contents.find_sketch(sketch or board.sketch), ready) | keys
    files = package.slotted(files, board.name, slots)
    if board.port == "rp2":
        files["/main.py"] = held(files["/main.py"])
    if board.network == "wifi" and not wifi:
        files["/main.py"] = on_serial_line(files["/main.py"])
    board = image.fitted(board, firmware)
    if board.port == "esp32" and not slots:
        made = archive.make(board, files, firmware)
    else:
        if board.port == "esp32":
            files = archive.with_larger_reads(files)
        made = image.make(board, files, firmware_file=firmware)
    return made, int(far.get("port", 1883))


def held(source: bytes) -> bytes:
    """Return a program that waits for USB before its first statement.

    Its lines keep their numbers, except where that is a compound statement right behind another.
    """
    lines = source.split(b"\n")
    last = 0
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            at = node.lineno - 1
            if not hasattr(node, "body"):
                lines[at] = _HOLD + b"; " + lines[at]
            elif at > last:  # instead of a comment or an empty line
                lines[at - 1] = _HOLD
            else:
                lines.insert(at, _HOLD)
            break
        last = node.end_lineno or node.lineno
    return b"\n".join(lines)


def on_serial_line(source: bytes) -> bytes:
    """Return a program whose calls with a `wifi`, as that of a Station, have a serial `link`."""
    lines = source.split(b"\n")
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for word in (keyword for call in calls for keyword in call.keywords if keyword.arg == "wifi"):
        first, last = word.lineno - 1, (word.end_lineno or word.lineno) - 1
        rest = lines[last][word.end_col_offset :]
        lines[first] = lines[first][: word.col_offset] + b"link=" + _LINK.encode() + rest
        lines[first + 1 : last + 1] = [b""] * (last - first)
    return b"\n".join(lines)


def main(
    name: str,
    firmware: Path | None,
    sketch: str | None,
    overrides: tuple[str, ...],
    *,
    qemu: str | None = None,
    address: str | None = None,
    until: str | None = None,
    limit: float | None = None,
    slots: package.Slots | None = None,
    user: str | None = None,
    trust: Trust | None = None,
    **order: Any,
) -> int:
    """Run the sketch until what `until` and `limit` say, or Ctrl-C; return the exit status.

    `address` is that of a broker; None starts one. `until` is TOPIC or TOPIC=PAYLOAD. `limit` is
    in seconds of the board's clock. `qemu` is a program, needed for an ESP32 where the PATH has
    none. `slots`: for updates over MQTT. `user` and `trust` are for the connection that waits for
    the message. `order` has the port, resets, losses and cuts of an Order.
    """
    console = PlainConsole()
    board = boards.load(name)
    if board.chip not in CHIPS:
        known = [each for each in boards.names() if boards.load(each).chip in CHIPS]
        raise ToolError(f"{name} cannot be emulated, only {', '.join(known)}")
    wanted = _wanted(until)
    if firmware is None:
        raise ToolError(
            f"no firmware for {name}: download {board.download} from micropython.org/download/"
            f"{board.board} and name it with --firmware"
        )
    if order["port"]:
        try:
            socket.create_server((LOOPBACK, order["port"])).close()
        except OSError as error:
            raise ToolError(f"--port {order['port']}: {error.strerror}") from error
    program = qemu_program.find(board, qemu)
    wifi = program.wifi
    without_wifi = f"{program.path or board.title} has no Wi-Fi"
    if order["losses"] and not wifi:
        raise ToolError(f"--wifi-loss: {without_wifi}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flatmq-emulate-")))
        with console.status(f"making an image for {board.title} ..."):
            made, far = build(board, firmware, sketch, overrides, wifi, slots)
        file = folder / f"image{made.suffix}"
        file.write_bytes(made.image)
        own = None if address else stack.enter_context(broker.embedded())
        near = own or broker.external(address or "", trust is not None)
        run = Run(wanted)
        client = None
        if own or wanted:
            client = desk_client.Desk(near, user, trust).client("emulate", _RX_SIZE)
            topics = b"#" if own or not wanted else wanted[0]
            _follow(client, topics, run, console if own else None)
            stack.callback(_leave, client)
        said = [
            f"MicroPython {made.version} on an emulated {board.title}, with the {near.kind} "
            f"broker at {near.address}; Ctrl-C ends it"
        ]
        if not wifi:
            said.append(
                f"{without_wifi}, so the sketch talks over the serial line, through flatmq bridge"
            )
        for line in said:
            console.print(line, style="dim", soft_wrap=True)
        whole = Order(
            board=name,
            image=str(file),
            broker=(near.host, near.port),
            ports=(far,),
            wifi=wifi,
            qemu=program.path,
            machine=program.machine,
            **order,
        )
        machine = Machine(whole, folder, bridged=not wifi)
        stack.callback(machine.stop)
        if not wifi:
            stack.callback(machine.bridge((near.host, near.port)).stop)
        began = time.monotonic()
        if until is not None and limit is None:
            limit = QEMU_LIMIT if program.path else LIMIT
        try:
            _watch(run, machine, client, limit, console)
        except KeyboardInterrupt:
            console.print()
        text, status = _verdict(run, until)
        spent = f"{run.ms / 1000:.1f} s of the board's time in {time.monotonic() - began:.1f} s"
        console.print(f"{text} ({spent})", style="bold", soft_wrap=True)
        return status


def _wanted(until: str | None) -> tuple[bytes, bytes | None] | None:
    """The filter and the payload of TOPIC or TOPIC=PAYLOAD. Raises ToolError."""
    if until is None:
        return None
    topic, sign, payload = (part.encode() for part in until.partition("="))
    if not is_filter(topic, 0, len(topic)):
        raise ToolError(f"--until {until}: must be TOPIC or TOPIC=PAYLOAD, with a valid topic")
    return topic, payload if sign else None


def _follow(client: Client, topics: bytes, run: Run, console: Console | None) -> None:
    """Subscribe; show what arrives, where there is a console. Raises ToolError."""

    def take(topic: str, message: Message) -> None:
        payload = message.payload
        if console:
            _show(console, run, "broker", f"{topic}  {payload.decode(errors='replace')}")
        if not message.retain:
            run.hear(message.topic, payload)

    desk_client.follow(client, [topics.decode()], take)


def _leave(client: Client) -> None:
    with contextlib.suppress(MQTTError):
        client.disconnect()


def _show(console: Console, run: Run, who: str, text: str) -> None:
    line = Text(f"{run.ms / 1000:8.2f} s {who:>6} | ", style="dim")
    line.append(readable(text), style="not dim")
    console.print(line, soft_wrap=True)


def _watch(
    run: Run, machine: Machine, client: Client | None, limit: float | None, console: Console
) -> None:
    """Show what happens until the message was seen, the program or the time is over."""
    heard = time.monotonic()
    last: float | None = None  # until when a message of a program that has ended may come
    while not run.seen:
        if client:
            client.poll(_STEP)
        else:
            time.sleep(_STEP / 1000)
        while not machine.events.empty():
            event = machine.events.get()
            if event is None:
                raise machine.died()
            heard = time.monotonic()
            for who, text in run.take(event):
                _show(console, run, who, text)
        if time.monotonic() > heard + SILENCE:
            raise ToolError(f"the emulator has not answered for {SILENCE:g} s")
        if run.ended is not None and last is None:
            last = time.monotonic() + (_LAST if run.until else 0)
        if last is not None and time.monotonic() >= last:
            return
        if limit is not None and run.ms >= limit * 1000:
            return


def _verdict(run: Run, until: str | None) -> tuple[str, int]:
    """Return the last line and the exit status."""
    if run.seen:
        return f"seen: {until}", 0
    if run.ended:
        return f"the program failed: {run.ended}", 1
    if until is not None:
        return f"not seen: {until}", 1
    return "the program ended" if run.ended is not None else "the program did not fail", 0
