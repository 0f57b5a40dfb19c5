"""Records of devices: numbers and lists, kept in rows of a table that hold many records each.

SQLite does about as much for a row of one record as for one of a hundred, and NumPy for a batch of
one record as for one of a thousand.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import groups
from .groups import BIN, RANGE, SHORT, Bools, Ints, Rows
from .values import UNKNOWN

_PAGE = 32  # devices: the records of so many fill a few pages of the file
_MANY = 4096  # devices, where rows are added and not replaced
ADDITIONS = 8
"""Rows that are added for the same devices before they are made one, at least; twice as many at
most, so that not all pages are due in the same batch."""
SPAN = np.dtype([("since", "<i8"), ("until", "<i8")])


@dataclass(frozen=True)
class Kind:
    """A table of records.

    names  of the numbers of a record: the first that are there make it unique
    lists  by name, what a record has several of
    keys   columns of a row besides `page`, which are numbers of its records
    size   devices of a page
    more   other columns of the table
    """

    table: str
    names: tuple[str, ...]
    lists: Mapping[str, np.dtype[Any]]
    keys: tuple[str, ...] = ()
    size: int = _PAGE
    more: str = "page INTEGER PRIMARY KEY"

    @property
    def schema(self) -> str:
        """The statement that makes the table."""
        blobs = ", ".join(f"{name} BLOB NOT NULL" for name in self.blobs)
        return f"CREATE TABLE {self.table} ({self.more}, {blobs});\n"

    @property
    def blobs(self) -> tuple[str, ...]:
        """The columns with records."""
        return ("numbers", *self.lists)

    def pages(self, devices: Ints) -> Ints:
        """Return the pages of devices, sorted."""
        found: Ints = np.unique(devices // self.size)
        return found


_BOOT = (
    "device", "boot", "first", "last", "received", "lowest", "lowest_at", "highest", "highest_at",
    "duplicates", "reordered", "floor", "old_missing", "old_since", "old_until", "before",
    "before_at",
)  # fmt: skip
KNOWN = Kind(
    "known", ("device", "first", "heard", "arrived", "newest", "top"), {"intervals": BIN}
)  # fmt: skip
"""Devices that send packs with numbers: with the boot that sent last, and the highest one."""
OPEN = Kind("open_boots", _BOOT, {"ranges": RANGE, "delays": BIN})
"""The boots that may change. `before` is the boot before each, as of its highest number."""
CLOSED = Kind(
    "closed_boots", _BOOT, {"ranges": RANGE, "delays": BIN, "silences": SPAN},
    more="device INTEGER NOT NULL, boot INTEGER NOT NULL, part INTEGER NOT NULL",
)  # fmt: skip
"""The others, a row for each, with the silences before their packs."""
SUMS = Kind(
    "closed_sums",
    ("device", "boots", "reboots", "received", "lost", "unheard", "duplicates", "reordered"),
    {"delays": BIN},
)
"""What the closed boots of each device add up to."""
SILENCES = Kind(
    "silences", ("device", "boot", "since", "until"), {}, size=_MANY, more="page INTEGER NOT NULL"
)
"""Intervals before packs of open boots, if they are or may become silences."""
UNNUMBERED = Kind(
    "unnumbered", ("device", "first", "heard", "arrived", "received", "duplicates"),
    {"delays": BIN, "intervals": BIN},
)  # fmt: skip
"""Devices by their packs without numbers."""
STEPS = Kind(
    "device_steps",
    ("width", "at", "device", "numbered", "first", "heard", "received", "lost", "unheard",
     "duplicates", "reordered"),
    {"delays": SHORT}, ("width", "at"), _MANY,
    "width INTEGER NOT NULL, at INTEGER NOT NULL, page INTEGER NOT NULL",
)  # fmt: skip
"""Devices by hour, day and month: records that are added up."""
STEP = Kind(
    "steps", ("width", "at", "messages", "packs", "dead", "first", "last"),
    {"devices": np.dtype(np.int64), "delays": SHORT},
)  # fmt: skip
"""All messages by second, minute, hour and day: see `history`."""
EVERY = (KNOWN, OPEN, SUMS, SILENCES, UNNUMBERED, STEPS)
"""All with pages."""
SCHEMA = "".join(kind.schema for kind in (*EVERY, CLOSED)) + (
    "CREATE UNIQUE INDEX closed_key ON closed_boots (device, boot);\n"
    "CREATE INDEX closed_part ON closed_boots (part);\n"
    "CREATE INDEX silences_page ON silences (page);\n"
    "CREATE INDEX device_steps_page ON device_steps (width, at, page);\n"
)


_ENDS: dict[str, np.ufunc] = {
    "first": np.minimum,
    **dict.fromkeys(("last", "heard", "width", "at", "numbered"), np.maximum),
}


@dataclass
class Records:
    """Records in the order of their keys."""

    kind: Kind
    numbers: dict[str, Ints]
    lists: dict[str, tuple[Ints, Rows]]
    """By name the place of the record, and the row, of each row."""

    def __len__(self) -> int:
        return len(self.numbers[self.kind.names[-1]])

    def __getitem__(self, name: str) -> Ints:
        return self.numbers[name]

    @classmethod
    def of(cls, kind: Kind, rows: Sequence[Sequence[bytes]]) -> Records:
        """Return the records in rows of the table, of which these are the first `kind.blobs`."""
        numbers, *lists = list(zip(*rows, strict=True)) or [()] * len(kind.blobs)
        width = len(kind.names) + len(kind.lists)
        table = np.frombuffer(b"".join(numbers), np.int64).reshape(-1, width).T.copy()
        every = np.arange(table.shape[1])
        sizes = table[len(kind.names) :]
        return cls(
            kind, dict(zip(kind.names, table, strict=False)),
            {
                name: (np.repeat(every, size), np.frombuffer(b"".join(blobs), kind.lists[name]))
                for name, size, blobs in zip(kind.lists, sizes, lists, strict=False)
            },
        )  # fmt: skip

    @classmethod
    def read(
        cls, db: sqlite3.Connection, kind: Kind, which: str = "", values: Sequence[Any] = ()
    ) -> Records:
        """Return the records of some rows: those that `which` says, which follows FROM."""
        text = f"SELECT {', '.join(kind.blobs)} FROM {kind.table} {which}"
        return cls.of(kind, db.execute(text, values).fetchall())

    @classmethod
    def bare(cls, db: sqlite3.Connection, kind: Kind) -> Records:
        """Return all records without their lists."""
        return cls.of(kind, db.execute(f"SELECT numbers FROM {kind.table}").fetchall())

    @classmethod
    def paged(cls, db: sqlite3.Connection, kind: Kind, pages: Ints | None = None) -> Records:
        """Return the records of some pages, or of all of them."""
        if pages is None:
            return cls.read(db, kind, "ORDER BY page")
        which = "WHERE page IN (SELECT value FROM json_each(?)) ORDER BY page"
        return cls.read(db, kind, which, (json.dumps(pages.tolist()),))

    def take(self, which: Ints | Bools) -> Records:
        """Return some of the records, in that order."""
        which = np.flatnonzero(which) if which.dtype == np.bool_ else which
        lists = {}
        for name, (group, rows) in self.lists.items():
            sizes = np.bincount(group, None, len(self))
            begins, size = (np.cumsum(sizes) - sizes)[which], sizes[which]
            of = np.repeat(np.arange(len(which)), size)
            lists[name] = of, rows[np.arange(len(of)) + (begins - np.cumsum(size) + size)[of]]
        numbers = {name: values[which] for name, values in self.numbers.items()}
        return Records(self.kind, numbers, lists)

    def including(self, *keys: Ints) -> tuple[Records, Ints]:
        """Return the records with those of `keys` that are not there, and the place of each key.

        keys  the first numbers of records
        """
        mine = [self.numbers[name] for name in self.kind.names[: len(keys)]]
        every = [np.concatenate(pair) for pair in zip(mine, keys, strict=True)]
        order = np.lexsort(every[::-1])
        place = np.empty(len(order), np.int64)
        first = groups.starts(*(each[order] for each in every))
        place[order] = np.cumsum(first) - 1
        old, found = place[: len(self)], place[len(self) :]
        count = int(np.count_nonzero(first))
        if count == len(self):
            return self, found
        numbers = {}
        for name, values in self.numbers.items():
            numbers[name] = np.full(count, UNKNOWN)
            numbers[name][old] = values
        for name, values in zip(self.kind.names, keys, strict=False):
            numbers[name][found] = values
        lists = {name: (old[group], rows) for name, (group, rows) in self.lists.items()}
        return Records(self.kind, numbers, lists), found

    def and_these(self, more: Records) -> Records:
        """Return these records and others, which may lack nothing that these have."""
        numbers = {
            name: np.concatenate([values, more.numbers[name]])
            for name, values in self.numbers.items()
        }
        lists = {}
        for name, (group, rows) in self.lists.items():
            others, other_rows = more.lists[name]
            both = np.concatenate([group, others + len(self)])
            lists[name] = both, groups.chained(rows, other_rows)
        return Records(self.kind, numbers, lists)

    def summed(self, *names: str) -> Records:
        """Return the sums of records that have the same numbers of these names."""
        order = np.lexsort([self[name] for name in names[::-1]])
        first = groups.starts(*(self[name][order] for name in names))
        heads, of = np.flatnonzero(first), np.empty(len(order), np.int64)
        of[order] = np.cumsum(first) - 1
        numbers = {name: self[name][order][heads] for name in self.numbers}
        for name in [*numbers] if len(heads) else ():
            if name not in names:
                numbers[name] = _ENDS.get(name, np.add).reduceat(self[name][order], heads)
        lists = {}
        for name, (group, rows) in self.lists.items():
            together = groups.added if rows.dtype.names else groups.pairs
            lists[name] = together(of[group], rows)
        return Records(self.kind, numbers, lists)

    def packed(self, begins: Ints, ends: Ints) -> list[list[bytes]]:
        """Return the columns `kind.blobs` of rows: of the records from each begin to its end."""
        sizes = [np.bincount(self.lists[name][0], None, len(self)) for name in self.kind.lists]
        table = np.stack([*(self.numbers[name] for name in self.kind.names), *sizes], axis=1)
        columns = [_cut(table, begins, ends)]
        for name, size in zip(self.kind.lists, sizes, strict=True):
            bounds = np.append(0, np.cumsum(size))
            columns.append(_cut(self.lists[name][1], bounds[begins], bounds[ends]))
        return columns

    def save(self, db: sqlite3.Connection, pages: Ints) -> None:
        """Replace what these pages have by the records in them."""
        page = self["device"] // self.kind.size
        begins, ends = (np.searchsorted(page, pages, side) for side in ("left", "right"))
        some = begins < ends
        gone = [(one,) for one in pages[~some].tolist()]
        db.executemany(f"DELETE FROM {self.kind.table} WHERE page = ?", gone)
        rows = zip(pages[some].tolist(), *self.packed(begins[some], ends[some]), strict=True)
        insert(db, self.kind, rows, "OR REPLACE", "page")

    def append(self, db: sqlite3.Connection, fold: Callable[[Records], Records]) -> None:
        """Add rows to the table, and `fold` those that many have been added to."""
        if not len(self):
            return
        kind, page = self.kind, self["device"] // self.kind.size
        keys = [*(self[name] for name in kind.keys), page]
        order = np.lexsort(keys[::-1])
        if (order[1:] < order[:-1]).any():
            self.take(order).append(db, fold)
            return
        begins = np.flatnonzero(groups.starts(*keys))
        names = (*kind.keys, "page")
        rows = [*zip(*(key[begins].tolist() for key in keys), strict=True)]
        columns = self.packed(begins, np.append(begins[1:], len(self)))
        insert(db, kind, ((*row, *more) for row, *more in zip(rows, *columns, strict=True)),
               "", *names)  # fmt: skip
        where = f"WHERE {' AND '.join(f'{name} = ?' for name in names)}"
        for row in rows:
            (count,) = db.execute(f"SELECT count(*) FROM {kind.table} {where}", row).fetchone()
            if count > ADDITIONS + row[-1] % (ADDITIONS + 1):
                one = fold(Records.read(db, kind, where, row))
                db.execute(f"DELETE FROM {kind.table} {where}", row)
                blobs = one.packed(np.array([0]), np.array([len(one)]))
                insert(db, kind, [(*row, *(blob for [blob] in blobs))], "", *names)


def insert(
    db: sqlite3.Connection, kind: Kind, rows: Any, conflict: str, *names: str
) -> None:  # fmt: skip
    """Insert rows with these columns and `kind.blobs`."""
    columns = (*names, *kind.blobs)
    places = ", ".join("?" * len(columns))
    text = f"INSERT {conflict} INTO {kind.table} ({', '.join(columns)}) VALUES ({places})"
    db.executemany(text, rows)


def forget(db: sqlite3.Connection, kind: Kind, device: int) -> int:
    """Remove the records of a device, and return how many there were."""
    text = f"SELECT rowid, {', '.join(kind.blobs)} FROM {kind.table} WHERE page = ?"
    removed = 0
    for rowid, *blobs in db.execute(text, (device // kind.size,)).fetchall():
        records = Records.of(kind, [blobs])
        others = records.take(records["device"] != device)
        if len(others) < len(records):
            removed += len(records) - len(others)
            found = others.packed(np.array([0]), np.array([len(others)]))
            sets = ", ".join(f"{name} = ?" for name in kind.blobs)
            values = (*(blob for [blob] in found), rowid)
            db.execute(f"UPDATE {kind.table} SET {sets} WHERE rowid = ?", values)
    return removed


def _cut(rows: Rows, begins: Ints, ends: Ints) -> list[bytes]:
    whole, size = rows.tobytes(), rows.nbytes // max(len(rows), 1)
    pairs = zip((begins * size).tolist(), (ends * size).tolist(), strict=True)
    return [whole[begin:end] for begin, end in pairs]
