"""The lock of a run's folder: many runs may have it together, or one that changes it alone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

NAME = ".lock"


class InUseError(RuntimeError):
    """Another process has the folder; the text names it and says what to do."""


class InUse:
    """The lock of the folder OUT, held as a context manager or until `close`.

    folder  OUT; it must exist
    alone   True: nothing else may have the folder meanwhile

    The system releases the lock if the process dies. Raises InUseError if it cannot be had.
    """

    def __init__(self, folder: Path, alone: bool = False) -> None:
        file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            if alone:
                text = "a `flatmq pipeline run` or `forget`: end it first"
            else:
                text = "`flatmq pipeline forget`: start again when it has ended"
            raise InUseError(f"{folder} is in use by {text}") from error
        except OSError:
            os.close(file)
            raise
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
