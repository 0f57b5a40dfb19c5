"""Follow a Delta table by the versions of its log, in batches of limited rows and bytes.

A position is a number, so that a commit can note it. It names the file that comes next: one of
those that a version of the log adds or, where a job begins, one of all that the table has in that
version.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow.fs import FileType

from .table import File, listed, store

ROWS = 1_000_000
"""Rows of a batch, at most,"""
BYTES = 256 << 20
"""and bytes of its files. A single file may have more."""
_FILES = 20  # bits of the number of a file


class VersionsError(RuntimeError):
    """The table cannot be followed; the text says why, and what to do."""


class _Place(NamedTuple):
    version: int
    follows: bool
    """Whether the files are those that the version adds, and not all."""
    file: int

    def number(self) -> int:
        return (self.version << 1 | self.follows) << _FILES | self.file

    @classmethod
    def of(cls, number: int) -> _Place:
        version, file = divmod(number, 1 << _FILES)
        return cls(version >> 1, bool(version & 1), file)


class Versions:
    """The versions of a table, which may be created later.

    folder       a path, or a URL that deltalake knows
    rows, size   limits of a batch
    """

    def __init__(
        self, folder: str | Path, rows: int = ROWS, size: int = BYTES,
        storage_options: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.folder = str(folder)
        self._rows, self._size = rows, size
        self._storage = storage_options
        self._table: DeltaTable | None = None
        self._kept: dict[tuple[int, bool], list[File]] = {}

    def batch(self, begin: int | None, end: int | None = None) -> tuple[int, list[File]] | None:
        """Return the end of a batch that begins at a position, and its files.

        begin  None for a job that has not begun
        end    what the end must be, of a batch that was begun before; else it is by the limits

        None if nothing is there. Raises VersionsError if entries of the log that come next were
        removed.
        """
        newest = self._newest()
        if newest is None:
            return None
        if begin is not None:
            at = _Place.of(begin)
        else:
            at = _Place(newest if end is None else _Place.of(end).version, False, 0)
            if end is not None and _Place.of(end).follows:
                at = _Place(at.version - 1, False, 0)  # all of the snapshot was read
        found: list[File] = []
        first, rows, size = at, 0, 0
        while at.version <= newest and (end is None or at.number() < end):
            files = self._files(at)
            for file in files[at.file :]:
                full = rows + file.rows > self._rows or size + file.size > self._size
                if (found and full and end is None) or at.number() == end:
                    return at.number(), found
                found.append(file)
                rows, size = rows + file.rows, size + file.size
                at = at._replace(file=at.file + 1)
            at = _Place(at.version + 1, True, 0)
        return None if at == first else (at.number(), found)

    def _newest(self) -> int | None:
        if self._table is not None:
            self._table.update_incremental()
        elif DeltaTable.is_deltatable(self.folder, self._storage):
            self._table = DeltaTable(self.folder, storage_options=self._storage)
        return None if self._table is None else self._table.version()

    def _files(self, at: _Place) -> list[File]:
        key = at.version, at.follows
        if key not in self._kept:
            if len(self._kept) > 1000:
                self._kept.clear()
            self._kept[key] = self._added(at.version) if at.follows else self._all(at.version)
        return self._kept[key]

    def _all(self, version: int) -> list[File]:
        table = DeltaTable(self.folder, version=version, storage_options=self._storage)
        found = listed(table)
        if len(found) >= 1 << _FILES:
            raise VersionsError(f"{self.folder}: {len(found):,} files: compact the table first")
        return found

    def _added(self, version: int) -> list[File]:
        """Return the files that a version appends; none if it rewrites rows that were there."""
        files, path = store(self.folder, self._storage), f"_delta_log/{version:020d}.json"
        if files.get_file_info(path).type is FileType.NotFound:
            raise VersionsError(
                f"{self.folder}: version {version} of the log was removed before it was read: "
                "rebuild what is made of the table"
            )
        with files.open_input_file(path) as file:
            actions = [json.loads(line) for line in file.read().splitlines() if line]
        added = [action["add"] for action in actions if "add" in action]
        if any("remove" in action for action in actions):
            return []
        return [
            File(
                unquote(one["path"]),
                json.loads(one.get("stats") or "{}").get("numRecords", 0),
                one["size"],
                one["partitionValues"],
            )
            for one in added
            if one["dataChange"]
        ]
