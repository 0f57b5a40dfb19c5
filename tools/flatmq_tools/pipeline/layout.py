"""The layout of a Parquet table in its folder, and the place of the rows of a batch.

    TABLE/day=2026-01-31/batch=7/part-*.parquet    the rows of batch 7 that are of that day
    TABLE/day=2026-01-31/batch=9/merged-*.parquet  those of several batches, 9 the first of them,
    TABLE/day=2026-01-31/batch=9/_batches-*.json   and which of its rows are of which batch
    TABLE/_batches/7.json                          what was written of the newest batches
    TABLE/_query.json                              the query whose batches these are

Spark, pyarrow and others read TABLE by its partitions; what begins with `.` or `_` they pass over.
A table without days has its folders `batch=N` directly in TABLE, none of them merged.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

OWNER = "_query.json"
PREFIX = "batch="
DAY = "day="
RECORDS = "_batches"
MOVING = ".moving="
"""A batch that is committed, and not in its days yet."""
RECORD = "_batch.json"
"""In such a folder: the record of the batch, until it is moved to the others."""
RECENT = 100
"""Batches that have a record."""
_INDEX = "_batches-"
_TRIES = 100  # listings of a day that is merged meanwhile


class Piece(NamedTuple):
    """Rows of a batch that lie together: those of one of the files in which they were written."""

    day: str
    """The name of the folder of its day; empty in a table without days."""
    batch: int
    part: int
    """Which of the files of the batch in that day, in the order of their names."""
    path: str
    start: int
    """The row of the file at which it begins."""
    rows: int | None
    """None for the whole file."""


class Record(NamedTuple):
    """The number of rows that were written of a batch, and where."""

    rows: int
    days: list[str]
    """The folders of its days."""


def record_text(counts: dict[str, int]) -> str:
    """Return the text of the file of a record: rows by day."""
    return json.dumps({"days": counts})


def index_text(file: str, batches: list[tuple[int, list[int]]]) -> str:
    """Return the text of the index beside a merged file.

    It has, for each batch, the rows of each file in which they were written.
    """
    return json.dumps({"file": file, "batches": batches}, separators=(",", ":"))


def index_name(mark: str) -> str:
    """The name of the file that says which rows of a merged file are of which batch."""
    return f"{_INDEX}{mark}.json"


def is_index(name: str) -> bool:
    """Return whether a file in the folder of a batch is such a file."""
    return name.startswith(_INDEX)


def number(name: str) -> int | None:
    """Return the batch of a folder with that name; None for other names."""
    digits = name.removeprefix(PREFIX)
    return int(digits) if name.startswith(PREFIX) and digits.isdecimal() else None


def files(folder: Path) -> list[Path]:
    """The Parquet files of a table on this machine, of any layout, as readers find them."""
    found = folder.rglob("*.parquet")
    return sorted(
        path for path in found if all(p[0] not in "._" for p in path.relative_to(folder).parts)
    )


class Table:
    """A table as other processes write and merge it meanwhile.

    folder  a path or a URL that fsspec knows
    """

    def __init__(self, folder: str) -> None:
        self.fs, self.root = fsspec.core.url_to_fs(folder)
        self._indexes: dict[str, dict[str, Any]] = {}
        self.refresh()

    def refresh(self) -> None:
        """Forget what is known of the file system."""
        self.fs.invalidate_cache()

    def is_there(self) -> bool:
        """Return whether there is such a folder."""
        return bool(self.fs.exists(self.root))

    def owner(self) -> str | None:
        """Return the id of the query whose batches these are; None if none has begun."""
        try:
            return str(json.loads(self.fs.cat_file(f"{self.root}/{OWNER}"))["query"])
        except FileNotFoundError:
            return None

    def has_records(self) -> bool:
        """Return whether the newest batches have a record: in tables by day."""
        return bool(self.fs.exists(f"{self.root}/{RECORDS}"))

    def recorded(self) -> list[int]:
        """Return the batches that have a record, in their order."""
        names = self._names(f"{self.root}/{RECORDS}")
        return sorted(int(name[:-5]) for name in names if name[:-5].isdecimal())

    def record(self, batch: int) -> Record | None:
        """Return the record of a batch; None if it has none."""
        try:
            known = json.loads(self.fs.cat_file(f"{self.root}/{RECORDS}/{batch}.json"))["days"]
        except FileNotFoundError:
            return None
        return Record(sum(known.values()), list(known))

    def days(self) -> list[str]:
        """Return the names of the folders of days, in their order."""
        return sorted(name for name in self._names(self.root) if name.startswith(DAY))

    def first(self) -> int | None:
        """Return the first batch that has rows here; None if none has."""
        found = [n for name in self._names(self.root) if (n := number(name)) is not None]
        for day in self.days():
            for pieces in self._stable(day, 0, None).values():
                found += [piece.batch for piece in pieces[:1]]
        return min(found, default=None)

    def without_day(self, batch: int) -> list[Piece] | None:
        """Return the rows of a batch of a table without days; None if it is not there."""
        try:
            return self._plain("", batch)
        except FileNotFoundError:
            return None

    def of_days(
        self, first: int, end: int | None, days: Iterable[str] | None = None
    ) -> dict[int, list[Piece]]:
        """Return where the rows of the batches from `first` to before `end` lie.

        Only those in `days`, if given. Batches without rows are left out.
        """
        found: dict[int, list[Piece]] = {}
        for day in self.days() if days is None else days:
            for batch, pieces in self._stable(day, first, end).items():
                found.setdefault(batch, []).extend(pieces)
        return found

    def _stable(self, day: str, first: int, end: int | None) -> dict[int, list[Piece]]:
        """Return the same as `of_days`, for one day.

        If the day was exchanged while it was listed, it is listed again, because half of each
        may have been seen.
        """
        for _ in range(_TRIES):
            self.refresh()
            before = self._numbers(day)
            with contextlib.suppress(FileNotFoundError):
                found = self._of_day(day, before, first, end)
                self.refresh()
                if set(before) <= set(self._numbers(day)):
                    return found
        raise OSError(f"{self.root}/{day} changes all the time: does another process write here?")

    def _of_day(
        self, day: str, numbers: list[int], first: int, end: int | None
    ) -> dict[int, list[Piece]]:
        found: dict[int, list[Piece]] = {}
        for n, following in itertools.zip_longest(numbers, numbers[1:]):
            # A folder has batches from its own number up to the next folder's. Earlier versions
            # gave it the number of the last of them.
            if following is not None and following <= first:
                continue
            names = self._names(f"{self.root}/{day}/{PREFIX}{n}", must=True)
            index = next((name for name in names if is_index(name)), None)
            if index is None:
                if first <= n and (end is None or n < end):
                    found.setdefault(n, []).extend(self._plain(day, n))
                continue
            for piece in self._merged(day, n, index):
                if first <= piece.batch and (end is None or piece.batch < end):
                    found.setdefault(piece.batch, []).append(piece)
        return found

    def _plain(self, day: str, batch: int) -> list[Piece]:
        within = f"{day}/{PREFIX}{batch}" if day else f"{PREFIX}{batch}"
        folder = f"{self.root}/{within}"
        names = sorted(n for n in self._names(folder, must=True) if n.endswith(".parquet"))
        return [
            Piece(day, batch, part, f"{folder}/{name}", 0, None) for part, name in enumerate(names)
        ]

    def _merged(self, day: str, number: int, name: str) -> Iterator[Piece]:
        folder = f"{self.root}/{day}/{PREFIX}{number}"
        if name not in self._indexes:
            self._indexes[name] = json.loads(self.fs.cat_file(f"{folder}/{name}"))
        index, start = self._indexes[name], 0
        path = f"{folder}/{index['file']}"
        for batch, parts in index["batches"]:
            for part, rows in enumerate(parts):
                yield Piece(day, batch, part, path, start, rows)
                start += rows

    def _numbers(self, day: str) -> list[int]:
        names = self._names(f"{self.root}/{day}")
        return sorted(n for name in names if (n := number(name)) is not None)

    def _names(self, folder: str, must: bool = False) -> list[str]:
        """The names in a folder; FileNotFoundError if it `must` be there."""
        try:
            paths = self.fs.ls(folder, detail=False)
        except FileNotFoundError:
            if must:
                raise
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in paths]
