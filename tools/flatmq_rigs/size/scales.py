"""Weigh a client in MicroPython for WebAssembly, 32-bit, and time its start in the unix port."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flatmq_rigs import webassembly
from flatmq_rigs.size import rows
from flatmq_tools import interpreter

RUNS = 20
# The names that a program uses are in a table, whose steps double. A name has its address there,
# two bytes of a hash, and its length.
_NAME = 7
_WEIGH = """
def weigh():
    print("@heap", gc.mem_alloc())
    micropython.qstr_info()
    print("@loaded", *sorted([n for n in sys.modules if n[:6] == "flatmq"]))
weigh()
"""


class SizeError(RuntimeError):
    """The code to measure does not run; the text says why."""


@dataclass(frozen=True)
class Weight:
    """Bytes of heap, and the modules of the client that are loaded."""

    allocated: int  # with the whole table of names
    held: int  # the same, with the part of the table that is in use
    modules: frozenset[str]


def _weights(lines: list[str]) -> Iterator[Weight]:
    allocated = held = 0
    for line in lines:
        if line.startswith("@heap"):
            allocated = int(line.split()[1])
        elif line.startswith("qstr pool: "):
            info = dict(part.split("=") for part in line.removeprefix("qstr pool: ").split(", "))
            table = int(info["n_total_bytes"]) - int(info["n_str_data_bytes"])
            held = allocated - table + _NAME * int(info["n_qstr"])
        elif line.startswith("@loaded"):
            yield Weight(allocated, held, frozenset(line.split()[1:]))


def _prelude(library: object, harness: object) -> str:
    return f"import sys\nsys.path[:] = '{library}', '{harness}', '.frozen'\n{rows.PRELUDE}"


def weigh(path: rows.Path, library: Path, harness: Path) -> dict[str, Weight]:
    """Return the weight of each row.

    library, harness: folders with the client and with `peer`. Raises SizeError.
    """
    collect = [webassembly.COLLECT, webassembly.COLLECT]
    parts = [_prelude("/library", "/harness") + _WEIGH, *collect, "weigh()"]
    for row in path:
        parts += [row.code, *collect, "weigh()"]
    try:
        lines = webassembly.run(parts, {"/library": library, "/harness": harness})
    except webassembly.WebAssemblyError as error:
        raise SizeError(str(error)) from error
    # The first weight is before a collection.
    weights = list(_weights(lines))[1:]
    found = {}
    for row, before, now in zip(path, weights[:-1], weights[1:], strict=True):
        base = before if row.more else weights[0]
        held, allocated = now.held - base.held, now.allocated - base.allocated
        found[row.name] = Weight(allocated, held, now.modules)
    return found


@dataclass(frozen=True)
class Start:
    """The fastest of several starts, in ms, and as a multiple of the time to load the broker."""

    imported: float
    sent: float  # CONNECT
    loads: float


def time_start(code: str, library: Path, harness: Path) -> Start:
    """Time a start of the client. Raises SizeError."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
        script = Path(name, "start.py")
        script.write_text(_prelude(library, harness) + code + rows.TIMES, encoding="utf-8")
        for _ in range(RUNS):
            done = subprocess.run(
                [*(interpreter.command("512k") or []), str(script)],
                capture_output=True, text=True, timeout=60, check=False,
                env=interpreter.environment(),
            )  # fmt: skip
            if done.returncode:
                raise SizeError(interpreter.last_words(done))
            runs.append([int(word) for word in done.stdout.split("@us")[1].split()])
    imported, sent, loading = (min(times) for times in zip(*runs, strict=True))
    return Start(imported / 1000, sent / 1000, 50 * sent / loading)
