"""What the client takes on a board's flash."""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from .bytecode import SOURCES, compiled


def main() -> int:
    """Prints a table of bytes, file by file; returns 0."""
    table = Table(box=box.SIMPLE)
    table.add_column("file")
    table.add_column("source, bytes", justify="right")
    table.add_column(".mpy, bytes", justify="right")
    sources = codes = 0
    with tempfile.TemporaryDirectory(prefix="flatmq-size-") as folder:
        for code in sorted((compiled(Path(folder)) / "flatmq").iterdir()):
            source = (SOURCES / code.with_suffix(".py").name).stat().st_size
            table.add_row(code.stem, f"{source:,}", f"{code.stat().st_size:,}")
            sources += source
            codes += code.stat().st_size
    table.add_section()
    table.add_row("together", f"{sources:,}", f"{codes:,}")
    Console().print(table)
    return 0
