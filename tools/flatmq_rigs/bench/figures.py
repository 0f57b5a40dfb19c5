"""The figures of each client, and the targets of flatmq on MicroPython."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flatmq_rigs.bench import work
from flatmq_rigs.bench.clients import CLIENTS, FLOOR, Client

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
RATE = "rate"
SMALLEST = "smallest"
HELD = "held"
ALL = "all"  # the figure of a client that could not be prepared


@dataclass
class Results:
    """The values by client and figure; the timed ones as one value per round."""

    once: dict[tuple[str, str], Any] = field(default_factory=dict)
    rounds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    work: work.Work = field(default_factory=work.Work)

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


FLATMQ, ROMFS = (
    next(client for client in CLIENTS if client.is_ours and client.romfs == romfs)
    for romfs in (False, True)
)


@dataclass(frozen=True)
class Target:
    """A limit of a measured value; `at_least`: it must not be less, instead of not more."""

    text: str
    limit: float
    unit: str
    value: Callable[[Results], float | None]
    at_least: bool = False

    def met(self, value: float | None) -> bool:
        """False also for a value that could not be measured."""
        if value is None:
            return False
        return value >= self.limit if self.at_least else value <= self.limit


def _ratio(name: str) -> Callable[[Results], float | None]:
    return lambda results: results.ratio(FLATMQ, name)


def _worst(bits: str, client: str, other: str) -> Callable[[Results], float | None]:
    return lambda results: results.work.worst(bits, client, other)


def _part(client: Client, name: str, index: int) -> Callable[[Results], float | None]:
    def value(results: Results) -> float | None:
        found: Any = results.once.get((client.key, name))
        return None if found is None else float(found[index])

    return value


_SLOWEST = "slowest operation over a link in memory"
TARGETS = (
    Target("publish QoS 0, each sent off with flush()", 3, "× floor", _ratio("publish")),
    Target("publish QoS 0 in bursts of 16", 1.5, "× floor", _ratio("publish_burst")),
    Target("receive QoS 0", 4, "× floor", _ratio("receive")),
    *(
        Target(f"{_SLOWEST}, {bits}", 1, "× umqtt.simple", _worst(bits, work.FLATMQ, work.UMQTT))
        for bits in work.BITS
    ),
    *(
        Target(f"… in MQTT 5, {bits}", 1.15, "× 3.1.1", _worst(bits, work.FIVE, work.FLATMQ))
        for bits in work.BITS
    ),
    Target(
        "publish QoS 0 over a WebSocket, 64-bit", 2.5, "× TCP",
        _worst(work.BITS[0], work.WEBSOCKET, work.FLATMQ),
    ),
    Target("QoS 1, several in flight", 15000, "per s", lambda r: r.median(FLATMQ, RATE), True),
    Target("writes per publish", 1, "", _part(FLATMQ, "calls publish", 0)),
    Target("writes per publish in bursts", 1, "", _part(FLATMQ, "calls publish_burst", 0)),
    Target("reads per message received in a burst", 0.25, "", _part(FLATMQ, "calls receive", 1)),
    Target("held after import and connect", 16384, "B", _part(FLATMQ, HELD, 1)),
    Target("the same, .mpy in ROMFS", 6144, "B", _part(ROMFS, HELD, 1)),
    *(
        Target(f"heap asked for: {text}", 0, "B", _part(FLATMQ, f"alloc {operation}", 1))
        for operation, text in OPERATIONS.items()
    ),
)  # fmt: skip
