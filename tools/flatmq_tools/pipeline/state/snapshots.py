"""The tables health, devices and gaps, made of the state.

A boot is closed once its last pack is a day old, or a hundred have followed, if it is neither the
highest boot of its device nor the one that was heard last. The rows of some thousands of closed
boots are a partition of the tables, with a number that no other one ever has: a refresh leaves it
as it is, and replaces the rest. A pack that comes late opens its boot again, and what is left of
that partition gets another number.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from ..delta import Delta
from ..tables import SNAPSHOTS, of
from . import boots as closed_boots
from . import tables
from .groups import Ints
from .records import KNOWN, Records
from .records import OPEN as OPEN_BOOTS
from .store import Place, Store
from .tables import Devices
from .values import DAY

if TYPE_CHECKING:
    from .once import Once

OPEN = 0
"""The partition of boots that are not closed."""
_BOOTS = 5000  # in a partition, at most, as it is written again if one of them changes
_MANY = 10_000  # boots that are closed without waiting for a day
_SHARE = 10  # times what a refresh took pass before the next one
_OPEN = 100  # boots of a device that may be open before they are a day old


class Snapshots:
    """Writes the tables of a run, from a state file.

    file  the state
    out   the folder or URL of the tables
    """

    def __init__(self, file: Path, out: str) -> None:
        self._file = file
        self._out = out
        self._made = self._tables()
        self._one = threading.Lock()
        self._written: Place | None = None  # how far the messages were that the tables are of

    def refresh(self) -> float:
        """Write the tables as of now, and return how many seconds that took.

        Any thread may call it; one after the other does it.
        """
        with self._one:
            begun = time.monotonic()
            try:
                with Store(self._file) as store:
                    self._refresh(store)
            except BaseException:
                self._made = self._tables()  # one of them may have been removed
                raise
            return time.monotonic() - begun

    def _tables(self) -> list[Delta]:
        return [Delta(of(self._out, name)) for name in SNAPSHOTS]

    def _refresh(self, store: Store) -> None:
        health, everyone, gaps = self._made
        there = [table.newest() for table in self._made]
        if None not in there and store.place() == self._written:
            return  # Nothing came since.
        _close(store, set() if None in there else parts(there[0]))
        with store.reading() as db:
            place = store.place()
            if place is None:
                return
            right = [part for (part,) in db.execute("SELECT part FROM parts WHERE NOT stale")]
            stale = db.execute("SELECT part, stale FROM parts WHERE stale").fetchall()
            devices = Devices(db)
            found = [(OPEN, *tables.of_open(db, devices))]
            found += [(part, *tables.of_part(db, devices, part)) for part, _ in stale]
        where = f"part NOT IN ({', '.join(map(str, right))})" if right else None
        lasting = _marked(OPEN, tables.open_silences(devices))
        for rows, table in (
            ([_marked(part, one) for part, one, _ in found], health),
            ([lasting, *(_marked(part, one) for part, _, one in found)], gaps),
        ):
            table.replace(pa.concat_tables(rows), by="part", where=where)
        everyone.replace(devices.table())
        with store.writing() as db:
            db.executemany("UPDATE parts SET stale = 0 WHERE part = ? AND stale = ?", stale)
        self._written = place


def parts(table: DeltaTable | None) -> set[int]:
    """Return the partitions of a table that has some rows; none if there is no table."""
    return set() if table is None else {int(each["part"]) for each in table.partitions()}


def _marked(part: int, table: pa.Table) -> pa.Table:
    """Return rows with their partition, and whether they are of closed boots."""
    closed = pa.array([part != OPEN] * len(table), pa.bool_())
    number = pa.array([part] * len(table), pa.int64())
    return table.append_column("closed", closed).append_column("part", number)


class Known:
    """The state of a run.

    file   of the state
    out    the folder or URL of the tables health, devices and gaps
    every  s between two refreshes of these tables, and more if one takes more than a tenth
    """

    def __init__(self, file: Path, out: str, every: float) -> None:
        self.file = file
        self._snapshots = Snapshots(file, out)
        self._every = every
        self._once: Once | None = None
        self._worker = ThreadPoolExecutor(1, "health")
        self._refreshing: Future[float] | None = None
        self._due = time.monotonic() + every

    def writes(self, once: Once) -> Once:
        """Note who writes the state now; the one from before is of no use then."""
        if self._once is not None:
            self._once.close()
        self._once = once
        return once

    def look(self) -> bool:
        """Have the tables refreshed in the background if they are due.

        Returns whether a refresh has ended, and raises what it has raised.
        """
        done = self._refreshing
        ended = done is not None and done.done()
        if done is not None and ended:
            self._refreshing = None
            self._due = time.monotonic() + self._every  # also if it has failed
            self._due = time.monotonic() + max(self._every, _SHARE * done.result())
        if self._refreshing is None and time.monotonic() > self._due:
            self._refreshing = self._worker.submit(self._snapshots.refresh)
        return ended

    def refresh(self) -> None:
        """Write the tables as they are now."""
        self._snapshots.refresh()

    def close(self) -> None:
        """Wait for a refresh that is under way, and close the file."""
        self._worker.shutdown()
        if self._once is not None:
            self._once.close()


# Which boots are closed


def _close(store: Store, written: set[int]) -> None:
    """Note which boots are closed now, and in which partition, of which some are written."""
    with store.writing() as db:
        for part, stale in db.execute("SELECT part, stale FROM parts").fetchall():
            if stale or part not in written:
                new = _number()
                db.execute("UPDATE closed_boots SET part = ? WHERE part = ?", (new, part))
                db.execute("UPDATE parts SET part = ?, stale = 1 WHERE part = ?", (new, part))
        db.execute(
            "DELETE FROM parts "
            "WHERE NOT EXISTS (SELECT 1 FROM closed_boots WHERE closed_boots.part = parts.part)"
        )
    with store.reading() as db:
        due = len(_closable(db)[2])
    if due:
        with store.writing() as db:
            _close_all(db, *_closable(db))


def _number() -> int:
    return 1 + secrets.randbelow(1 << 53)


def _closable(db: sqlite3.Connection) -> tuple[int, Records, Ints]:
    """Return the time, the open boots, and which of them are to be closed: the oldest first.

    That is once a day, or sooner if there are many.
    """
    (now,) = db.execute("SELECT coalesce(max(now), 0) FROM place").fetchone()
    (last,) = db.execute("SELECT max(closed) FROM parts").fetchone()
    boots, devices = (Records.paged(db, kind) for kind in (OPEN_BOOTS, KNOWN))
    of = np.searchsorted(devices["device"], boots["device"])
    behind = np.searchsorted(boots["device"], boots["device"], "right") - np.arange(len(of)) - 1
    over = (boots["last"] < now - DAY) | (behind >= _OPEN)
    for name in ("newest", "top"):
        over &= boots["boot"] != devices[name][of]
    some = np.flatnonzero(over)
    due = last is None or len(some) >= _MANY or not -DAY < now - last < DAY
    return now, boots, some[np.argsort(boots["last"][some], kind="stable")] if due else some[:0]


def _close_all(db: sqlite3.Connection, now: int, boots: Records, closable: Ints) -> None:
    """Close boots, in partitions.

    With those of another one if half of that is free: otherwise there would be one for each day.
    """
    each = [(_number(), closable[at : at + _BOOTS]) for at in range(0, len(closable), _BOOTS)]
    closed_boots.close(db, boots, each)
    for part, _ in each:
        small = db.execute(
            "SELECT part FROM parts "
            "WHERE (SELECT count(*) FROM closed_boots WHERE closed_boots.part = parts.part) < ? "
            "LIMIT 1",
            (_BOOTS // 2,),
        ).fetchone()
        if small is not None:
            db.execute("UPDATE closed_boots SET part = ? WHERE part = ?", (part, *small))
            db.execute("DELETE FROM parts WHERE part = ?", small)
        db.execute("INSERT INTO parts (part, closed, stale) VALUES (?, ?, 1)", (part, now))
