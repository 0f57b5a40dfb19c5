"""Merge the small files of a Parquet table by days, while it is written and read.

A day that is merged is built beside as a hidden folder: hard links of what stays, and one file for
what is merged. That folder and the day's are exchanged in one step. A kill leaves a hidden folder,
which the next start removes.

Readers list a day first and its folders later, and many pass over a folder that has gone by then.
So merged rows are in the folder of the *first* of their batches: a reader that has seen the folder
of any of them has seen that one, too, however many merges come in between. A file that was listed
and is gone fails when it is opened, so no reader counts a row twice.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

import pyarrow as pa
import pyarrow.parquet as pq

from . import durable
from .exchange import ExchangeError, exchange
from .layout import DAY, PREFIX, RECORDS, index_name, index_text, is_index, number
from .move_over import has_int96

HIDDEN = ".merge-"
TARGET = 128 << 20
"""Bytes of a merged file, about; what is half as large stays as it is."""
MANY = 100
"""Batches of a day under way, from which they are merged."""
LEVEL = 30
"""Merged folders of a day under way, from which they are merged again."""
SETTLED = 600.0
"""s that a day which is over has had no new batch when its last ones are merged."""
_READ = 65_536  # rows that are read at a time
_GROUP = 32 << 20  # bytes of rows, in memory, of a row group
_COMPRESSION = "zstd"

Batches = list[tuple[int, list[int]]]


@dataclass
class _Folder:
    """The folder of a batch, or of several that were merged; `batch` is the first of them."""

    path: Path
    batch: int
    size: int
    changed: float
    index: Path | None


class Merger:
    """Merges the days of a table on this machine. Only one may be at work on a table.

    folder  of the table
    moving  held by the sink while it adds a batch to a day
    target, many, level, settled
            as TARGET, MANY, LEVEL and SETTLED
    stop    set from another thread, it ends a merge that is under way
    """

    def __init__(
        self, folder: Path, moving: Lock, target: int = TARGET, many: int = MANY,
        level: int = LEVEL, settled: float = SETTLED, stop: Event | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._stop = stop or Event()
        self._moving = moving
        self._target = target
        self._many = many
        self._level = level
        self._settled = settled
        self._quiet: dict[str, int] = {}  # days that are over and merged: when they changed last
        for left in folder.glob(f"{HIDDEN}*"):  # of a merge that a kill interrupted
            shutil.rmtree(left)

    def merge(self) -> int:
        """Merge what is due in each day, and return how many folders of batches there are less.
        ExchangeError if the system cannot exchange folders."""
        newest = self._newest()
        if newest is None:
            return 0
        today = f"{DAY}{datetime.datetime.now(datetime.timezone.utc).date()}"
        less = 0
        for day in sorted(path for path in self.folder.iterdir() if path.name.startswith(DAY)):
            if self._stop.is_set():
                break
            if day.name < today:
                changed = day.stat().st_mtime_ns
                if self._quiet.get(day.name) == changed:
                    continue
                less += self._day(day, newest, over=True)
                if self._is_merged(day, newest):
                    self._quiet[day.name] = day.stat().st_mtime_ns
            else:
                less += self._day(day, newest, over=False)
        return less

    def _newest(self) -> int | None:
        """The newest batch of the table, which stays as it is."""
        with contextlib.suppress(FileNotFoundError):
            names = [path.stem for path in (self.folder / RECORDS).glob("[0-9]*.json")]
            return max(map(int, names), default=None)
        return None

    def _is_merged(self, day: Path, newest: int) -> bool:
        folders = self._folders(day)
        return not self._groups(folders, [one for one in folders if self._is_small(one, newest)])

    def _is_small(self, one: _Folder, newest: int) -> bool:
        return one.size < self._target // 2 and one.batch != newest

    def _folders(self, day: Path) -> list[_Folder]:
        found = []
        for path in day.iterdir():
            batch = number(path.name)
            if batch is None:
                continue
            files = [*path.iterdir()]
            stats = [file.stat() for file in files if file.suffix == ".parquet"]
            found.append(
                _Folder(
                    path, batch, sum(stat.st_size for stat in stats), path.stat().st_mtime,
                    next((file for file in files if is_index(file.name)), None),
                )
            )  # fmt: skip
        return sorted(found, key=lambda one: one.batch)

    def _day(self, day: Path, newest: int, over: bool) -> int:
        """Merge what is due in a day; return by how many folders it has fewer."""
        folders = self._folders(day)
        small = [one for one in folders if self._is_small(one, newest)]
        if over:
            quiet = time.time() - max((one.changed for one in small), default=0) > self._settled
            chosen = small if quiet or len(small) > self._many else []
        else:
            plain = [one for one in small if one.index is None]
            merged = [one for one in small if one.index is not None]
            chosen = plain if len(plain) >= self._many else []
            if chosen and len(merged) >= self._level:
                chosen = small
        groups = self._groups(folders, chosen)
        if not groups:
            return 0
        hidden = self.folder / f"{HIDDEN}{uuid.uuid4().hex}"
        hidden.mkdir()
        try:
            for group in groups:
                _write(group, hidden, self._stop)
                if self._stop.is_set():
                    return 0
            gone = {one.path.name for group in groups for one in group}
            self._linked(day, hidden, gone)
            durable.tree(hidden)
            with self._moving:
                self._linked(day, hidden, gone)
                durable.path(hidden)
                exchange(hidden, day)
                durable.path(self.folder)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)
        return len(gone) - len(groups)

    def _groups(self, folders: list[_Folder], chosen: list[_Folder]) -> list[list[_Folder]]:
        """Return the groups of chosen folders that are to be one file each.

        Those of a group follow each other in the day: each folder has all batches from its own
        number to the next folder's.
        """
        groups: list[list[_Folder]] = [[]]
        size = 0
        for one in folders:
            if one not in chosen or size + one.size > self._target:
                groups.append([])
                size = 0
            if one in chosen:
                groups[-1].append(one)
                size += one.size
        return [group for group in groups if len(group) > 1]

    def _linked(self, day: Path, hidden: Path, gone: set[str]) -> None:
        """Link the files of all other folders of the day into the hidden folder.

        Those that are linked already are left alone.
        """
        for path in day.iterdir():
            if path.name in gone or (hidden / path.name).exists():
                continue
            target = hidden / path.name
            target.mkdir()
            for file in path.iterdir():
                os.link(file, target / file.name)
            durable.path(target)


def can_merge(folder: Path) -> bool:
    """Return whether folders can be exchanged here."""
    pair = [folder / f"{HIDDEN}{uuid.uuid4().hex}" for _ in range(2)]
    try:
        for path in pair:
            path.mkdir(parents=True)
        exchange(*pair)
    except ExchangeError:
        return False
    finally:
        for path in pair:
            shutil.rmtree(path, ignore_errors=True)
    return True


def _write(group: list[_Folder], hidden: Path, stop: Event) -> None:
    """Write one file of the rows of these folders, in their order, and its index.

    It is unfinished after a `stop`.
    """
    mark = uuid.uuid4().hex
    target = hidden / f"{PREFIX}{group[0].batch}"
    target.mkdir()
    name = f"merged-{mark}.parquet"
    files = [(one, file) for one in group for file in _files(one)]
    schema = merged_schema(file for _, file in files)
    batches: Batches = []
    with pq.ParquetWriter(
        target / name, schema, compression=_COMPRESSION,
        use_deprecated_int96_timestamps=any(has_int96(file) for _, file in files),
    ) as writer:  # fmt: skip
        for rows in grouped(rows for _, file in files for rows in read(file, schema)):
            writer.write_table(rows)
            if stop.is_set():
                return
    for one in group:
        batches += batches_of(one.path)
    (target / index_name(mark)).write_text(index_text(name, batches))


def _files(one: _Folder) -> list[Path]:
    return sorted(path for path in one.path.iterdir() if path.suffix == ".parquet")


def batches_of(folder: Path) -> Batches:
    """Return the batches in a folder of a day, with the rows of each of their files."""
    index = next((path for path in folder.iterdir() if is_index(path.name)), None)
    if index is not None:
        known = json.loads(index.read_text())["batches"]
        return [(batch, parts) for batch, parts in known]
    files = sorted(path for path in folder.iterdir() if path.suffix == ".parquet")
    batch = number(folder.name)
    assert batch is not None
    return [(batch, [pq.read_metadata(file).num_rows for file in files])]


def merged_schema(files: Iterator[Path]) -> pa.Schema:
    """Return the columns of all these files: older ones may lack some."""
    schemas: list[pa.Schema] = []
    for file in files:
        # What Spark notes of its columns is of one file alone.
        found = pq.ParquetFile(file, coerce_int96_timestamp_unit="us").schema_arrow
        if (plain := found.remove_metadata()) not in schemas:
            schemas.append(plain)
    return pa.unify_schemas(schemas, promote_options="permissive")


def read(file: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of a file, a part at a time, with these columns."""
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    for batch in parquet.iter_batches(_READ):
        there = batch.schema.names
        yield pa.table(
            [
                batch.column(field.name).cast(field.type)
                if field.name in there
                else pa.nulls(len(batch), field.type)
                for field in schema
            ],
            schema=schema,
        )


def grouped(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows in groups of a size that readers like, and that memory has room for."""
    held: list[pa.Table] = []
    size = 0
    for part in parts:
        held.append(part)
        size += part.nbytes
        if size >= _GROUP:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)
