"""The interpreter's work alone, measured over a link in memory on 64 and on 32 bits."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flatmq_rigs import webassembly
from flatmq_rigs.bench.clients import CLIENTS
from flatmq_rigs.bench.peers import fetch
from flatmq_rigs.results import number, table
from flatmq_tools import interpreter
from flatmq_tools.bytecode import compile_module, compiled

SECTION = "work"  # of the document
ROUNDS = 15
FLATMQ, UMQTT, FLOOR = "flatmq", "umqtt.simple", "floor"
BITS = ("64-bit", "32-bit")
# Operation of device/work.py -> what it is, as the rows of the table.
OPERATIONS = {
    "publish": "publish QoS 0, `flush` after each",
    "publish_burst": "publish QoS 0 in bursts of 8, each",
    "trip": "QoS 1 round trip, one in flight",
    "trip_burst": "QoS 1 round trip, eight in flight, each",
    "receive": "receive QoS 0, one at a time",
    "receive_bytes": "… the payload taken as bytes",
    "receive_burst": "receive QoS 0 in bursts of 8, each",
    "idle": "poll with nothing to do",
    "ping": "PINGREQ and PINGRESP",
}
MIXES = {
    "mix_one": "one topic",
    "mix_plus": "two topics, one subscription with `+`",
    "mix_eight": "eight topics in turn, four subscriptions",
    "mix_random": "… in random order",
}
_DEVICE = Path(__file__).parent / "device"
_MODULES = ("memory", "mixes", "packets", "work")
_MESSAGES = 256  # of each operation in each round, at least
_HEAP_KB = 8192
_BEGIN = "import work; clients = [work.Floor(), work.Flatmq(), work.Umqtt()]"
_HEAP = "work.measure_heap(clients)"
_ROUND = f"work.measure_round(clients, {_MESSAGES})"


class WorkError(RuntimeError):
    """The measurement does not run; the text says why."""


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
        value = self.median(bits, client, operation)
        least = self.median(bits, other, operation)
        return value / least if value is not None and least else None

    def worst(self, bits: str) -> float | None:
        """Return the largest ratio of flatmq to umqtt.simple of all operations."""
        found = [self.ratio(bits, FLATMQ, UMQTT, name) for name in (*OPERATIONS, *MIXES)]
        ratios = [ratio for ratio in found if ratio is not None]
        return max(ratios) if len(ratios) == len(found) else None

    def rows(self, bits: str, operations: dict[str, str]) -> list[list[str]]:
        """The rows of a table with the head of `head`."""
        rows = []
        for name, text in operations.items():
            row = [text, number(self.median(bits, FLOOR, name))]
            for client in (FLATMQ, UMQTT):
                row += [
                    number(self.median(bits, client, name)),
                    number(self.ratio(bits, client, FLOOR, name)),
                    number(self.heap.get((bits, client, name))),
                ]
            rows.append([*row, number(self.ratio(bits, FLATMQ, UMQTT, name))])
        return rows

    def markdown(self) -> str:
        head = ["µs per message", FLOOR, FLATMQ, "× floor", "B", UMQTT, "× floor", "B"]
        parts = [
            "## The interpreter's work alone",
            "`make bench`: over a link in memory, whose calls take next to no time. On a board "
            "they do: 204 µs for a write and 30 µs for a read on a Pico W, and umqtt.simple makes "
            f"several per message. {FLOOR}: one write per ready packet, one read per message; B: "
            "bytes of heap that a message leaves behind.",
        ]
        for bits in BITS:
            if any(key[0] == bits for key in self.rounds):
                rows = [*self.rows(bits, OPERATIONS), *self.rows(bits, MIXES)]
                last = f"{FLATMQ} / {UMQTT}"
                parts += [f"### {bits}", table([*head, last], rows)]
        return "\n\n".join([*parts, *self.notes])


def _run(command: list[str], script: Path) -> list[str]:
    done = subprocess.run(
        [*command, str(script)], capture_output=True, text=True, timeout=300, check=False,
        env=interpreter.environment(script.parent), stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise WorkError(interpreter.last_words(done))
    return done.stdout.splitlines()


def run(
    work: Work,
    folder: Path,
    modules: Sequence[str],
    begin: Sequence[str],
    one_round: str,
    rounds: int,
) -> None:
    """Run code in each interpreter that is installed, and then the given number of rounds.

    The client is in a folder, with modules of the device folder beside it. `work` receives
    what they print.
    """
    for module in modules:
        compile_module(_DEVICE / f"{module}.py", folder / f"{module}.mpy", f"{module}.py")
    command = interpreter.command(f"{_HEAP_KB}k")
    if command is None:
        raise WorkError(interpreter.MISSING)
    script = folder / "main.py"
    script.write_text("\n".join([*begin, *[one_round] * rounds]), encoding="utf-8")
    work.add(BITS[0], _run(command, script))
    if webassembly.find() is None:
        work.notes.append(f"{BITS[1]}: {webassembly.MISSING}")
        return
    parts = ["import sys; sys.path[:] = ['/library', '.frozen']", *begin]
    for _ in range(rounds):
        parts += [one_round, webassembly.COLLECT]
    try:
        lines = webassembly.run(parts, {"/library": folder}, _HEAP_KB, timeout=600)
    except webassembly.WebAssemblyError as error:
        raise WorkError(str(error)) from error
    work.add(BITS[1], lines)


def measure(build: Path, rounds: int = ROUNDS) -> Work:
    """Measure on each interpreter that is here. Raises WorkError or PeerError when that fails."""
    work = Work()
    other = next(client for client in CLIENTS if client.name == UMQTT)
    source = fetch(build / "peers", other.module, other.sdists, other.wheels)
    with tempfile.TemporaryDirectory(prefix="flatmq-work-") as name:
        folder = compiled(Path(name))
        target = folder / "umqtt" / "simple.mpy"
        compile_module(source / "umqtt" / "simple.py", target, "umqtt/simple.py")
        run(work, folder, _MODULES, (_BEGIN, _HEAP), _ROUND, rounds)
    return work
