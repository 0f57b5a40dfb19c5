"""What the client takes on a board's flash, and of its memory."""

from __future__ import annotations

import ast
import subprocess
import tempfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from . import interpreter
from .bytecode import SOURCES, compiled

# In the order of loading, so that each is weighed by itself. Some wait for the first
# subscription, or the first message in pieces.
_ORDER = (
    "__init__", "error", "port", "wire", "session", "client", "stream_tcp", "message",
    "topic", "router", "pieces",
)  # fmt: skip
_LATER = ("message", "topic", "router", "pieces")
_WEIGH = """
import gc, sys, errno, random, select, socket, time
class package: __path__ = sys.argv[1] + "/flatmq"
def held():
    gc.collect()
    return gc.mem_alloc()
sys.path.insert(0, sys.argv[1] + "/flatmq")
sys.modules["flatmq"] = package
for name in sys.argv[2:]:
    before = held()
    __import__("flatmq." + name)
    print(name, held() - before)
"""


def _weighed(folder: Path) -> dict[str, int]:
    """Bytes of heap that each module holds on the 64-bit interpreter here; empty without one."""
    command = interpreter.command("256k")
    if command is None:
        return {}
    script = folder / "weigh.py"
    script.write_text(_WEIGH)
    names = [name for name in _ORDER if name != "__init__"]
    done = subprocess.run(
        [*command, str(script), str(folder), *names],
        capture_output=True, text=True, timeout=60, check=True,
        env=interpreter.environment(folder),
    )  # fmt: skip
    return {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}


def _functions(source: Path) -> int:
    return sum(
        isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(source.read_text()))
    )


def main() -> int:
    """Prints a table of bytes, file by file; returns 0."""
    table = Table(box=box.SIMPLE)
    table.add_column("file")
    for head in ("source, bytes", "functions", ".mpy, bytes", "heap held, bytes"):
        table.add_column(head, justify="right")
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as name:
        folder = compiled(Path(name))
        weights = _weighed(folder)
        sums = [0, 0, 0, 0]
        for module in _ORDER:
            source = SOURCES / f"{module}.py"
            values = (
                source.stat().st_size,
                _functions(source),
                (folder / "flatmq" / f"{module}.mpy").stat().st_size,
                weights.get(module, 0),
            )
            if module == _LATER[0]:
                table.add_row("to publish", *(f"{value:,}" for value in sums), end_section=True)
            sums = [a + b for a, b in zip(sums, values, strict=True)]
            table.add_row(module, *(f"{value:,}" for value in values))
    table.add_section()
    table.add_row("together", *(f"{value:,}" for value in sums))
    console = Console()
    console.print(table)
    if not weights:
        console.print("no heap figures: " + interpreter.MISSING, markup=False)
    return 0
