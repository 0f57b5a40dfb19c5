"""MQTT 5 beside 3.1.1: the same client, measured over a link in memory on 64 and on 32 bits."""

from __future__ import annotations

import tempfile
from pathlib import Path

from flatmq_rigs.bench import work
from flatmq_rigs.bench.work import BITS, Work, run
from flatmq_rigs.results import number, table
from flatmq_tools.bytecode import compiled

SECTION = "work5"  # of the document
ROUNDS = 15
OLD, NEW = "4", "5"
LIMIT = 1.15  # the most that an operation may take at MQTT 5, as a multiple of 3.1.1
# Operation of device/versions.py -> what it is, as the rows of the table.
OPERATIONS = {
    **{name: work.OPERATIONS[name] for name in ("publish", "publish_burst")},
    "publish_topics": "publish QoS 0, two topics in turn",
    "publish_properties": "publish QoS 0 with properties",
    **{name: work.OPERATIONS[name] for name in ("trip", "trip_burst", "receive", "receive_burst")},
    "receive_tagged": "receive QoS 0 with a subscription identifier",
    "receive_tagged_burst": "… in bursts of 8, each",
    "receive1": "receive QoS 1, and PUBACK",
    "receive1_tagged": "… with a subscription identifier",
    **{name: work.OPERATIONS[name] for name in ("idle", "ping")},
    "mix_plus": "receive: two topics, one subscription with `+`",
    "mix_eight": "… eight topics in turn, four subscriptions",
    "mix_random": "… in random order",
}
# What 3.1.1 does not have, beside what it would do instead; no limit applies.
EXTRAS = {
    "publish_mixed": "publish QoS 0, two topics and two sets of properties in turn",
    "publish_alias": "publish QoS 0 with a topic alias",
    "receive_properties": "receive QoS 0 with three properties, which are checked",
}
_DIFFERENCES = ("idle",)  # what reading nothing takes is subtracted
MODULES = ("memory", "mixes", "packets", "work", "versions")
_MESSAGES = 256  # of each operation in each round, at least
_BEGIN = "import versions, work; clients = [versions.Old(), versions.New()]"
_HEAP = "work.measure_heap(clients, versions.OPERATIONS)"
_ROUND = f"work.measure_round(clients, {_MESSAGES}, versions.OPERATIONS)"


class Versions(Work):
    """Microseconds per message by bits, version and operation, as in `Work`."""

    def least(self, bits: str, version: str, operation: str) -> float | None:
        """Return the minimum over the rounds: other work on the machine can only add time.

        For a difference of two times, which other work may move either way, return the
        median.
        """
        if operation in _DIFFERENCES:
            return self.median(bits, version, operation)
        values = self.rounds.get((bits, version, operation))
        return min(values) if values else None

    def ratio_of(self, bits: str, operation: str) -> float | None:
        """Return what MQTT 5 takes as a multiple of 3.1.1."""
        old, new = (self.least(bits, version, operation) for version in (OLD, NEW))
        return new / old if old and new else None

    def missed(self) -> list[str]:
        """Say which operations take more than LIMIT."""
        return [
            f"{text}, {bits}: {number(ratio)} times 3.1.1, more than {LIMIT}"
            for bits in BITS
            for name, text in OPERATIONS.items()
            if (ratio := self.ratio_of(bits, name)) is not None and ratio > LIMIT
        ]

    def rows_of(self, bits: str) -> list[list[str]]:
        rows = []
        for name, text in {**OPERATIONS, **EXTRAS}.items():
            ratio = self.ratio_of(bits, name)
            met = "" if name in EXTRAS or ratio is None else "met" if ratio <= LIMIT else "MISSED"
            times = [self.least(bits, version, name) for version in (OLD, NEW)]
            heap = number(self.heap.get((bits, NEW, name)))
            rows.append([text, *map(number, [*times, ratio]), met, heap])
        return rows

    def markdown(self) -> str:
        head = ["µs per message", "3.1.1", "5", "× 3.1.1", f"≤ {LIMIT}", "B"]
        parts = [
            "## MQTT 5 beside 3.1.1: the interpreter's work alone",
            "`make bench`: the same client at both versions, over a link in memory. B: bytes of "
            "heap that a message leaves behind.",
        ]
        for bits in BITS:
            if any(key[0] == bits for key in self.rounds):
                parts += [f"### {bits}", table(head, self.rows_of(bits))]
        return "\n\n".join([*parts, *self.notes])


def measure(rounds: int = ROUNDS) -> Versions:
    """Measure on each interpreter that is here. Raises WorkError if that fails."""
    found = Versions()
    with tempfile.TemporaryDirectory(prefix="flatmq-versions-") as name:
        run(found, compiled(Path(name)), MODULES, (_BEGIN, _HEAP), _ROUND, rounds)
    return found
