"""The progress of each query: a file with Spark's report of each batch, one per line.

The file is kept short: past a size it is renamed, replacing the one before, and a new one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

NAME = "progress.jsonl"
BEFORE = "progress.1.jsonl"
_LIMIT = 32 << 20  # B: some hours of three queries with a batch a second


def write(folder: Path, line: str, limit: int = _LIMIT) -> None:
    """Add a line without its end; from `limit` B on, the file becomes BEFORE."""
    with (folder / NAME).open("ab") as file:
        file.write(line.encode() + b"\n")
    if (folder / NAME).stat().st_size >= limit:
        (folder / NAME).replace(folder / BEFORE)


def lines(folder: Path) -> Iterator[str]:
    """Return the lines that are kept, oldest first; after a kill, the last may be torn."""
    for name in (BEFORE, NAME):
        file = folder / name
        if file.exists():
            yield from file.read_text(encoding="utf-8", errors="replace").splitlines()
