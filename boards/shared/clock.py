"""Set the board's clock by NTP: certificates have dates, and a board starts in 2000 or 2021."""

import time

from flatmq.port import const, ticks_add, ticks_ms

YEAR = 2025  # a clock that shows an earlier year has not been set
RETRY_MS = 15000  # between two tries
_MASK = const(0x3FFFFFFF)  # the clock wraps, and there may be no network for days


class Clock:
    """The board's clock, set from the NTP server `host`."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._set = False
        self._due = ticks_ms()

    def poll(self) -> bool:
        """Return whether the clock is set.

        If not, ask the server, at most every 15 s. Needs a network. Blocks during the name
        lookup, and up to a second for the answer. Raises what `ntptime` raises: OSError, or
        ValueError for an answer that is too short.
        """
        if not self._set:
            self._look()
        return self._set

    def _look(self):
        self._set = time.gmtime()[0] >= YEAR
        if self._set or 0 < self._due - ticks_ms() & _MASK <= RETRY_MS:
            return
        import ntptime

        ntptime.host = self._host
        try:
            ntptime.settime()
        except Exception as error:
            print(f"no time from {self._host}: {error}")
            raise
        finally:
            self._due = ticks_add(ticks_ms(), RETRY_MS)
