"""The tables health, devices and gaps, made of the state.

A boot is closed once a later one was heard and the last pack of it is a day old. The rows of some
thousands of closed boots are a partition of the tables, with a number that no other one ever has:
a refresh leaves it as it is, and replaces the rest. A pack that comes late opens its boot again,
and what is left of that partition gets another number.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from ..delta import replace
from ..tables import SNAPSHOTS, of
from . import tables
from .store import Place, Store
from .tables import Devices

OPEN = 0
"""The partition of boots that are not closed."""
_DAY = 86_400_000_000  # us
_BOOTS = 5000  # in a partition, at most, as it is written again if one of them changes
_MANY = 10_000  # boots that are closed without waiting for a day


class Snapshots:
    """Writes the tables of a run, from a state file.

    file  the state
    out   the folder or URL of the tables
    """

    def __init__(self, file: Path, out: str) -> None:
        self._file = file
        self._out = out
        self._one = threading.Lock()
        self._written: Place | None = None  # how far the messages were that the tables are of

    def refresh(self) -> float:
        """Write the tables as of now, and return how many seconds that took.

        Any thread may call it; one after the other does it.
        """
        with self._one:
            begun = time.monotonic()
            with Store(self._file) as store:
                self._refresh(store)
            return time.monotonic() - begun

    def _refresh(self, store: Store) -> None:
        health, gaps = (of(self._out, name) for name in ("health", "gaps"))
        there = all(DeltaTable.is_deltatable(of(self._out, name)) for name in SNAPSHOTS)
        if there and store.place() == self._written:
            return  # Nothing came since.
        _close(store, parts(health) if there else set())
        with store.reading() as db:
            place = store.place()
            if place is None:
                return
            right = [part for (part,) in db.execute("SELECT part FROM parts WHERE NOT stale")]
            stale = db.execute("SELECT part, stale FROM parts WHERE stale").fetchall()
            devices = Devices(db)
            found = [(OPEN, *tables.of_boots(db, devices))]
            found += [(part, *tables.of_part(db, devices, part)) for part, _ in stale]
        where = f"part NOT IN ({', '.join(map(str, right))})" if right else None
        lasting = _marked(OPEN, tables.open_silences(devices))
        for rows, folder in (
            ([_marked(part, one) for part, one, _ in found], health),
            ([lasting, *(_marked(part, one) for part, _, one in found)], gaps),
        ):
            replace(pa.concat_tables(rows), folder, by="part", where=where)
        replace(devices.table(), of(self._out, "devices"))
        with store.writing() as db:
            db.executemany("UPDATE parts SET stale = 0 WHERE part = ? AND stale = ?", stale)
        self._written = place


def parts(folder: str) -> set[int]:
    """Return the partitions of a table that has some rows."""
    return {int(each["part"]) for each in DeltaTable(folder).partitions()}


def _marked(part: int, table: pa.Table) -> pa.Table:
    """Return rows with their partition, and whether they are of closed boots."""
    closed = pa.array([part != OPEN] * len(table), pa.bool_())
    number = pa.array([part] * len(table), pa.int64())
    return table.append_column("closed", closed).append_column("part", number)


# Which boots are closed


def _close(store: Store, written: set[int]) -> None:
    """Note which boots are closed now, and in which partition, of which some are written."""
    with store.writing() as db:
        for part, stale in db.execute("SELECT part, stale FROM parts").fetchall():
            if stale or part not in written:
                new = _number()
                db.execute("UPDATE boots SET part = ? WHERE part = ?", (new, part))
                db.execute("UPDATE parts SET part = ?, stale = 1 WHERE part = ?", (new, part))
        db.execute(
            "DELETE FROM parts "
            "WHERE NOT EXISTS (SELECT 1 FROM boots WHERE boots.part = parts.part)"
        )
        (now,) = db.execute("SELECT max(now) FROM place").fetchone()
        if now is not None and _is_due(db, now):
            while _close_some(db, now):
                pass


def _number() -> int:
    return 1 + secrets.randbelow(1 << 53)


_CLOSABLE = (
    "FROM boots JOIN devices ON devices.id = boots.device "
    "WHERE boots.part IS NULL AND boots.boot != devices.newest AND boots.last < ?"
)


def _is_due(db: sqlite3.Connection, now: int) -> bool:
    """Return whether boots are to be closed: once a day, or sooner if there are many."""
    (count,) = db.execute(f"SELECT count(*) {_CLOSABLE}", (now - _DAY,)).fetchone()
    (last,) = db.execute("SELECT max(closed) FROM parts").fetchone()
    return count > 0 and (last is None or count >= _MANY or not -_DAY < now - last < _DAY)


def _close_some(db: sqlite3.Connection, now: int) -> bool:
    """Close boots, as many as a partition has; return False if there was none.

    With those of another one if half of that is free: otherwise there would be one for each day.
    """
    small = db.execute(
        "SELECT part FROM parts "
        "WHERE (SELECT count(*) FROM boots WHERE boots.part = parts.part) < ? LIMIT 1",
        (_BOOTS // 2,),
    ).fetchone()
    part = _number()
    closed = db.execute(
        f"UPDATE boots SET part = ? WHERE id IN (SELECT boots.id {_CLOSABLE} "
        "ORDER BY boots.last LIMIT ?)",
        (part, now - _DAY, _BOOTS),
    ).rowcount
    if not closed:
        return False
    if small is not None:
        db.execute("UPDATE boots SET part = ? WHERE part = ?", (part, *small))
        db.execute("DELETE FROM parts WHERE part = ?", small)
    db.execute("INSERT INTO parts (part, closed, stale) VALUES (?, ?, 1)", (part, now))
    return True
