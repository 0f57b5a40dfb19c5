"""The record of what the boards of a fleet really did, one line of JSON per boot."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .. import folders

END = "end"  # of the run; the others are of `plan`


@dataclass
class Boot:
    """A board from a start to its end. Lists are of sequence numbers."""

    device: str
    boot: int
    clock: int = 0
    """Seconds by which its clock was off, negative for behind."""
    readings: int = 0
    """Taken, and numbered from 1."""
    published: int = 0
    """Of them, those that the client accepted; those published twice count once."""
    acknowledged: int = 0
    """Of those, the ones that the broker acknowledged."""
    lost: list[int] = field(default_factory=list)
    """Never published, on purpose."""
    no_room: list[int] = field(default_factory=list)
    """Never published, as the client had no room: the broker was away for too long."""
    duplicated: list[int] = field(default_factory=list)
    """Published once more, on purpose."""
    reordered: list[int] = field(default_factory=list)
    """Published after the one that follows, on purpose."""
    again: list[int] = field(default_factory=list)
    """Not acknowledged when a connection ended, and sent again: may have arrived twice."""
    unacknowledged: list[int] = field(default_factory=list)
    """Not acknowledged when the boot ended: may have arrived, or not."""
    drop_outs: int = 0
    losses: int = 0
    """Connections that ended, and not on purpose."""
    connects: int = 0
    began: float = 0.0
    """Seconds since 1970, by the clock that is right: of the first reading,"""
    ended: float = 0.0
    """and of the last one."""
    end: str = END
    """Why the boot ended: END, or DEAD, STUCK or REBOOT of `plan`."""

    @property
    def last(self) -> int:
        """The largest number that was published; 0 when none was."""
        missing = {*self.lost, *self.no_room}
        return next((n for n in range(self.readings, 0, -1) if n not in missing), 0)

    @property
    def gaps(self) -> int:
        """Return how many numbers are missing below the largest: the losses a receiver can see."""
        last = self.last
        return sum(n < last for n in (*self.lost, *self.no_room))

    @property
    def wills(self) -> int:
        """Return how often the board left on purpose without DISCONNECT while connected."""
        return self.drop_outs + (self.end in ("reboot", "dead"))

    @property
    def status(self) -> str:
        """The final retained status, if nothing but the plan went wrong."""
        return {END: "asleep", "dead": "offline", "stuck": "online"}.get(self.end, "")


@dataclass
class Summary:
    """The sums over all boots."""

    devices: int = 0
    boots: int = 0
    readings: int = 0
    published: int = 0
    acknowledged: int = 0
    lost: int = 0
    no_room: int = 0
    duplicated: int = 0
    reordered: int = 0
    again: int = 0
    unacknowledged: int = 0
    drop_outs: int = 0
    losses: int = 0
    reboots: int = 0
    dead: int = 0
    stuck: int = 0
    wrong_clocks: int = 0
    """Boards."""


def summary(boots: Iterable[Boot]) -> Summary:
    """The sums."""
    total = Summary()
    devices = set()
    wrong = set()
    for boot in boots:
        devices.add(boot.device)
        if boot.clock:
            wrong.add(boot.device)
        total.boots += 1
        for name in ("readings", "published", "acknowledged", "drop_outs", "losses"):
            setattr(total, name, getattr(total, name) + getattr(boot, name))
        for name in ("lost", "no_room", "duplicated", "reordered", "again", "unacknowledged"):
            setattr(total, name, getattr(total, name) + len(getattr(boot, name)))
        total.reboots += boot.end == "reboot"
        total.dead += boot.end == "dead"
        total.stuck += boot.end == "stuck"
    total.devices = len(devices)
    total.wrong_clocks = len(wrong)
    return total


def write(path: Path, boots: Iterable[Boot]) -> None:
    """Write one line for each boot, in the order of devices and boots."""
    lines = [
        json.dumps(dataclasses.asdict(boot), separators=(",", ":"))
        for boot in sorted(boots, key=lambda each: (each.device, each.boot))
    ]
    folders.write(path, "".join(line + "\n" for line in lines).encode())


def read(path: Path) -> list[Boot]:
    """Read what `write` wrote."""
    return [Boot(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
