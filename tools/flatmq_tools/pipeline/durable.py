"""Files and folders that outlive a power cut: what others wrote is synced to the disk by path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def path(file: Path) -> None:
    """Sync a file, or the names in a folder. Raises OSError if the disk fails."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write(file: Path, data: Any) -> None:
    """Write a file, and sync it; its name is not."""
    with file.open("wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(opened.fileno())


def tree(folder: Path) -> None:
    """Sync every file in a folder and its subfolders, and then their names."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path(Path(parent, name))
        path(Path(parent))


def upwards(file: Path, top: Path) -> None:
    """Sync a file, and the folders that it is in, up to `top`."""
    path(file)
    for folder in file.parents:
        path(folder)
        if folder == top:
            return


def batch(checkpoint: Path, number: int) -> None:
    """Sync what Spark noted about a batch before running it: which messages are in it.

    Otherwise a batch of the same number could hold more messages after a power cut, and be
    taken for one that is written already. The commit before it is synced too.
    """
    if not number:
        for name in ("metadata", ".metadata.crc"):
            if (checkpoint / name).exists():
                path(checkpoint / name)
        path(checkpoint)
    folders = {checkpoint / "offsets": number, checkpoint / "commits": number - 1}
    folders |= dict.fromkeys((checkpoint / "sources").glob("*"), number)
    for folder, last in folders.items():
        names = (f"{last}", f".{last}.crc", f"{last}.compact", f".{last}.compact.crc")
        there = [folder / name for name in names if (folder / name).exists()]
        for file in there:
            path(file)
        if there:
            path(folder)
