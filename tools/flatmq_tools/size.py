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

from . import interpreter
from .bytecode import SOURCES, compiled

# In the order of loading, so that each is weighed by itself. Some wait for the first
# subscription, or the first message in pieces; the last four for an application that imports them.
_ORDER = (
    "__init__", "error", "port", "wire", "session", "client", "stream_tcp", "message",
    "topic", "router", "pieces", "flash", "journal", "store", "spool",
)  # fmt: skip
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


def main() -> int:
    """Prints a table of bytes, file by file; returns 0."""
    table = Table(box=box.SIMPLE)
    table.add_column("file")
    for head in ("source, bytes", "functions", ".mpy, bytes", "heap held, bytes", "from ROMFS"):
        table.add_column(head, justify="right")
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
            values = (
                source.stat().st_size,
                _functions(source),
                (folder / "flatmq" / f"{module}.mpy").stat().st_size,
                weights.get(module, 0),
                in_place.get(module, 0),
            )
            if module in _BEFORE:
                table.add_row(_BEFORE[module], *(f"{value:,}" for value in sums), end_section=True)
            sums = [a + b for a, b in zip(sums, values, strict=True)]
            table.add_row(module, *(f"{value:,}" for value in values))
    table.add_section()
    table.add_row("together", *(f"{value:,}" for value in sums))
    console = Console()
    console.print(table)
    if not weights:
        console.print("no heap figures: " + interpreter.MISSING, markup=False)
    elif not in_place:
        console.print("no figures from ROMFS: `pip install mpremote`", markup=False)
    return 0
