"""The interpreter's work alone, over a link in memory: on 64 and 32 bits, and on a board."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from flatmq_rigs import webassembly
from flatmq_rigs.bench.peers import PeerError, umqtt_simple
from flatmq_rigs.results import number, table
from flatmq_tools import interpreter
from flatmq_tools.bytecode import compile_module, compiled

SECTION = "work"  # of the document
ROUNDS = 15
# The clients, by the names that device/work.py has for them.
FLATMQ, UMQTT, FIVE, WEBSOCKET = "flatmq", "umqtt.simple", "mqtt5", "websocket"
# Two of them: the second is the measure of the first. And the head of the column.
RATIOS = {
    (FLATMQ, UMQTT): "flatmq / umqtt.simple",
    (FIVE, FLATMQ): "MQTT 5 / 3.1.1",
    (WEBSOCKET, FLATMQ): "WebSocket / TCP",
}
BITS = ("64-bit", "32-bit")
BOARD = "Pico W, emulated"
# Operation of device/work.py -> what it is, as the rows of the table.
OPERATIONS = {
    "publish": "publish QoS 0, `flush` after each",
    "publish_burst": "publish QoS 0 in bursts of 8, each",
    "publish_topics": "publish QoS 0, two topics in turn",
    "publish_properties": "publish QoS 0, in MQTT 5 with properties",
    "trip": "QoS 1 round trip, one in flight",
    "trip_burst": "QoS 1 round trip, eight in flight, each",
    "receive": "receive QoS 0, one at a time",
    "receive_bytes": "… the payload taken as bytes",
    "receive_burst": "receive QoS 0 in bursts of 8, each",
    "receive_tagged": "receive QoS 0, in MQTT 5 with a subscription identifier",
    "receive_tagged_burst": "… in bursts of 8, each",
    "receive1": "receive QoS 1, and PUBACK",
    "receive1_tagged": "… in MQTT 5 with a subscription identifier",
    "idle": "poll with nothing to do",
    "ping": "PINGREQ and PINGRESP",
    "mix_one": "receive in bursts: one topic",
    "mix_plus": "… two topics, one subscription with `+`",
    "mix_eight": "… eight topics in turn, four subscriptions",
    "mix_random": "… in random order",
}
_DEVICE = Path(__file__).parent / "device"
_MODULES = ("memory", "packets", "work")
_HEAP_KB = 8192
_ROUND = "work.measure_round(clients, 256)"  # messages of each operation, at least
# The emulated clock does not depend on this machine. The first round also loads modules.
_SKETCH = """\
import gc, work
clients = [work.Flatmq(), work.Umqtt()]
work.measure_heap(clients)
for i in range(3):
    gc.collect()
    work.measure_round(clients, 48)
    print("@round", i)
"""
# umqtt.simple, whose sockets are replaced before it is loaded.
_PACKAGE = """\
import sys
import umqtt_simple as simple
sys.modules["umqtt.simple"] = simple
"""


@dataclass
class Work:
    """Microseconds per message by bits, client and operation, one value per round; heap bytes."""

    rounds: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    heap: dict[tuple[str, str, str], float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what is missing, and why

    def add(self, bits: str, lines: list[str]) -> None:
        """Take the lines that device/work.py prints."""
        for line in lines:
            mark, client, operation, value = line.split()
            if mark == "@us":
                self.rounds.setdefault((bits, client, operation), []).append(float(value))
            elif mark == "@heap":
                self.heap[bits, client, operation] = float(value)

    def median(self, bits: str, client: str, operation: str) -> float | None:
        values = self.rounds.get((bits, client, operation))
        return statistics.median(values) if values else None

    def ratio(self, bits: str, client: str, other: str, operation: str) -> float | None:
        value, measure = (self.median(bits, each, operation) for each in (client, other))
        return value / measure if value is not None and measure else None

    def worst(self, bits: str, client: str, other: str) -> float | None:
        """Return the largest ratio of two clients of all operations."""
        ratios = [self.ratio(bits, client, other, name) for name in OPERATIONS]
        return max((ratio for ratio in ratios if ratio is not None), default=None)

    def rows(self, bits: str) -> list[list[str]]:
        rows = []
        for name, text in OPERATIONS.items():
            row = [text]
            for client in (FLATMQ, UMQTT, FIVE, WEBSOCKET):
                row.append(number(self.median(bits, client, name)))
                row.append(number(self.heap.get((bits, client, name))))
            rows.append([*row, *(number(self.ratio(bits, *pair, name)) for pair in RATIOS)])
        return rows

    def markdown(self) -> str:
        head = ["µs per message", FLATMQ, "B", UMQTT, "B", "MQTT 5", "B", "WebSocket", "B"]
        parts = [
            "## The interpreter's work alone",
            "`make bench`: over a link in memory, whose calls take next to no time. On a board "
            "they do: 204 µs for a write and 30 µs for a read on a Pico W, and umqtt.simple makes "
            "several per message. B: bytes of heap that a message leaves behind. On 64 bits, "
            "MicroPython's module `websocket` masks what is sent. 32-bit is MicroPython under "
            "node, where each call of a function costs more than on a board.",
        ]
        for bits in (*BITS, BOARD):
            if any(key[0] == bits for key in self.rounds):
                parts += [f"### {bits}", table([*head, *RATIOS.values()], self.rows(bits))]
        return "\n\n".join([*parts, *self.notes])


def on_board(work: Work, firmware: str, build: Path) -> None:
    """Measure on an emulated Pico W with a `firmware`. Raises PeerError or InterpreterError."""
    with tempfile.TemporaryDirectory(prefix="flatmq-work-") as name:
        folder = Path(name)
        for module in _MODULES:
            shutil.copy(_DEVICE / f"{module}.py", folder)
        shutil.copy(umqtt_simple(build), folder / "umqtt_simple.py")
        (folder / "umqtt.py").write_text(_PACKAGE, encoding="utf-8")
        (folder / "main.py").write_text(_SKETCH, encoding="utf-8")
        command = [sys.executable, "-m", "flatmq_tools.cli", "emulate", "pico_w", name]
        done = subprocess.run(
            [*command, "--firmware", firmware],
            env={**os.environ, "COLUMNS": "200"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise interpreter.InterpreterError(done.stdout + done.stderr)
    lines = [line.partition("| ")[2] for line in done.stdout.splitlines() if "| @" in line]
    first = lines.index("@round 0")
    heap = [line for line in lines[:first] if line.startswith("@heap")]
    work.add(BOARD, heap + [line for line in lines[first:] if line.startswith("@us")])


def measure(build: Path, rounds: int = ROUNDS) -> Work:
    """Measure on each interpreter that is here. Raises InterpreterError if that fails."""
    work = Work()
    clients = ["Flatmq", "Flatmq5", "Masked"]
    with tempfile.TemporaryDirectory(prefix="flatmq-work-") as name:
        folder = compiled(Path(name))
        try:
            source = umqtt_simple(build)
        except PeerError as error:
            work.notes.append(f"{UMQTT}: {error}")
        else:
            compile_module(source, folder / "umqtt" / "simple.mpy", "umqtt/simple.py")
            clients.append("Umqtt")
        for module in _MODULES:
            compile_module(_DEVICE / f"{module}.py", folder / f"{module}.mpy", f"{module}.py")
        made = ", ".join(f"work.{each}()" for each in clients)
        begin = [f"import work; clients = [{made}]", "work.measure_heap(clients)"]
        script = folder / "main.py"
        script.write_text("\n".join([*begin, *[_ROUND] * rounds]), encoding="utf-8")
        work.add(BITS[0], interpreter.run(f"{_HEAP_KB}k", script, path=(folder,)))
        if webassembly.find() is None:
            work.notes.append(f"{BITS[1]}: {webassembly.MISSING}")
            return work
        parts = ["import sys; sys.path[:] = ['/library', '.frozen']", *begin]
        parts += [_ROUND, webassembly.COLLECT] * rounds
        lines = webassembly.run(parts, {"/library": folder}, _HEAP_KB, timeout=600)
        work.add(BITS[1], lines)
    return work
