"""The figures to measure, once or in every round, and a place for their values."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flatmq_rigs.bench.clients import FLOOR, Client
from flatmq_rigs.bench.work import Work

# Function of the client's module -> what it does, once.
OPERATIONS = {
    "publish": "publish QoS 0",
    "publish1": "publish QoS 1 + ack",
    "receive": "receive QoS 0",
    "receive1": "receive QoS 1",
    "ping": "ping",
    "idle": "idle poll",
}
# Functions whose CPU time and socket calls are measured, each with the floor's function beside it.
CPU = {"publish": "publish", "publish_burst": "publish", "receive": "receive"}
RATE = "qos1_rate"
CPU_MS, RATE_MS = 150, 1500  # that a run of each takes, at least
SMALLEST = "smallest"
HELD = "held"
ALL = "all"  # the figure of a client that could not be prepared


@dataclass(frozen=True)
class Job:
    """One run of one device script: `figure` of `measure.py` with its argument."""

    client: Client
    name: str
    figure: str
    argument: str = ""
    broker: bool = False  # against the real broker, else against the peer of source.py


@dataclass
class Results:
    """The values by client and figure; the timed ones as one value per round."""

    once: dict[tuple[str, str], Any] = field(default_factory=dict)
    rounds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    work: Work = field(default_factory=Work)

    def median(self, client: Client, name: str) -> float | None:
        """Median over the rounds of a timed figure; None when the client has no such call."""
        values = self.rounds.get((client.key, name))
        return statistics.median(values) if values else None

    def ratio(self, client: Client, name: str) -> float | None:
        """Return the median ratio to the floor of the same round."""
        values = self.rounds.get((client.key, name))
        floor = self.rounds.get((FLOOR, CPU[name]))
        if not values or not floor or len(values) != len(floor):
            return None
        return statistics.median(value / least for value, least in zip(values, floor, strict=True))


def once(client: Client) -> Iterator[Job]:
    """Return the jobs whose figure is the same in every run: memory and socket calls."""
    if client.is_floor:
        return
    yield Job(client, HELD, "held")
    if client.romfs:
        return
    for operation in OPERATIONS:
        yield Job(client, f"alloc {operation}", "alloc", operation)
    for operation in CPU:
        yield Job(client, f"calls {operation}", "calls", operation)


def timed(client: Client) -> Iterator[Job]:
    """Return the jobs of one round."""
    if client.romfs:
        return
    for name in CPU:
        yield Job(client, name, "cpu", f"{name} {CPU_MS}")
    if not client.is_floor:
        yield Job(client, RATE, "rate", str(RATE_MS), broker=True)
