"""Locks of the folder of a run."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

NAME = ".lock"
"""Of a `run`, which has the folder alone."""
INGEST = ".ingest.lock"
"""Of the ingests that write to its table raw, any number of them."""
MAINTENANCE = ".maintenance.lock"
"""Of whoever merges the files of its tables."""


class InUseError(RuntimeError):
    """Another process has the folder; the text names it and says what to do."""


def locked(file: Path, taken: Callable[[str], Exception], shared: bool = False) -> int:
    """Lock a file, note this process in it, and return it open: who closes it unlocks it.

    Raises what `taken` makes of the process that has it.
    """
    opened = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(opened, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        pid = os.read(opened, 20).decode(errors="replace").strip() or "unknown"
        os.close(opened)
        if isinstance(error, BlockingIOError):
            raise taken(pid) from error
        raise
    os.ftruncate(opened, 0)
    os.pwrite(opened, f"{os.getpid()}\n".encode(), 0)
    return opened


@contextlib.contextmanager
def lock(folder: Path, name: str = NAME, shared: bool = False) -> Iterator[None]:
    """Hold a lock of the folder OUT of a run.

    folder  OUT, or that of --state; it must exist
    name    of the lock
    shared  True: others may have it, too

    The system releases the lock if the process dies. Raises InUseError if it cannot be had.
    """
    by = "forget` or `ingest" if name == INGEST else "run` or `forget"
    file = locked(
        folder / name,
        lambda pid: InUseError(
            f"{folder} is in use by a `flatmq pipeline {by}`, process {pid}: end it first, or "
            "name another folder"
        ),
        shared,
    )
    try:
        yield
    finally:
        os.close(file)
