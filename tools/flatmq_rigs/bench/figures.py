"""The figures to measure, once or in every round, and a place for their values."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from flatmq_rigs.bench.clients import CPYTHON, Client
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
# What is timed over a link that is not TCP, and whose calls of the socket are counted.
LINKED = ("publish", "publish_burst", "receive")
# Figure of CPU time -> function of the client's module, mix of topics of device/mixes.py or "-"
# where nothing is received, figure of its floor.
CPU = {
    "publish": ("publish", "-", "publish"),
    "publish_poll": ("publish_poll", "-", "publish"),
    "publish_burst": ("publish_burst", "-", "publish"),
    "receive": ("receive", "one", "receive"),
    "receive_copy": ("receive_copy", "one", "receive"),
    "receive_bytes": ("receive_bytes", "one", "receive"),
    "receive_two": ("receive", "two", "receive"),
    "receive_plus": ("receive", "plus", "receive"),
    "receive_eight": ("receive", "eight", "receive"),
    "receive_random": ("receive", "random", "receive"),
    "chunks": ("chunks", "one", "receive"),
}
RATE = "qos1_rate"
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
        """Return the median ratio to the floor of the same round.

        For a client over another link, the floor is the same client over TCP.
        """
        values = self.rounds.get((client.key, name))
        base = (client.plain_key, name) if client.link else (client.floor_key, CPU[name][2])
        floor = self.rounds.get(base)
        if not values or not floor or len(values) != len(floor):
            return None
        return statistics.median(value / least for value, least in zip(values, floor, strict=True))

    def most_heap(self, client: Client) -> float | None:
        """Heap bytes that the greediest operation asked for; None if one was not measured."""
        found: list[float] = []
        for operation in OPERATIONS:
            value = self.once.get((client.key, f"alloc {operation}"))
            if value is None:
                return None
            found.append(value[1])
        return max(found)


def once(client: Client) -> Iterator[Job]:
    """Return the jobs whose figure is the same in every run: memory and socket calls."""
    if client.is_floor:
        return
    if client.runtime != CPYTHON:
        if not client.link:
            yield Job(client, HELD, "held")
        if client.romfs:
            return
        for operation in OPERATIONS:
            yield Job(client, f"alloc {operation}", "alloc", operation)
    if client.link:
        return
    for operation in LINKED:
        yield Job(client, f"calls {operation}", "calls", operation)


def timed(client: Client, quick: bool) -> Iterator[Job]:
    """Return the jobs of one round."""
    if client.romfs:
        return
    cpu_ms, rate_ms = (60, 500) if quick else (150, 1500)
    for name in LINKED if client.link else CPU:
        function, mix, _ = CPU[name]
        yield Job(client, name, "cpu", f"{function} {mix} {cpu_ms}")
    if not client.is_floor:
        yield Job(client, RATE, "rate", str(rate_ms), broker=True)
