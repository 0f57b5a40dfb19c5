"""Set the clock by MQTT, for boards that no NTP server answers.

    from flatmq.timesync import TimeSync

    sync = TimeSync(client, b"dev/pico-1/time")
    while True:
        client.poll(20)
        sync.poll()

`flatmq time HOST` answers all boards.
"""

import random
import time

from . import port
from .port import const, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable

    from . import Client
    from .message import Message

_AGAIN_MS = const(15000)  # after a request that was not answered, or too late
_DAY = const(86400)
_MASK = const(0x3FFFFFFF)  # the clock wraps at 30 bits, which is 12 days
_2025 = const(1735689600)  # no host has an earlier time


def set_clock(seconds: int) -> None:
    """Set the board's clock to that many seconds since 1970."""
    from machine import RTC  # type: ignore[import-not-found,unused-ignore]

    if time.gmtime(0)[0] == 2000:  # the epoch of some ports
        seconds -= 946684800
    now = time.gmtime(seconds)
    values = (now[0], now[1], now[2], now[6] + 1, now[3], now[4], now[5], 0)
    RTC().datetime(values)  # type: ignore[attr-defined,unused-ignore]


class TimeSync:
    """Asks for the time with the first connection, and then every `every` seconds, 60 to 86400.

    The request goes to `topic`/get with a random number, and a host answers on `topic` with that
    number, the seconds since 1970 and milliseconds. Half of the time in between is added. So the
    clock is wrong by at most the other half, and by the time between two calls of `poll`. An
    answer that took longer than `limit_ms` is not used, nor one that is retained or has another
    number; the request is repeated after 15 s.

    `set` is called at the beginning of a second, with the seconds since 1970. `answers` counts the
    answers that were used, `late` those that took too long, and `took` is the time in milliseconds
    that the last one took. ValueError if `every` is out of range.

    `poll` allocates nothing while nothing is due.
    """

    def __init__(
        self,
        client: "Client",
        topic: "bytes | str",
        every: int = 3600,
        limit_ms: int = 1000,
        set: "Callable[[int], object]" = set_clock,
    ) -> None:
        if not 60 <= every <= _DAY:
            raise ValueError(f"every must be 60 to {_DAY}, not {every!r}")
        self._client = client
        if topic.__class__ is str:
            topic = topic.encode()
        self._topic = topic + b"/get"  # type: ignore[operator]
        self._every_ms = every * 1000
        self._limit = limit_ms
        self._set = set
        self.answers = self.late = self.took = 0
        self._number = 0  # of the request that waits for its answer
        self._sent = self._due = self._at = port.ticks_ms()
        self._second = 0  # the time at `_at`; 0: the clock is not to be set
        client.subscribe(topic, self._answer)

    def poll(self) -> None:
        """Ask, or set the clock, if it is time to. Never blocks."""
        now = port.ticks_ms()
        late = ticks_diff(now, self._at)
        # A time that is further away was missed, while there was no connection for days.
        if self._client.connected and self._due - now - 1 & _MASK >= self._every_ms:
            self._ask(now)
        elif self._second and late >= 0:
            late = late // 1000 + 1
            self._second += late
            self._at = ticks_add(self._at, late * 1000)
            self._set(self._second - 1)  # if it raises, it is called again at the next second
            self._second = 0

    def _ask(self, now):
        number = 1 + random.getrandbits(29)
        self._due = ticks_add(now, _AGAIN_MS)
        if self._client.publish(self._topic, b"%d" % number) is not None:
            self._number = number
            self._sent = now

    def _answer(self, message: "Message") -> None:
        now = port.ticks_ms()
        try:
            number, seconds, ms = [int(part) for part in message.payload.split(b" ")]
        except ValueError:
            return
        if (
            message.retain
            or not number == self._number > 0
            or seconds < _2025
            or seconds >> 32  # from 2106 on: a board raises, or worse
            or ms // 1000
        ):
            return
        self.took = ticks_diff(now, self._sent)
        if self.took > self._limit:
            self.late += 1
        else:
            ms += self.took // 2
            self._second = seconds + ms // 1000 + 1
            self._at = ticks_add(now, 1000 - ms % 1000)
            self._due = ticks_add(now, self._every_ms)
            self.answers += 1
        self._number = 0  # last: without memory, the same message comes again
