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
    TARGETS,
    Results,
)
from flatmq_rigs.bench.runner import HEAP_KB
from flatmq_rigs.results import NONE, number, table

SECTION = "bench"  # of the document


class Report:
    """A maker of tables for the clients that were measured."""

    def __init__(self, clients: Sequence[Client], results: Results) -> None:
        self._clients = clients
        self._results = results

    def _cell(self, client: Client, figure: str, text: str) -> str:
        failures = self._results.failures
        return "failed" if {(client.key, figure), (client.key, ALL)} & failures.keys() else text

    def _once(self, client: Client, figure: str, count: int) -> list[str]:
        """Return the cells of a figure that has so many parts."""
        value = self._results.once.get((client.key, figure)) or [None] * count
        return [self._cell(client, figure, number(part)) for part in value[:count]]

    def memory(self) -> str:
        """Return the table of bytes held, and the smallest heap."""
        rows = []
        for client in self._clients:
            if not client.is_floor:
                kilobytes = self._results.once.get((client.key, SMALLEST))
                smallest = NONE if kilobytes is None else f"{kilobytes}K"
                rows.append([client.name, *self._once(client, HELD, 2), smallest])
        return table(["", "import", "import + connect", "smallest heap, .mpy"], rows)

    def _parts(self, names: Sequence[str], head: Sequence[str], count: int) -> str:
        """Return a table of figures that have several parts, all in one cell."""
        rows = []
        for client in self._clients:
            if client.is_floor or client.romfs:
                continue
            cells = [self._once(client, name, count) for name in names]
            texts = [" / ".join(parts) if parts[0][0].isdigit() else parts[0] for parts in cells]
            rows.append([client.name, *texts])
        return table(["", *head], rows)

    def speed(self) -> str:
        """CPU time per message with its multiple of the floor, and QoS 1 per second."""
        rows = []
        for client in self._clients:
            if client.romfs:
                continue
            row = [client.name]
            for name in CPU:
                both = (self._results.median(client, name), self._results.ratio(client, name))
                row += [self._cell(client, name, number(each)) for each in both]
            row.append(self._cell(client, RATE, number(self._results.median(client, RATE))))
            rows.append(row)
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

    def markdown(self, facts: Sequence[tuple[str, str]]) -> str:
        """The whole section; `facts` says where and with what it was measured."""
        heaps = [f"alloc {name}" for name in OPERATIONS]
        calls = [f"calls {name}" for name in CPU]
        parts = ["## Side by side", "\n".join(f"- {name}: {text}" for name, text in facts)]
        parts += [
            "### Targets",
            self.targets(),
            "### Memory (bytes)",
            self.memory(),
            "### Heap bytes per operation",
            "Bytes left behind / bytes requested.",
            self._parts(heaps, [*OPERATIONS.values()], 2),
            "### Speed",
            f"CPU µs per message of 32 bytes, heap of {HEAP_KB} KB, and multiples of bare writes "
            "and reads.",
            self.speed(),
            "### Socket calls per message",
            "Writes / reads / others.",
            self._parts(calls, ("publish alone", "in bursts of 16", "receive"), 3),
        ]
        notes = [f"- {client.name}: {client.note}" for client in self._clients if client.note]
        parts += ["### Notes", "\n".join(notes)]
        failures = [
            f"- {key}, {figure}: {text}" for (key, figure), text in self._results.failures.items()
        ]
        if failures:
            parts += ["### Could not be measured", "\n".join(failures)]
        return "\n\n".join(parts)
