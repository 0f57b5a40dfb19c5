"""Remove a device from the state of a run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from . import records
from .history import packed_set, unpacked_set
from .store import Store


def remove(file: Path, device: str) -> int:
    """Remove a device from the state in `file`, and return how many boots it had, or 1.

    It is 0 if the state does not know the device. The sums of the whole fleet stay as they are.
    Examples of dead letters that name the device are removed. Raises StateError.
    """
    with Store(file) as store, store.forgetting() as db:
        found = db.execute("SELECT id FROM devices WHERE name = ?", (device,)).fetchone()
        removed = 0 if found is None else _remove(db, found[0])
        return (
            removed
            + db.execute(
                "DELETE FROM dead_examples WHERE instr(topic, ?) OR instr(reason, ?)",
                (device, device),
            ).rowcount
        )


def _remove(db: sqlite3.Connection, number: int) -> int:
    """Remove all rows of a device by its number, which may be given to another one later."""
    db.execute(
        "UPDATE parts SET stale = stale + 1 WHERE part IN "
        "(SELECT part FROM closed_boots WHERE device = ?)",
        (number,),
    )
    boots = db.execute("DELETE FROM closed_boots WHERE device = ?", (number,)).rowcount
    for kind in records.EVERY:
        removed = records.forget(db, kind, number)
        boots += removed if kind is records.OPEN else 0
    db.execute("DELETE FROM counters WHERE device = ?", (number,))
    for width, at, kept in db.execute("SELECT width, at, devices FROM steps").fetchall():
        heard = unpacked_set(kept)
        if number in heard:
            others = packed_set(np.setdiff1d(heard, [number]))
            db.execute(
                "UPDATE steps SET devices = ? WHERE width = ? AND at = ?", (others, width, at)
            )
    db.execute("DELETE FROM devices WHERE id = ?", (number,))
    return max(1, boots)
