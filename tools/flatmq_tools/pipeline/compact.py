"""How do many small files of a Delta table become a few large ones, while it is in use?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from rich.console import Console
from rich.table import Table

KEEP = 168  # hours
TARGET = 256  # MiB
_TRIES = 5  # where another one wrote to the table meanwhile


class CompactError(RuntimeError):
    """A table cannot be compacted; the text names it and says why."""


class Compacted(NamedTuple):
    """What became of a table."""

    name: str
    before: int
    """Files that it was made of,"""
    after: int
    """and is now."""
    removed: int
    """Old ones that are gone from the disk."""


def compact(folder: Path, keep: int = KEEP, target: int = TARGET) -> Iterator[Compacted]:
    """Rewrites the small files of the Delta tables in `folder`, one table after the other.

    keep    hours that the old files stay, for whoever has begun to read them; 0 where nobody
            reads, or writes
    target  MiB of a file, about

    Each table changes in one step: every reader finds each row once, before and after, and a query
    that appends goes on. CompactError.
    """
    tables = [path.parent for path in sorted(folder.glob("*/_delta_log"))]
    if not tables:
        raise CompactError(f"{folder}: there is no Delta table in it")
    for path in tables:
        try:
            yield _compact(path, keep, target)
        except DeltaError as error:
            raise CompactError(f"{path}: {error}") from error


def _compact(path: Path, keep: int, target: int) -> Compacted:
    before = len(DeltaTable(str(path)).file_uris())
    for left in reversed(range(_TRIES)):
        try:
            DeltaTable(str(path)).optimize.compact(target_size=target << 20)
            break
        except CommitFailedError:
            if not left:
                raise
    table = DeltaTable(str(path))
    removed = table.vacuum(keep, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    return Compacted(path.name, before, len(table.file_uris()), len(removed))


def main(folder: Path, keep: int, target: int) -> int:
    """Compacts, and says what became of each table. CompactError."""
    shown = Table()
    for name in ("table", "files before", "files now", "removed"):
        shown.add_column(name, justify="left" if name == "table" else "right")
    console = Console()
    with console.status(f"compacting the tables in {folder} ..."):
        for one in compact(folder, keep, target):
            shown.add_row(one.name, f"{one.before:,}", f"{one.after:,}", f"{one.removed:,}")
    console.print(shown)
    return 0
