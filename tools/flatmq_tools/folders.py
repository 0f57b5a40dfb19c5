"""The folders of the boards' files and sketches, and the files that commands write."""

from __future__ import annotations

import contextlib
from pathlib import Path

_PACKAGE = Path(__file__).parent


def find(name: str) -> Path:
    """Return the folder `name` of the repository: "firmware" or "boards"."""
    installed = _PACKAGE / "share" / name
    return installed if installed.is_dir() else _PACKAGE.parents[1] / name


def write(file: Path, data: bytes) -> None:
    """Write a whole file, or raise OSError and leave it as it was: half an image could be flashed.

    Missing folders are made.
    """
    part = file.with_name(file.name + ".part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise OSError(error.errno, error.strerror, str(file)) from error
