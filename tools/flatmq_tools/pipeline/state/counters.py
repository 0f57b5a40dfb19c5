"""The boots of devices that number their messages, and do not say when the numbers start again.

A number that was there before belongs to a copy, or the device has started again. A copy says the
same as the first message, or the broker marks it as sent before.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import boots, groups

SCHEMA = """
CREATE TABLE counters (device INTEGER PRIMARY KEY, boot INTEGER NOT NULL, recent BLOB NOT NULL);
"""
FIRST = 1
"""The boot in which a device is heard first."""
RECENT = 64
"""Messages of a device of which it is remembered what they said."""
FALL = 32_768
"""So far below the highest number no message is late: half of what the shortest counters have."""
LATER = 3_600_000_000
"""us after which nobody sends a message again without the broker marking it."""

_RECENT = np.dtype([("seq", "<i8"), ("said", "<i8"), ("at", "<i8")])
Row = tuple[int, int, bytes]
"""A row of the table."""


class _Message(NamedTuple):
    seq: int
    at: int
    said: int
    """A hash of what it says."""
    again: bool
    """Whether the broker marked it as sent before,"""
    retained: bool
    """or had kept it."""


class _Device:
    """A device in its newest boot."""

    def __init__(self, db: sqlite3.Connection, number: int) -> None:
        row = db.execute(
            "SELECT boot, recent FROM counters WHERE device = ?", (number,)
        ).fetchone()
        boot, recent = row or (FIRST, b"")
        self.number: int = number
        self.boot: int = boot
        self._recent = {
            seq: (said, at) for seq, said, at in np.frombuffer(recent, _RECENT).tolist()
        }
        self._ranges = boots.ranges(db, number, boot)
        self._highest = int(self._ranges["hi"][-1]) if len(self._ranges) else -1

    def take(self, message: _Message) -> int:
        """Return the boot of the next message."""
        if self._starts(message):
            self.boot += 1
            self._highest = -1
            self._recent.clear()
            self._ranges = self._ranges[:0]
        self._highest = max(self._highest, message.seq)
        self._recent.setdefault(message.seq, (message.said, message.at))
        return self.boot

    def _starts(self, message: _Message) -> bool:
        """Return whether the device must have started again before a message."""
        if message.retained or message.seq > self._highest:
            return False
        if message.seq in self._recent:
            said, at = self._recent[message.seq]
            return message.said != said or (not message.again and message.at - at > LATER)
        if self._highest - message.seq >= FALL:
            return True
        place = int(np.searchsorted(self._ranges["lo"], message.seq, "right")) - 1
        known = place >= 0 and message.seq <= int(self._ranges["hi"][place])
        return known and not message.again

    def row(self) -> Row:
        newest = [(seq, *one) for seq, one in self._recent.items()][-RECENT:]
        return self.number, self.boot, np.array(newest, _RECENT).tobytes()


def numbered(
    db: sqlite3.Connection, keys: pa.Table, ids: groups.Ints
) -> tuple[pa.Table, list[Row]]:
    """Return packs with the boots that were missing, and the rows of the table after them.

    keys  columns seq, at, offset, said, dup, retain and boot, which is null
    ids   the number of the device of each
    """
    devices: dict[int, _Device] = {}
    boots = [0] * len(keys)
    messages = zip(
        *(keys[name].to_pylist() for name in ("seq", "at", "said")),
        *(pc.fill_null(keys[name], False).to_pylist() for name in ("dup", "retain")),
        strict=True,
    )
    found = [_Message(*message) for message in messages]
    for n in np.lexsort((keys["offset"].to_numpy(), keys["at"].to_numpy())).tolist():
        number = int(ids[n])
        if number not in devices:
            devices[number] = _Device(db, number)
        boots[n] = devices[number].take(found[n])
    place = keys.schema.get_field_index("boot")
    filled = keys.set_column(place, "boot", pa.array(boots, pa.int64()))
    return filled, [device.row() for device in devices.values()]
