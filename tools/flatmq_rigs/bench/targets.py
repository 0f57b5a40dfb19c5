"""The targets of flatmq on MicroPython, compared with what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flatmq_rigs.bench.clients import CLIENTS, Client
from flatmq_rigs.bench.figures import HELD, OPERATIONS, RATE, Results
from flatmq_rigs.bench.work import BITS

FLATMQ, ROMFS = (
    next(client for client in CLIENTS if client.is_ours and client.romfs == romfs)
    for romfs in (False, True)
)


@dataclass(frozen=True)
class Target:
    """A limit; `met` compares a measured value with it."""

    text: str
    limit: float
    at_least: bool
    unit: str
    value: Callable[[Results], float | None]

    def met(self, value: float | None) -> bool:
        """False also for a value that could not be measured."""
        if value is None:
            return False
        return value >= self.limit if self.at_least else value <= self.limit


def _ratio(name: str) -> Callable[[Results], float | None]:
    return lambda results: results.ratio(FLATMQ, name)


def _part(client: Client, name: str, index: int) -> Callable[[Results], float | None]:
    def value(results: Results) -> float | None:
        found: Any = results.once.get((client.key, name))
        return None if found is None else float(found[index])

    return value


def _most(text: str, limit: float, unit: str, value: Callable[[Results], float | None]) -> Target:
    return Target(text, limit, False, unit, value)


TARGETS = (
    _most("publish QoS 0, each sent off with flush()", 3, "× floor", _ratio("publish")),
    _most("publish QoS 0 in bursts of 16", 1.5, "× floor", _ratio("publish_burst")),
    _most("receive QoS 0", 4, "× floor", _ratio("receive")),
    *(
        _most(f"slowest operation over a link in memory, {bits}", 1, "× umqtt.simple", value)
        for bits, value in ((bits, lambda r, bits=bits: r.work.worst(bits)) for bits in BITS)
    ),
    Target(
        "QoS 1, several in flight", 15000, True, "per s", lambda r: r.median(FLATMQ, RATE)
    ),
    _most("writes per publish", 1, "", _part(FLATMQ, "calls publish", 0)),
    _most("writes per publish in bursts", 1, "", _part(FLATMQ, "calls publish_burst", 0)),
    _most("reads per message received in a burst", 0.25, "", _part(FLATMQ, "calls receive", 1)),
    _most("held after import and connect", 16384, "B", _part(FLATMQ, HELD, 1)),
    _most("the same, .mpy in ROMFS", 6144, "B", _part(ROMFS, HELD, 1)),
    *(
        _most(f"heap asked for: {text}", 0, "B", _part(FLATMQ, f"alloc {operation}", 1))
        for operation, text in OPERATIONS.items()
    ),
)  # fmt: skip
