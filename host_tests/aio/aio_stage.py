"""A program for asyncio that runs until it is ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from conftest import interpreter_command, library
from flatmq_tools import interpreter

HEAP = "192k"  # of MicroPython, for a program, what it imports, and the compiler


@contextmanager
def running(
    python: str, program: Path, output: Path, *arguments: str, folders: Sequence[Path] = ()
) -> Iterator[None]:
    """Run a program during the block, at whose end it must still be there, and kill it.

    What it prints goes to `output`. It imports from `folders`, then flatmq.
    """
    command = interpreter_command(python, HEAP)
    if python == "cpython":
        command.append("-u")
    with output.open("w") as written:
        process = subprocess.Popen(
            [*command, str(program), *arguments],
            env=interpreter.environment(*folders, library(python)),
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.poll() is None, output.read_text()
    finally:
        process.kill()
        process.wait()
