"""Rewrite the many small files of Delta tables as a few large ones, while they are in use."""

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
NAMES = (
    "raw", "measurements", "dead_letters", "out_of_time", "windows", "health", "devices", "gaps",
)  # fmt: skip
"""The tables of a run. The folders at a URL cannot be listed."""
_TRIES = 5  # if another process writes to the table meanwhile


class CompactError(RuntimeError):
    """Tables cannot be compacted; the text names them and says why."""


class Compacted(NamedTuple):
    """The files of a table that was compacted."""

    name: str
    before: int
    """Files of the table before."""
    after: int
    """Files of the table now."""
    removed: int
    """Old files that were removed from the disk."""


def compact(folder: Path | str, keep: int = KEEP, target: int = TARGET) -> Iterator[Compacted]:
    """Rewrite the small files of the Delta tables in `folder`, one table after the other.

    Files that belong to no table are removed: old ones, and those of a batch that was not
    committed. Each table changes in one step: every reader finds each row once, before and after,
    and a query that appends goes on.

    folder  a path, or the URL that a run writes its tables to
    keep    hours for which such files stay, because somebody may still read or write them; 0 only
            if nobody does
    target  size of a file in MiB, about

    Raises CompactError if there is no table, and at the end if tables could not be compacted.
    """
    tables = _tables(folder)
    if not tables:
        raise CompactError(f"{folder} has no Delta table")
    broken = []
    for path in tables:
        try:
            found = _compact(path, keep, target)
        except DeltaError as error:
            reason = next(iter(str(error).splitlines()), "")  # a stack trace follows
            broken.append(f"{path}: {reason}")
        else:
            yield found
    if broken:
        raise CompactError("; ".join(broken))


def _tables(folder: Path | str) -> list[str]:
    if "://" not in str(folder):
        return [str(path.parent) for path in sorted(Path(folder).glob("*/_delta_log"))]
    there = (f"{str(folder).rstrip('/')}/{name}" for name in NAMES)
    return [url for url in there if DeltaTable.is_deltatable(url)]


def _compact(path: str, keep: int, target: int) -> Compacted:
    before = len(DeltaTable(path).file_uris())
    for left in reversed(range(_TRIES)):
        try:
            DeltaTable(path).optimize.compact(target_size=target << 20)
            break
        except CommitFailedError:
            if not left:
                raise
    table = DeltaTable(path)
    removed = table.vacuum(keep, dry_run=False, enforce_retention_duration=False, full=True)
    table.create_checkpoint()
    return Compacted(path.rpartition("/")[2], before, len(table.file_uris()), len(removed))


def main(folder: Path | str, keep: int, target: int) -> int:
    """Compact the tables, and print the files of each.

    Raises CompactError after that, if a table could not be compacted.
    """
    shown = Table()
    for name in ("table", "files before", "files now", "removed"):
        shown.add_column(name, justify="left" if name == "table" else "right")
    console = Console()
    try:
        with console.status(f"compacting the tables in {folder} ..."):
            for one in compact(folder, keep, target):
                shown.add_row(one.name, f"{one.before:,}", f"{one.after:,}", f"{one.removed:,}")
    finally:
        if shown.row_count:
            console.print(shown)
    return 0
