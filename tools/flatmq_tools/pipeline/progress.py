"""The progress of each query: a file with Spark's report of each batch, one per line.

The file is kept short: past a size it is renamed, replacing the one before, and a new one begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

NAME = "progress.jsonl"
BEFORE = "progress.1.jsonl"
_LIMIT = 32 << 20  # B: some hours of three queries with a batch a second


class Progress:
    """A writer of lines to the file NAME in an existing folder.

    limit  B from which on the file becomes BEFORE
    """

    def __init__(self, folder: Path, limit: int = _LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._open()

    def _open(self) -> None:
        self._file = (self._folder / NAME).open("ab")

    def write(self, line: str) -> None:
        """Add a line without its end; readers see it at once."""
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        if self._file.tell() >= self._limit:
            self._file.close()
            (self._folder / NAME).replace(self._folder / BEFORE)
            self._open()

    def close(self) -> None:
        """No line can be written any more."""
        self._file.close()


def lines(folder: Path) -> Iterator[str]:
    """Return the lines that are kept, oldest first; after a kill, the last may be torn."""
    for name in (BEFORE, NAME):
        file = folder / name
        if file.exists():
            yield from file.read_text(encoding="utf-8", errors="replace").splitlines()
