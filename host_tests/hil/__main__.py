"""`python -m hil`: every step with the board at $BOARD_PORT, and a table of its figures."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flatmq_rigs import results

from . import command
from .suite import Suite, compiled

_HEAD = ("on the board", "figure", "")


def section(suite: Suite) -> str:
    bad = sum(row.ok is False for row in suite.rows)
    skipped = sum(row.ok is None for row in suite.rows)
    rows = [(row.what, row.figure.replace("|", "/"), row.mark) for row in suite.rows]
    title, command = "On a board", "python -m flatmq_rigs board"
    firmware = os.environ.get("EMULATE")
    if firmware:
        title = f"On an emulated {'ESP32' if 'ESP32' in suite.board else 'Pico W'}"
        command = f"EMULATE={Path(firmware).name} {command}"
    return f"""\
## {title}

`{command}`, {suite.board}: {len(rows)} rows, {bad} failed, {skipped} not run.

{results.table(_HEAD, rows)}
"""


def main(arguments: list[str] | None = None) -> int:
    """Run them; 1 when one fails, 2 when they could not be run."""
    parser = argparse.ArgumentParser(prog="hil", description="Tests with a board.")
    parser.add_argument(
        "--results",
        type=Path,
        help="Markdown file in which to rewrite the section with these results.",
    )
    options = parser.parse_args(arguments)

    def report(suite: Suite, console: Console) -> int:
        table = Table(*_HEAD)
        for row in suite.rows:
            table.add_row(row.what, row.figure, row.mark)
        console.print(table)
        if options.results:
            name = "board-esp32" if "ESP32" in suite.board else "board"
            results.write(options.results, name, section(suite))
        return 0 if suite.ok else 1

    return command.run("The tests with a board were", Suite, report, compiled)


if __name__ == "__main__":
    sys.exit(main())
