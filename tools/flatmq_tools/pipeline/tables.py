"""The tables of a run: Delta tables in a folder or at a URL, such as that of an object store."""

from __future__ import annotations

import re
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from . import delta_files

BY_DAY = {
    "raw": "timestamp", "dead_letters": "timestamp", "measurements": "received",
    "out_of_time": "received", "windows": "start",
}  # fmt: skip
"""The tables that grow, and the timestamp column whose day is the partition."""
SNAPSHOTS = ("health", "devices", "gaps")
"""The tables that are written again from time to time."""
FOLLOWERS = {"raw": ("measurements", "health"), "measurements": ("windows",)}
"""The queries of a run that read a table, and whose checkpoints have these names."""
MADE = {
    "measurements": ("measurements", "out_of_time", "dead_letters"), "windows": ("windows",),
}  # fmt: skip
"""By query, the tables that it adds to."""
_OLD = ("_query.json", "_batches", "batch=*", "day=*/batch=*", "open.parquet")
"""In the folder of a table of an early edition, which was Parquet by days."""
_OTHERS = ("delta", "iceberg", "checkpoints/raw", "*.parquet")
"""In its OUT, or in its folder of landed files."""
_UNOPENED = re.compile(r"%[0-9a-fA-F]{2}|[\[\]\\]")
"""What deltalake does not open again, or at all, in the path of a folder."""
_CAUSE = re.compile(r"\s*(\x1b\[\d*m)?↳(\x1b\[\d*m)?\s*")  # how deltalake shows one


class TablesError(ValueError):
    """The tables cannot be in that place, or be used. The text says why, and what to do."""


def of(out: str | Path, name: str) -> str:
    """Return the folder or URL of a table."""
    return f"{str(out).rstrip('/')}/{name}"


def opened(table: str | Path) -> DeltaTable | None:
    """Return the table in a folder or at a URL, as it is now; None if there is none.

    Raises TablesError if it is damaged, or cannot be opened in that place.
    """
    _check_path(table)
    try:
        return DeltaTable(str(table)) if DeltaTable.is_deltatable(str(table)) else None
    except DeltaError as error:
        raise TablesError(
            f"{table} is damaged: `flatmq pipeline rebuild` makes all but raw again "
            f"({reason(error)})"
        ) from error


def flat(text: str) -> str:
    """Return the text of an error with each cause that deltalake names in the line before it."""
    return _CAUSE.sub(": ", text)


def reason(error: BaseException) -> str:
    """Return an error in a line, with its causes, and without a trace that follows."""
    return next(iter(flat(str(error)).splitlines()), repr(error))


def is_run(folder: Path) -> bool:
    """Return whether a folder has tables of a run, or its checkpoints if they are at a URL."""
    there = (folder / name / "_delta_log" for name in (*BY_DAY, *SNAPSHOTS))
    return any(path.is_dir() for path in (folder / "checkpoints", *there))


def check(out: str | Path) -> None:
    """Raise TablesError if no tables can be there, or if they are of an early edition.

    Nothing is changed.
    """
    if "://" in str(out):
        _reach(str(out))
        return
    _check_path(out)
    patterns = [f"{table}/{name}" for table in (*BY_DAY, *SNAPSHOTS) for name in _OLD]
    found = next((path for each in (*patterns, *_OTHERS) for path in Path(out).glob(each)), None)
    if found is not None:
        raise TablesError(
            f"{found} is of an earlier edition of flatmq, whose tables this one cannot go on "
            f"with: name another folder, or move {out} away. Its tables stay readable as Parquet"
        )


def _check_path(folder: str | Path) -> None:
    if "://" in str(folder):
        return
    path = Path(folder).absolute().as_posix()
    if found := _UNOPENED.search(path):
        raise TablesError(
            f"the path of a table must not contain {found[0]}, with which deltalake cannot open "
            f"it: {path}"
        )


def _reach(url: str) -> None:
    try:
        delta_files.store(of(url, "raw")).get_file_info("_delta_log/_last_checkpoint")
    except Exception as error:  # deltalake has errors of its own for each store
        raise TablesError(
            f"OUT must be a folder, or a URL that deltalake can reach, not {url}: {reason(error)}"
        ) from error
