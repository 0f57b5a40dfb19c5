"""Times that come again, for a loop that polls."""

from . import port
from .port import ticks_add, ticks_diff


class Every:
    """Due every `ms` milliseconds, the first time at once. `due` allocates nothing.

        report = Every(60000)
        while True:
            client.poll(100)
            if report.due():
                client.publish(b"dev/pico-1/alive")

    ValueError if `ms` is not from 1 to 268,435,455, which is 3 days: the clock of a board wraps.
    """

    def __init__(self, ms: int) -> None:
        if ms.__class__ is not int or not 1 <= ms <= 268435455:
            raise ValueError(f"ms must be an int from 1 to 268435455, not {ms!r}")
        self.ms = ms
        self.next = port.ticks_ms()

    def due(self) -> bool:
        """Return whether the time has come. It is due once, however many times were missed."""
        now = port.ticks_ms()
        if ticks_diff(now, self.next) < 0:
            return False
        self.next = ticks_add(self.next, self.ms)
        if ticks_diff(now, self.next) >= 0:  # the program was busy for longer than that
            self.next = ticks_add(now, self.ms)
        return True
