"""The demo: a sketch on a real MicroPython publishes, this process receives and counts.

A broker on loopback, the host sketch of boards/ in a 64 KB heap, and flatmq on CPython as the
second client. What the heap did is measured by demo_sketch.py, in the interpreter.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from flatmq import Client, MQTTError
from flatmq.message import Message

from . import broker, folders, interpreter
from .bytecode import SOURCES, compiled

HEAP_KB = 64
SHOWN = 10  # messages on the screen at a time
PATIENCE = 15.0  # seconds without anything new until the demo gives up
DRAIN = 5.0  # seconds that the last messages may be behind the sketch's end
SKETCH = folders.find("boards") / "host"


class DemoError(RuntimeError):
    """The demo cannot run; the text says what to do."""


@dataclass
class Run:
    """The state of the demo so far."""

    readings: int
    where: str  # the broker
    what: str  # the interpreter
    sensor: str = "…"
    heap: tuple[int, int, int, int] | None = None  # before, after, bytes allocated, publishes
    arrived: Counter[int] = field(default_factory=Counter)
    last: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=SHOWN))
    trouble: list[str] = field(default_factory=list)
    status: int | None = None  # of the sketch's process, once it has ended
    began: float = field(default_factory=time.monotonic)

    @property
    def missing(self) -> list[int]:
        """Sequence numbers that have not arrived."""
        return [n for n in range(1, self.readings + 1) if not self.arrived[n]]

    @property
    def repeated(self) -> int:
        """The messages that came more than once, as QoS 1 allows."""
        return sum(count - 1 for count in self.arrived.values())

    @property
    def ok(self) -> bool:
        """True if no message was lost and the sketch ended normally."""
        return not self.missing and self.status == 0

    def take(self, message: Message) -> str:
        """Count one message; return it as a line of text."""
        payload = message.payload
        self.last.append((time.monotonic() - self.began, message.topic.decode(), tidy(payload)))
        try:
            self.arrived[int(json.loads(payload)["n"])] += 1
        except (ValueError, KeyError, TypeError):
            self.trouble.append(f"not a reading: {payload!r}")
        return "{:6.2f} s  {}  {}".format(*self.last[-1])

    def told(self, line: str) -> None:
        """Take in one line that the sketch's process printed."""
        word, _, rest = line.partition(" ")
        if word == "@sensor":
            self.sensor = rest.replace(" ", " from ", 1)
        elif word == "@heap":
            before, after, allocated, publishes = map(int, rest.split())
            self.heap = (before, after, allocated, publishes)
        elif word != "@end":
            self.trouble.append(line)


def tidy(payload: bytes) -> str:
    """The payload as text, without the blanks that pad its numbers."""
    return payload.decode(errors="replace").replace(" ", "")


def results(run: Run) -> Table:
    """Return the result as a table."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_row("sent", f"{run.readings} messages at QoS 1")
    lost = f"{len(run.missing)}" + (f" {run.missing[:10]}" if run.missing else "")
    table.add_row("lost", lost)
    table.add_row("repeated", str(run.repeated))
    if run.heap is None:
        table.add_row("heap", "not measured: this interpreter does not count")
    else:
        before, after, allocated, publishes = run.heap
        table.add_row("heap before", f"{before:,} bytes in use")
        table.add_row("heap after", f"{after:,} bytes in use, {publishes} publishes later")
        table.add_row(
            "allocated per publish",
            f"{allocated / publishes:g} bytes, acknowledgement and waiting included",
        )
    for line in run.trouble:
        table.add_row("sketch", line)
    return table


def screen(run: Run) -> RenderableType:
    """The display while it runs."""
    table = Table(box=box.SIMPLE, expand=True)
    table.add_column("after", justify="right", width=9)
    table.add_column("topic", overflow="fold")
    table.add_column("payload", overflow="fold")
    for after, topic, payload in run.last:
        table.add_row(f"{after:.2f} s", topic, payload)
    for _ in range(SHOWN - len(run.last)):
        table.add_row("", "", "")
    head = f"{run.what}\nreads {run.sensor}\npublishes to {run.where}"
    done = run.readings - len(run.missing)
    bar = ProgressBar(total=run.readings, completed=done, width=40)
    return Panel(Group(head, table, bar), title="flatmq demo", width=78)


class Sketch:
    """The process that runs the sketch; its lines come through `lines`, None at the end."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.put(line.rstrip())
        self.lines.put(None)

    def stop(self) -> int:
        """End it where it has not ended; return its status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(0 if self.lines.empty() else DRAIN)
        self._process.kill()
        return self._process.wait()


@contextlib.contextmanager
def sketch(target: broker.Broker, device: str, readings: int) -> Iterator[tuple[Sketch, str]]:
    """The running sketch, and what runs it in words."""
    with tempfile.TemporaryDirectory(prefix="flatmq-demo-") as folder:
        command = interpreter.command(f"{HEAP_KB}k")
        if command is None:
            what = f"CPython {sys.version.split()[0]} ({interpreter.MISSING})"
            command, lib = [sys.executable], SOURCES.parent
        else:
            what, lib = f"MicroPython with a heap of {HEAP_KB} KB", compiled(Path(folder))
        script = str(Path(__file__).with_name("demo_sketch.py"))
        process = Sketch(
            [*command, script, target.host, str(target.port), device, str(readings)],
            interpreter.environment(lib, SKETCH),
        )
        try:
            yield process, what
        finally:
            process.stop()


def follow(run: Run, client: Client, process: Sketch, arrived: deque[str]) -> Iterator[list[str]]:
    """Turn until nothing more is to come; yield what has arrived since the last one."""
    patience = time.monotonic() + PATIENCE
    while True:
        before = run.arrived.total()
        client.poll(50)
        while not process.lines.empty():
            line = process.lines.get()
            if line is None:
                run.status = process.stop()
                patience = min(patience, time.monotonic() + DRAIN)
            else:
                run.told(line)
        if run.status is None and run.arrived.total() > before:
            patience = time.monotonic() + PATIENCE
        lines = list(arrived)
        arrived.clear()
        yield lines
        if run.status is not None and (not run.missing or run.status):
            return
        if time.monotonic() > patience:
            if run.status is None:
                run.trouble.append(f"nothing new for {PATIENCE:g} s: the sketch is stopped")
                run.status = process.stop() or 1
            return


def show(run: Run, client: Client, process: Sketch, arrived: deque[str], console: Console) -> None:
    """Show the messages as they arrive: in place on a terminal, else line by line."""
    turns = follow(run, client, process, arrived)
    if console.is_terminal:
        with Live(screen(run), console=console, refresh_per_second=20) as live:
            for _ in turns:
                live.update(screen(run))
        return
    console.print(f"{run.what}, publishing to {run.where}", soft_wrap=True)
    for lines in turns:
        for line in lines:
            console.print(line, soft_wrap=True, highlight=False)


def main(readings: int = 25, console: Console | None = None) -> int:
    """Run the demo; 0 when every message arrived, 1 when one was lost.

    $BROKER (host:port) names a broker that runs already. Raises DemoError or BrokerError when
    it cannot run.
    """
    console = console or Console()
    address = os.environ.get("BROKER")
    device = f"host-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(broker.external(address) if address else broker.embedded())
        client = Client(f"demo-{device}".encode(), target.host, target.port)
        run = Run(readings, f"the {target.kind} broker at {target.address}", "")
        arrived: deque[str] = deque()
        subscription = client.subscribe(
            f"sensors/{device}".encode(), lambda m: arrived.append(run.take(m)), qos=1
        )
        try:
            client.connect()
        except MQTTError as error:
            raise DemoError(
                f"{run.where} refuses the demo's connection: {error.detail}"
            ) from error
        deadline = time.monotonic() + PATIENCE
        while subscription.granted is None and time.monotonic() < deadline:
            client.poll(50)
        if subscription.granted not in (b"\x00", b"\x01"):
            raise DemoError(f"{run.where} refuses the demo's subscription")
        process, run.what = stack.enter_context(sketch(target, device, readings))
        show(run, client, process, arrived, console)
        client.disconnect()
    console.print(results(run))
    verdict = "every message arrived" if run.ok else "messages were lost, or the sketch failed"
    console.print(f"[bold]{verdict}[/]")
    return 0 if run.ok else 1
