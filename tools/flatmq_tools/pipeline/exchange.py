"""Exchange two folders in one step, where the system can."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE


class ExchangeError(OSError):
    """The operating system or the file system has no such step."""


def exchange(one: Path, other: Path) -> None:
    """Give each of two folders the name of the other, in one step.

    There is no moment in which one of the names is missing. Raises ExchangeError if the system
    cannot do this, and OSError for any other failure.
    """
    try:
        step = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        raise ExchangeError(errno.ENOSYS, "this system cannot exchange folders") from None
    paths = os.fsencode(one), os.fsencode(other)
    if step(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _EXCHANGE):
        number = ctypes.get_errno()
        kind = ExchangeError if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP) else OSError
        raise kind(number, os.strerror(number), str(other))
