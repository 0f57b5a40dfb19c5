"""The cost of a run."""

from __future__ import annotations

import resource
import time
from typing import NamedTuple


class BenchError(RuntimeError):
    """The measurement is not possible, or a target is missed; the text says which."""


class Figure(NamedTuple):
    """The cost of receiving a number of messages, or of a whole pipeline for them."""

    messages: int
    seconds: float
    cpu: dict[str, float]
    """Seconds, of user and of system, by part."""

    @property
    def rate(self) -> float:
        """The number of messages per second."""
        return self.messages / self.seconds

    def each_us(self, part: str | None = None) -> float:
        """CPU time per message, in us, of a part or of all of them."""
        used = sum(self.cpu.values()) if part is None else self.cpu.get(part, 0.0)
        return used / self.messages * 1e6


class Watch:
    """A clock of the time and of the CPU time of this process."""

    def __init__(self) -> None:
        self._start = time.monotonic(), self._cpu()

    @staticmethod
    def _cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def figure(self, messages: int) -> Figure:
        """Return the time and CPU time that have passed."""
        start, cpu = self._start
        return Figure(messages, time.monotonic() - start, {"receiver": self._cpu() - cpu})
