"""The demo: a sketch on a real MicroPython publishes, this process receives and counts.

A broker on loopback, the host sketch of boards/ in a 64 KB heap, and flatmq on CPython as the
second client. What the sketch sent, and what the heap did, is reported by demo_sketch.py, in the
interpreter; so the demo shows a changed sketch, too.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.table import Table

from flatmq import Client
from flatmq.message import Message

from . import broker, folders, interpreter
from .bytecode import SOURCES, compiled
from .desk_client import Desk, connect
from .plain import PlainConsole

HEAP_KB = 64
RX_SIZE = 64 * 1024  # bytes of a packet; a board's messages are smaller
PATIENCE = 15.0  # seconds without anything new until the demo gives up
DRAIN = 5.0  # seconds that the last messages may be behind the sketch's end
SKETCH = folders.find("boards") / "host"


@dataclass
class Run:
    """The state of the demo so far."""

    every: float = 0.0  # seconds between two of them
    heap: tuple[int, int, int, int] | None = None  # before, after, bytes allocated, publishes
    sent: list[int] = field(default_factory=list)  # a checksum of each message, in order
    levels: Counter[int] = field(default_factory=Counter)  # messages sent, by QoS
    arrived: Counter[int] = field(default_factory=Counter)  # how often, by checksum
    trouble: list[str] = field(default_factory=list)
    stopped: bool = False  # by Ctrl-C
    status: int | None = None  # of the sketch's process, once it has ended
    began: float = field(default_factory=time.monotonic)

    @property
    def lost(self) -> list[int]:
        """Positions, from 1, of the sent messages that have not arrived."""
        left = self.arrived.copy()
        lost = []
        for number, checksum in enumerate(self.sent, 1):
            if left[checksum]:
                left[checksum] -= 1
            else:
                lost.append(number)
        return lost

    @property
    def repeated(self) -> int:
        """The messages that came more often than they were sent, as QoS 1 allows."""
        sent = Counter(self.sent)  # without the last one, if Ctrl-C has cut its report
        return sum(max(0, n - sent[each]) for each, n in self.arrived.items() if sent[each])

    @property
    def ok(self) -> bool:
        """True if messages arrived, none was lost, and the sketch ended normally."""
        return bool(self.arrived) and not self.lost and self.status == 0

    @property
    def counted(self) -> bool:
        """False if the sketch sent messages in another way than with `Client.publish`.

        One that failed may have sent nothing: what arrived is its will.
        """
        return bool(self.sent) or not self.arrived or bool(self.status)

    @property
    def hint(self) -> str:
        """Advice on the exception with which the sketch ended, or ""."""
        last = self.trouble[-1] if self.trouble else ""
        if last.startswith("MQTTError") and not self.sent:
            return "the demo replaces HOST and PORT: connect to these"
        if last.startswith("MemoryError"):
            return f"the heap of {HEAP_KB} KB is full; see docs/troubleshooting.md"
        return ""

    def take(self, message: Message) -> str:
        """Count one message; return it as a line of text."""
        topic, payload = message.topic, message.payload
        self.arrived[zlib.crc32(payload, zlib.crc32(topic))] += 1
        return f"{time.monotonic() - self.began:6.2f} s  {topic.decode()}  {tidy(payload)}"

    def read(self, line: str) -> None:
        """Take in one line that the sketch's process printed."""
        word, _, rest = line.partition(" ")
        if word == "@sent":
            qos, checksum = map(int, rest.split())
            self.levels[qos] += 1
            self.sent.append(checksum)
        elif word == "@every":
            self.every = int(rest) / 1000
        elif word == "@heap":
            before, after, allocated, publishes = map(int, rest.split())
            self.heap = (before, after, allocated, publishes)
        else:
            self.trouble.append(line)


def tidy(payload: bytes) -> str:
    """The payload as text; without the blanks that pad the numbers of a JSON object."""
    text = payload.decode(errors="replace")
    return re.sub(r'":\s+', '":', text) if text.startswith("{") else text


def results(run: Run) -> Table:
    """Return the result as a table."""
    table = Table(box=box.SIMPLE, show_header=False)
    lost = run.lost
    if run.counted:
        sent = ", ".join(
            f"{n} message{'s' * (n > 1)} at QoS {qos}" for qos, n in sorted(run.levels.items())
        )
        table.add_row("sent", sent or "nothing")
        # Ctrl-C may come between the sketch's call and the network.
        name = "under way" if run.stopped else "lost"
        table.add_row(name, f"{len(lost)}" + (f" {lost[:10]}" if lost else ""))
        table.add_row("repeated", str(run.repeated))
    else:
        table.add_row("sent", "not counted: the sketch does not use Client.publish of MQTT 3.1.1")
        table.add_row("arrived", str(run.arrived.total()))
    if run.heap is None:
        few = len(run.sent) < 3
        why = "it takes three counted messages" if few else "this interpreter does not count"
        table.add_row("heap", f"not measured: {why}")
    else:
        before, after, allocated, publishes = run.heap
        table.add_row("heap before", f"{before:,} bytes in use")
        table.add_row(
            "heap after",
            f"{after:,} bytes in use, {publishes} publish{'es' * (publishes > 1)} later",
        )
        table.add_row(
            "allocated per publish",
            f"{allocated / publishes:g} bytes, acknowledgement and waiting included",
        )
    for line in run.trouble:
        table.add_row("sketch", line)
    if run.hint:
        table.add_row("hint", run.hint)
    return table


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
def sketch(
    target: broker.Broker, device: str | None, readings: int | None
) -> Iterator[tuple[Sketch, str]]:
    """The running sketch, and what runs it in words.

    `device` and `readings` replace those of the sketch, except None.
    """
    with tempfile.TemporaryDirectory(prefix="flatmq-demo-") as folder:
        command = interpreter.command(f"{HEAP_KB}k")
        if command is None:
            what = f"CPython {sys.version.split()[0]} ({interpreter.MISSING})"
            command, lib = [sys.executable], SOURCES.parent
        else:
            what, lib = f"MicroPython with a heap of {HEAP_KB} KB", compiled(Path(folder))
        script = str(Path(__file__).with_name("demo_sketch.py"))
        settings = (target.host, target.port, device or "-", readings or "-")
        process = Sketch(
            [*command, script, *map(str, settings)], interpreter.environment(lib, SKETCH)
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
                run.read(line)
        if run.status is None and run.arrived.total() > before:
            patience = time.monotonic() + PATIENCE + run.every
        lines = list(arrived)
        arrived.clear()
        yield lines
        if run.status is not None and (not run.lost or run.status):
            return
        if time.monotonic() > patience:
            if run.status is None:
                run.trouble.append(
                    f"nothing new for {PATIENCE + run.every:g} s: the sketch is stopped"
                )
                run.status = process.stop() or 1
            return


def finish(run: Run, client: Client, process: Sketch) -> None:
    """Take in what the sketch sent before Ctrl-C, which has ended it too."""
    run.stopped = True
    ended = False
    end = time.monotonic() + DRAIN
    while time.monotonic() < end and (run.lost or not ended):
        client.poll(50)
        while not process.lines.empty():
            line = process.lines.get()
            ended = line is None
            if line and line.startswith("@"):
                with contextlib.suppress(ValueError):  # the line was interrupted
                    run.read(line)
    run.status = process.stop()


def main(readings: int | None = None) -> int:
    """Run the demo; 0 when every message arrived or Ctrl-C ended it, 1 when one was lost.

    `readings` replaces the number in the sketch. $BROKER (host:port) names a broker that runs
    already. Its other clients are left alone: the sketch's device gets a random name, and the
    demo receives only the topics that have this name as their second level. Raises ToolError or
    BrokerError when it cannot run.
    """
    console = PlainConsole()
    address = os.environ.get("BROKER")
    name = f"host-{secrets.token_hex(4)}"
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(broker.external(address) if address else broker.embedded())
        client = Desk(target).client(f"demo-{name}", RX_SIZE)
        run = Run()
        arrived: deque[str] = deque()
        subscription = client.subscribe(
            f"+/{name}/#" if address else "#", lambda m: arrived.append(run.take(m)), qos=2
        )
        connect(client, subscription)
        process, what = stack.enter_context(sketch(target, name if address else None, readings))
        console.print(
            f"{what}, publishing to the {target.kind} broker at {target.address}", soft_wrap=True
        )
        try:
            for lines in follow(run, client, process, arrived):
                for line in lines:
                    print(line, flush=True)  # what rich prints, Ctrl-C may repeat
        except KeyboardInterrupt:
            finish(run, client, process)
        client.disconnect()
    console.print(results(run))
    if run.stopped:
        verdict = "stopped"
    elif run.ok:
        verdict = "every message arrived" if run.counted else "messages arrived"
    else:
        verdict = "messages were lost, or the sketch failed"
    console.print(verdict, style="bold")
    return 0 if run.ok or run.stopped else 1
