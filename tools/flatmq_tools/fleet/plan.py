"""The plan of what happens to a board, and when.

The same seed gives the same plan, whatever the network does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

# What happens before a reading is taken,
NOTHING = ""
DROP_OUT = "drop-out"  # the connection is cut, and cannot be made for a while
REBOOT = "reboot"
DEAD = "dead"  # no power from here on: the connection is cut and stays so
STUCK = "stuck"  # connected and alive to the broker, and takes no reading any more
# and what becomes of the reading.
SENT = "sent"
LOST = "lost"  # it gets its number, and is never published
TWICE = "twice"  # published twice
HELD = "held"  # published after the next one

OUTAGE = (0.2, 2.0)  # seconds that a drop-out lasts
# Seconds that a wrong clock is off. Behind: one that is ahead has whoever goes by the newest time
# take what the others send for late.
CLOCKS = (-30, -600, -7200, -86400)


@dataclass(frozen=True)
class Troubles:
    """The rates at which things go wrong."""

    lost: float = 0.005
    """Of the readings; one to three in a row."""
    duplicated: float = 0.005
    """Of the readings."""
    reordered: float = 0.002
    """Of the readings."""
    drop_outs: float = 0.2
    """A board and minute."""
    reboots: float = 0.1
    """A board and minute."""
    silent: float = 0.02
    """Of the boards; every other one is dead, the rest are stuck."""
    clocks: float = 0.02
    """Of the boards."""


CALM = Troubles(0, 0, 0, 0, 0, 0, 0)


class Turn(NamedTuple):
    """A reading, and what comes before it."""

    before: str
    reading: str
    outage: float
    """Seconds, of a drop-out."""


class Plan:
    """The plan of board `number` of a fleet whose boards take `readings` each, `rate` a second.

    `clock` is by how many seconds its clock is off, `silence` None, DEAD or STUCK.
    """

    def __init__(
        self, seed: int, number: int, readings: int, rate: float, troubles: Troubles
    ) -> None:
        self._chance = chance = random.Random(f"{seed}/{number}")
        self._troubles = troubles
        self._drop_out = troubles.drop_outs / 60 / rate
        self._reboot = troubles.reboots / 60 / rate
        self.phase = chance.random()
        """Of the time between two readings, that it is later than others."""
        self.clock = chance.choice(CLOCKS) if chance.random() < troubles.clocks else 0
        self.silence: str | None = None
        self._end = readings
        if chance.random() < troubles.silent and readings > 2:
            self.silence = chance.choice((DEAD, STUCK))
            self._end = chance.randrange(2, readings)

    def turns(self) -> Iterator[Turn]:
        """Yield the readings in order, and after the last one the silence."""
        chance = self._chance
        fresh = True  # the first reading of a boot shows that there was one
        calm = False  # the one before was held: this one passes it
        gap = 0
        for n in range(self._end):
            before, reading, outage = NOTHING, SENT, 0.0
            if gap:
                gap -= 1
                reading = LOST
            elif not (fresh or calm):
                before, outage = self._event()
                if before != REBOOT:
                    reading = self._reading(n == self._end - 1)
                    if reading == LOST:
                        gap = chance.randrange(3)
            fresh = before == REBOOT
            calm = reading == HELD
            yield Turn(before, reading, outage)
        if self.silence:
            yield Turn(self.silence, "", 0.0)

    def _event(self) -> tuple[str, float]:
        at = self._chance.random()
        if at < self._drop_out:
            return DROP_OUT, self._chance.uniform(*OUTAGE)
        return REBOOT if at < self._drop_out + self._reboot else NOTHING, 0.0

    def _reading(self, last: bool) -> str:
        at = self._chance.random()
        each = self._troubles
        if at < each.lost / 2:  # two in a row, on average
            return LOST
        at -= each.lost / 2
        if at < each.duplicated:
            return TWICE
        at -= each.duplicated
        return HELD if at < each.reordered and not last else SENT
