"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from flatmq_rigs.bench.clients import Client
from flatmq_rigs.bench.figures import (
    ALL,
    CPU,
    HELD,
    OPERATIONS,
    RATE,
    SMALLEST,
    Results,
)
from flatmq_rigs.bench.runner import HEAP_KB
from flatmq_rigs.bench.targets import TARGETS
from flatmq_rigs.results import NONE, number, table

SECTION = "bench"  # of the document
FAILED = "failed"


class Report:
    """A maker of tables for the clients that were measured."""

    def __init__(self, clients: Sequence[Client], results: Results) -> None:
        self._clients = clients
        self._results = results

    def _cell(self, client: Client, figure: str, text: str) -> str:
        failures = self._results.failures
        return FAILED if {(client.key, figure), (client.key, ALL)} & failures.keys() else text

    def _once(self, client: Client, figure: str, index: int) -> str:
        value = self._results.once.get((client.key, figure))
        return self._cell(client, figure, NONE if value is None else number(value[index]))

    def memory(self) -> str:
        """Return the table of bytes held, and the smallest heap."""
        rows = []
        for client in self._measured(romfs=True):
            held = [self._once(client, HELD, index) for index in (0, 1)]
            kilobytes = self._results.once.get((client.key, SMALLEST))
            rows.append([client.name, *held, NONE if kilobytes is None else f"{kilobytes}K"])
        return table(["", "import", "import + connect", "smallest heap, .mpy"], rows)

    def _measured(self, romfs: bool = False) -> list[Client]:
        return [c for c in self._clients if not c.is_floor and (romfs or not c.romfs)]

    def _parts(self, names: Sequence[str], head: Sequence[str], count: int) -> str:
        """Return a table of figures that have several parts."""
        rows = []
        for client in self._measured():
            cells = []
            for name in names:
                parts = [self._once(client, name, index) for index in range(count)]
                cells.append(parts[0] if parts[0] in (NONE, FAILED) else " / ".join(parts))
            rows.append([client.name, *cells])
        return table(["", *head], rows)

    def allocation(self) -> str:
        """Heap bytes per operation."""
        return self._parts([f"alloc {name}" for name in OPERATIONS], [*OPERATIONS.values()], 2)

    def calls(self) -> str:
        """Socket calls per message."""
        head = ("publish alone", "in bursts of 16", "receive")
        return self._parts([f"calls {name}" for name in CPU], head, 3)

    def _timed(self, client: Client, figure: str) -> list[str]:
        median = number(self._results.median(client, figure))
        ratio = number(self._results.ratio(client, figure))
        return [self._cell(client, figure, text) for text in (median, ratio)]

    def speed(self) -> str:
        """CPU time per message with its multiple of the floor, and QoS 1 per second."""
        rows = []
        for client in self._clients:
            if client.romfs:
                continue
            row = [client.name]
            for figure in CPU:
                row += self._timed(client, figure)
            rate = self._cell(client, RATE, number(self._results.median(client, RATE)))
            rows.append([*row, rate])
        head = ["publish alone", "×", "in bursts of 16", "×", "receive", "×"]
        return table(["", *head, "QoS 1 per s"], rows)

    def targets(self) -> str:
        rows = []
        for target in TARGETS:
            value = target.value(self._results)
            limit = f"{'≥' if target.at_least else '≤'} {number(target.limit)} {target.unit}"
            met = "met" if target.met(value) else "MISSED"
            rows.append([target.text, limit.strip(), number(value), met])
        return table(["flatmq on MicroPython", "target", "measured", ""], rows)

    def markdown(self, facts: Sequence[tuple[str, str]], with_targets: bool) -> str:
        """The whole section; `facts` says where and with what it was measured."""
        parts = ["## Side by side", "\n".join(f"- {name}: {text}" for name, text in facts)]
        if with_targets:
            parts += ["### Targets", self.targets()]
        parts += [
            "### Memory (bytes)",
            self.memory(),
            "### Heap bytes per operation",
            "Bytes left behind / bytes requested.",
            self.allocation(),
            "### Speed",
            f"CPU µs per message of 32 bytes, heap of {HEAP_KB} KB, and multiples of bare writes "
            "and reads.",
            self.speed(),
            "### Socket calls per message",
            "Writes / reads / others.",
            self.calls(),
        ]
        notes = [f"- {client.name}: {client.note}" for client in self._clients if client.note]
        parts += ["### Notes", "\n".join(notes)]
        failures = [
            f"- {client.name}, {figure}: {text}"
            for client in self._clients
            for (key, figure), text in self._results.failures.items()
            if key == client.key
        ]
        if failures:
            parts += ["### Could not be measured", "\n".join(failures)]
        return "\n\n".join(parts)
