"""Weigh a client in MicroPython for WebAssembly, 32-bit, and time its start in the unix port."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from flatmq_rigs import webassembly
from flatmq_rigs.size import rows
from flatmq_tools import interpreter

RUNS = 20
_HEAP_KB = 2048  # so much that nothing is collected within a step
# The names that a program has are in a table, whose steps double. A name has its address there,
# two bytes of a hash, and its length.
_ENTRY = 7
# Their characters are in chunks of 128 bytes, or longer where there is room behind one. Names that
# fill a chunk show how much of it was left.
_CHUNK = 128
_FILLER = 16
_FILLERS = _CHUNK // _FILLER
_WEIGH = """
fillers = 0
def fill():
    global fillers
    fillers += 1
    getattr(peer, "filler%09d" % fillers, None)
def weigh():
    print("@heap", gc.mem_alloc())
    micropython.qstr_info()
def loaded():
    print("@loaded", *sorted([n for n in sys.modules if n[:6] == "flatmq"]))
weigh()
loaded()
"""


@dataclass(frozen=True)
class Weight:
    """Bytes of heap, and the modules of the client that are loaded."""

    held: int
    modules: frozenset[str]


def _weights(lines: list[str]) -> Iterator[Weight]:
    """Return the weight after each step, with as much for names as they take themselves."""
    allocated = heap = left = names = fillers = 0
    for line in lines:
        if line.startswith("@heap"):
            allocated = int(line.split()[1])
        elif line.startswith("qstr pool: "):
            info = dict(part.split("=") for part in line.removeprefix("qstr pool: ").split(", "))
            names = int(info["n_qstr"])
            table = int(info["n_total_bytes"]) - int(info["n_str_data_bytes"])
            before, heap = heap, allocated - table
            if heap == before:
                left -= _FILLER
            else:  # a new chunk, or the last one has grown
                left = _CHUNK - _FILLER if heap - before > _CHUNK - 2 * _FILLER else 0
        elif line.startswith("@loaded"):
            held = heap - left + _ENTRY * names - (_ENTRY + _FILLER) * fillers
            yield Weight(held, frozenset(line.split()[1:]))
            fillers += _FILLERS


def _prelude(library: object, harness: object) -> str:
    return f"import sys\nsys.path[:] = '{library}', '{harness}', '.frozen'\n{rows.PRELUDE}"


def weigh(path: rows.Path, library: Path, harness: Path) -> dict[str, Weight]:
    """Return the weight of each row.

    library, harness: folders with the client and with `peer`. Raises InterpreterError.
    """
    collect = [webassembly.COLLECT, webassembly.COLLECT]
    weighed = [*collect, "weigh()", *["fill()", *collect, "weigh()"] * _FILLERS, "loaded()"]
    parts = [_prelude("/library", "/harness") + _WEIGH, *weighed]
    for row in path:
        parts += [row.code, *weighed]
    lines = webassembly.run(parts, {"/library": library, "/harness": harness}, _HEAP_KB)
    weights = list(_weights(lines))[1:]  # the first is before a collection
    found = {}
    for row, before, now in zip(path, weights[:-1], weights[1:], strict=True):
        base = before if row.more else weights[0]
        found[row.name] = Weight(now.held - base.held, now.modules)
    return found


@dataclass(frozen=True)
class Start:
    """The fastest of several starts, in ms, and as a multiple of the time to load the broker."""

    imported: float
    sent: float  # CONNECT
    loads: float


def time_start(code: str, library: Path, harness: Path) -> Start:
    """Time a start of the client. Raises InterpreterError."""
    runs = []
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
        script = Path(name, "start.py")
        script.write_text(_prelude(library, harness) + code + rows.TIMES, encoding="utf-8")
        for _ in range(RUNS):
            *_, line = interpreter.run("512k", script)
            runs.append([int(word) for word in line.removeprefix("@us").split()])
    imported, sent, loading = (min(times) for times in zip(*runs, strict=True))
    return Start(imported / 1000, sent / 1000, 50 * sent / loading)
