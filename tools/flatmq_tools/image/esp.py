"""One .bin of a firmware and what goes behind it, by esptool."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from ..boards import Board


class EsptoolError(RuntimeError):
    """esptool did not do it; the text has its words."""


def spelled(command: str) -> str:
    """Return an esptool command such as "write-flash" as the installed version spells it.

    Up to version 4 that is with underscores, which cause a warning from version 5 on.
    """
    old = int(version("esptool").split(".")[0]) < 5
    return command.replace("-", "_") if old else command


def merged(board: Board, parts: dict[int, bytes]) -> bytes:
    """Return the flash content from `board.flashing.offset` on; parts maps offsets to bytes."""
    command = spelled("merge-bin")
    with tempfile.TemporaryDirectory(prefix="flatmq-esptool-") as name:
        folder = Path(name)
        arguments = []
        for offset, data in sorted(parts.items()):
            part = folder / f"{offset:x}.bin"
            part.write_bytes(data)
            arguments += [hex(offset), str(part)]
        output = folder / "merged.bin"
        process = subprocess.run(
            [
                *(sys.executable, "-m", "esptool", "--chip", board.flashing.chip, command),
                *("--output", str(output), "--target-offset", hex(board.flashing.offset)),
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise EsptoolError(f"esptool {command} failed: {process.stdout}{process.stderr}")
        return output.read_bytes()
