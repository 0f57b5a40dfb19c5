"""Locks of the folder of a run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

NAME = ".lock"
"""Of a `run`, which has the folder alone."""
INGEST = ".ingest.lock"
"""Of the ingests that write to its table raw, any number of them."""
MAINTENANCE = ".maintenance.lock"
"""Of whoever merges the files of its tables."""


class InUseError(RuntimeError):
    """Another process has the folder; the text names it and says what to do."""


class InUse:
    """A lock of the folder OUT of a run, held as a context manager or until `close`.

    folder  OUT, or that of --state; it must exist
    name    of the lock
    shared  True: others may have it, too

    The system releases the lock if the process dies. Raises InUseError if it cannot be had.
    """

    def __init__(self, folder: Path, name: str = NAME, shared: bool = False) -> None:
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = os.read(file, 20).decode(errors="replace").strip()
            os.close(file)
            by = "forget` or `ingest" if name == INGEST else "run` or `forget"
            raise InUseError(
                f"{folder} is in use by a `flatmq pipeline {by}`, process {pid}: end it first, or "
                "name another folder"
            ) from error
        except OSError:
            os.close(file)
            raise
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def close(self) -> None:
        """Let others have the folder. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> InUse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
