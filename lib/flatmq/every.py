"""Times that come again, for a loop that polls."""

from . import port
from .port import const, ticks_add

_MASK = const(0x3FFFFFFF)  # the clock wraps at 30 bits, which is 12 days


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
        self.since = port.ticks_ms() - ms  # when it was due last

    def due(self) -> bool:
        """Return whether the time has come. It is due once, however many times were missed."""
        now = port.ticks_ms()
        passed = now - self.since & _MASK
        if passed < self.ms:
            return False
        if passed < 2 * self.ms:
            now = ticks_add(self.since, self.ms)
        self.since = now
        return True
