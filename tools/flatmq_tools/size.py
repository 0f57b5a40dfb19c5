"""What the client takes on a board's flash, and of its memory."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from . import interpreter, results
from .bytecode import SOURCES, compiled

# In the order of loading, so that each is weighed by itself. Some wait for the first
# subscription, or the first message in pieces; the others for an application that imports them.
_ORDER = (
    "__init__", "error", "port", "wire", "session", "client", "stream_tcp", "message",
    "topic", "router", "pieces", "flash", "journal", "store", "spool", "senml",
    "frames", "stream_uart",
)  # fmt: skip
_HEAD = ("file", "source, bytes", "functions", ".mpy, bytes", "heap held, bytes", "from ROMFS")
# What is summed up before these, as what a board has that needs no more.
_BEFORE = {"message": "to publish", "flash": "to receive"}
_WEIGH = """
import gc, sys, errno, io, os, random, select, socket, time, vfs
class package: __path__ = sys.argv[2] + "/flatmq"
def held():
    gc.collect()
    return gc.mem_alloc()
if sys.argv[1]:
    with open(sys.argv[1], "rb") as f:
        image = f.read()
    vfs.mount(vfs.VfsRom(image), "/rom")
sys.modules["flatmq"] = package
for name in sys.argv[3:]:
    before = held()
    __import__("flatmq." + name)
    print(name, held() - before)
"""


def _weighed(script: Path, root: str, image: Path | None = None) -> dict[str, int]:
    """Bytes of heap that each module of the folder `root` holds on the 64-bit interpreter here,
    where an `image` is mounted as /rom; empty without an interpreter."""
    command = interpreter.command("256k")
    if command is None:
        return {}
    names = [name for name in _ORDER if name != "__init__"]
    done = subprocess.run(
        [*command, str(script), str(image or ""), root, *names],
        capture_output=True, text=True, timeout=60, check=True,
        env=interpreter.environment(),
    )  # fmt: skip
    return {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}


def _romfs(folder: Path, image: Path) -> bool:
    """Writes a ROMFS image of a folder. Whether that could be done: mpremote does it."""
    command = [sys.executable, "-m", "mpremote", "romfs", "--output", str(image), "build"]
    done = subprocess.run([*command, str(folder)], capture_output=True, check=False, timeout=60)
    return done.returncode == 0


def _functions(source: Path) -> int:
    return sum(
        isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(source.read_text()))
    )


def _rows() -> list[list[str]]:
    """The table: each module, and the sums so far where they answer a question."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
        folder = compiled(Path(name, "library"))
        script = Path(name, "weigh.py")
        script.write_text(_WEIGH)
        weights = _weighed(script, str(folder))
        image = Path(name, "flatmq.romfs")
        in_place = _weighed(script, "/rom", image) if _romfs(folder, image) else {}
        sums = [0] * 5
        for module in _ORDER:
            source = SOURCES / f"{module}.py"
            values = [
                source.stat().st_size,
                _functions(source),
                (folder / "flatmq" / f"{module}.mpy").stat().st_size,
                weights.get(module, 0),
                in_place.get(module, 0),
            ]
            if module in _BEFORE:
                rows.append([_BEFORE[module], *(f"{value:,}" for value in sums)])
            sums = [a + b for a, b in zip(sums, values, strict=True)]
            rows.append([module, *(f"{value:,}" for value in values)])
    return [*rows, ["together", *(f"{value:,}" for value in sums)]]


def main(document: Path | None = None) -> int:
    """Prints a table of bytes, file by file, and puts it into `document`; returns 0."""
    rows = _rows()
    table = Table(box=box.SIMPLE)
    table.add_column(_HEAD[0])
    for head in _HEAD[1:]:
        table.add_column(head, justify="right")
    summed = {*_BEFORE.values(), "together"}
    for i, row in enumerate(rows):
        table.add_row(*row, end_section=row[0] in summed or rows[i + 1][0] == "together")
    console = Console()
    console.print(table)
    if rows[-1][4] == "0":
        console.print("no heap figures: " + interpreter.MISSING, markup=False)
    elif rows[-1][5] == "0":
        console.print("no figures from ROMFS: `pip install mpremote`", markup=False)
    if document:
        marked = [[f"**{r[0]}**" if r[0] in summed else r[0], *r[1:]] for r in rows]
        results.write(document, "size", results.table(_HEAD, marked))
    return 0
