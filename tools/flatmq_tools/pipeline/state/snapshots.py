"""The tables health, devices and gaps, made of the state.

A boot is closed once a later one was heard and the last pack of it is a day old. What is to be
said of closed boots lies in files that do not change; a refresh computes the open ones alone, and
replaces their rows in the tables. A pack that comes late opens its boot again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from ..delta import replace
from ..tables import SNAPSHOTS, of
from . import tables
from .store import Place, Store
from .tables import Devices

_CLOSED = ("health", "gaps")  # of which there are files of closed boots
_DAY = 86_400_000_000  # us
_BOOTS = 5000  # in a file, at most, as it is written again if one of them changes
_MANY = 10_000  # boots that are closed without waiting for a day


class Snapshots:
    """Writes the tables of a run, from a state file.

    file  the state
    out   the folder or URL of the tables
    """

    def __init__(self, file: Path, out: str) -> None:
        self._file = file
        self._out = out
        self._kept = _folder_of_closed(file)
        self._one = threading.Lock()
        self._written: Place | None = None  # how far the messages were that the tables are of,
        self._closed: list[str] = []  # and the files of closed boots that are in them

    def refresh(self) -> float:
        """Write the tables as of now, and return how many seconds that took.

        Any thread may call it; one after the other does it.
        """
        with self._one:
            begun = time.monotonic()
            store = Store(self._file)
            try:
                self._refresh(store)
            finally:
                store.close()
            return time.monotonic() - begun

    def _refresh(self, store: Store) -> None:
        there = all(DeltaTable.is_deltatable(of(self._out, name)) for name in SNAPSHOTS)
        if there and store.place() == self._written:
            return  # Nothing came since.
        self._close(store)
        with store.reading() as db:
            place = store.place()
            if place is None:
                return
            files = [file for (file,) in db.execute("SELECT file FROM parts ORDER BY part")]
            devices = Devices(db)
            health, gaps = tables.of_boots(db, devices)
        gaps = pa.concat_tables([gaps, tables.open_silences(devices)])
        whole = not there or self._written is None or files != self._closed
        for name, table in (("health", health), ("gaps", gaps)):
            parts = [_marked(table, False)]
            if whole:
                closed = [self._kept / name / file for file in files]
                rows = [pq.read_table(file, schema=table.schema) for file in closed]
                parts += [_marked(each, True) for each in rows]
            where = None if whole else "closed = false"
            replace(pa.concat_tables(parts), of(self._out, name), by="closed", where=where)
        replace(devices.table(), of(self._out, "devices"))
        self._written, self._closed = place, files

    # Closed boots

    def _close(self, store: Store) -> None:
        """Write what is to be said of boots that are closed now, and what changed of others."""
        files = [file for (file,) in store.db.execute("SELECT file FROM parts")]
        if not all((self._kept / name / file).exists() for name in _CLOSED for file in files):
            with store.writing() as db:
                db.execute("DELETE FROM parts")
                db.execute("UPDATE boots SET part = NULL WHERE part IS NOT NULL")
        self._remove_others(store)
        stale = store.db.execute("SELECT part FROM parts WHERE stale").fetchall()
        for (part,) in stale:
            self._write_again(store, part)
        if stale:  # what they held may be of a device that was forgotten
            self._remove_others(store)
        (now,) = store.db.execute("SELECT max(now) FROM place").fetchone()
        if now is not None and self._is_due(store.db, now):
            while self._close_some(store, now):
                pass

    def _remove_others(self, store: Store) -> None:
        """Remove files that were written and not noted, or are no longer in use."""
        known = {file for (file,) in store.db.execute("SELECT file FROM parts")}
        for name in _CLOSED:
            folder = self._kept / name
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.iterdir():
                if path.name not in known:
                    path.unlink()

    def _write_again(self, store: Store, part: int) -> None:
        """Write a file of closed boots without those that were opened again."""
        with store.writing() as db:
            (closed,) = db.execute("SELECT closed FROM parts WHERE part = ?", (part,)).fetchone()
            db.execute("DELETE FROM parts WHERE part = ?", (part,))
            self._write(db, part, closed)

    def _close_some(self, store: Store, now: int) -> bool:
        """Write a file of boots that are closed now; return False if there was none."""
        with store.writing() as db:
            if not db.execute(f"SELECT 1 {_CLOSABLE} LIMIT 1", (now - _DAY,)).fetchone():
                return False
            part = 1 + db.execute("SELECT coalesce(max(part), 0) FROM parts").fetchone()[0]
            self._fill(db, part)
            db.execute(
                "UPDATE boots SET part = ? WHERE id IN "
                f"(SELECT boots.id {_CLOSABLE} ORDER BY boots.last LIMIT ?)",
                (part, now - _DAY, _BOOTS),
            )
            self._write(db, part, now)
        return True

    def _fill(self, db: sqlite3.Connection, part: int) -> None:
        """Take the last file into a new one, if half of a file is free in it.

        Otherwise there would be one for each day.
        """
        small = db.execute(
            "SELECT part FROM parts WHERE part = (SELECT max(part) FROM parts) "
            "AND (SELECT count(*) FROM boots WHERE boots.part = parts.part) < ?",
            (_BOOTS // 2,),
        ).fetchone()
        if small is not None:
            db.execute("UPDATE boots SET part = ? WHERE part = ?", (part, *small))
            db.execute("DELETE FROM parts WHERE part = ?", small)

    def _write(self, db: sqlite3.Connection, part: int, closed: int) -> None:
        """Write the file of a part, if any boot is in it, and note its name."""
        written = tables.of_boots(db, Devices(db), "boots.part = ?", (part,))
        if len(written[0]):
            file = f"{uuid.uuid4().hex}.parquet"
            for name, table in zip(_CLOSED, written, strict=True):
                pq.write_table(table, self._kept / name / file)
            db.execute(
                "INSERT INTO parts (part, file, closed) VALUES (?, ?, ?)", (part, file, closed)
            )

    def _is_due(self, db: sqlite3.Connection, now: int) -> bool:
        """Return whether boots are to be closed: once a day, or sooner if there are many."""
        (count,) = db.execute(f"SELECT count(*) {_CLOSABLE}", (now - _DAY,)).fetchone()
        (last,) = db.execute("SELECT max(closed) FROM parts").fetchone()
        return count > 0 and (last is None or count >= _MANY or not -_DAY < now - last < _DAY)


def _marked(table: pa.Table, closed: bool) -> pa.Table:
    """Return rows with a column that says whether they are of closed boots."""
    return table.append_column("closed", pa.array([closed] * len(table), pa.bool_()))


_CLOSABLE = (
    "FROM boots JOIN devices ON devices.id = boots.device "
    "WHERE boots.part IS NULL AND boots.boot != devices.newest AND boots.last < ?"
)


def closed_files(db: sqlite3.Connection, file: Path) -> list[tuple[int, Path]]:
    """Return the number and file of each part of the table gaps with closed boots.

    The parts are those that are not stale, from a state in `file`. A file that is no longer
    there was replaced since.
    """
    rows = db.execute("SELECT part, file FROM parts WHERE NOT stale ORDER BY part").fetchall()
    return [(part, _folder_of_closed(file) / "gaps" / name) for part, name in rows]


def _folder_of_closed(file: Path) -> Path:
    return file.parent / f"{file.stem}.closed"
