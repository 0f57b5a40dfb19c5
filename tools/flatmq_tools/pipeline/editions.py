"""Refuse the folder of a run of an earlier edition, whose tables were not Delta."""

from __future__ import annotations

from pathlib import Path

from .tables import BY_DAY, SNAPSHOTS

_OLD = ("_query.json", "_batches", "batch=*", "day=*/batch=*", "open.parquet")
"""In the folder of a table that was Parquet by days."""
_OTHERS = ("delta", "iceberg", "checkpoints/raw", "*.parquet")
"""In OUT, or in the folder of landed files."""


class EditionError(ValueError):
    """The folder is of an earlier edition. The text says what to do."""


def check(out: Path) -> None:
    """Raise EditionError if tables or notes of an earlier edition are in the folder OUT.

    Nothing is changed.
    """
    patterns = [f"{table}/{name}" for table in (*BY_DAY, *SNAPSHOTS) for name in _OLD]
    found = next((path for each in (*patterns, *_OTHERS) for path in out.glob(each)), None)
    if found is not None:
        raise EditionError(
            f"{found} is of an earlier edition of flatmq, whose tables this one cannot go on "
            f"with: name another folder, or move {out} away. Its tables stay readable as Parquet"
        )
