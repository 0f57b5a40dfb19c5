"""Know a full disk by its error, and find out when it has room again."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_TEXTS = (*(os.strerror(number) for number in _NUMBERS), "database or disk is full")
_PROBE = 4 << 20  # bytes that must fit before anything is tried again
_NAME = ".flatmq-room"  # of the file that tries it, followed by the process


def is_full(error: BaseException | str) -> bool:
    """Return whether an error, or its text, says that a disk is full or a quota is used up."""
    if isinstance(error, OSError) and error.errno in _NUMBERS:
        return True
    text = str(error)
    return any(known in text for known in _TEXTS)


def has_room(folders: Iterable[Path]) -> bool:
    """Return whether none of these folders is too full for a file of 4 MiB, which is removed.

    What else is wrong with a folder, whoever writes there finds out and reports.
    """
    return all(map(_takes, folders))


def _takes(folder: Path) -> bool:
    probe = folder / f"{_NAME}-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return not is_full(error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return True
