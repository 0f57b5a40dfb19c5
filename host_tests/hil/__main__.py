"""`python -m hil`: every step with the board at $BOARD_PORT, and a table of its figures.

BOARD_PORT    any address that mpremote connects to; without it nothing is run
BOARD_WIFI    ssid:password of the Wi-Fi that the board is to join
BOARD_BROKER  host:port of a broker that the board can reach
DESK_BROKER   the same broker as this machine reaches it, where that is another address
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from flatmq_rigs import results
from flatmq_tools.address import AddressError, address
from flatmq_tools.remote import RemoteError

from .desk import DeskError
from .suite import Row, Suite, Where

NOT_RUN = (
    "The tests with a board were NOT run: BOARD_PORT is not set. Name a board's port, for "
    "instance BOARD_PORT=/dev/ttyACM0 (`flatmq boards` lists them)."
)
_HEAD = ("on the board", "figure", "")


class UsageError(ValueError):
    """A variable that cannot be understood."""


def _address(name: str, text: str) -> tuple[str, int]:
    """The address in numbers: a board that looks up a name may wait for long."""
    try:
        host, port = address(text)
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except (AddressError, OSError) as error:
        raise UsageError(f"{name}={text}: {error}") from error
    return str(found[0][4][0]), port


def where(environment: Mapping[str, str]) -> Where:
    """Return what the variables say.

    Raises UsageError, which names one that is wrong, never a password.
    """
    wifi = environment.get("BOARD_WIFI")
    broker = environment.get("BOARD_BROKER")
    joined = None
    if wifi:
        ssid, colon, password = wifi.partition(":")
        if not colon or not ssid:
            raise UsageError("BOARD_WIFI is ssid:password")
        joined = (ssid, password)
    there = _address("BOARD_BROKER", broker) if broker else None
    desk = environment.get("DESK_BROKER")
    return Where(
        environment["BOARD_PORT"],
        joined,
        there,
        _address("DESK_BROKER", desk) if desk and there else there,
    )


def _mark(row: Row) -> str:
    return "not run" if row.ok is None else "ok" if row.ok else "FAILED"


def section(suite: Suite) -> str:
    """The table as Markdown."""
    bad = sum(row.ok is False for row in suite.rows)
    skipped = sum(row.ok is None for row in suite.rows)
    rows = [(row.what, row.figure.replace("|", "/"), _mark(row)) for row in suite.rows]
    return f"""\
## On a board

`make test-board` with {suite.board}: {len(rows)} rows, {bad} failed, {skipped} not run.

The client as .mpy. "Taken" is against the free heap before the import, after collections. An
operation is done over and over, with the collector off and bytes in use compared, and as often
with the heap locked. A message is lost if a client of another make at the broker did not get it.

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
    console = Console(soft_wrap=True)
    if not os.environ.get("BOARD_PORT"):
        console.print(NOT_RUN, highlight=False)
        return 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("to the board", total=None, visible=False)

            def wrote(done: int, size: int) -> None:
                bar.update(task, completed=done, total=size, visible=done < size)

            def say(text: str) -> None:
                bar.console.print(text, markup=False, highlight=False)

            suite = Suite(where(os.environ), say, wrote)
            suite.run()
    except (RemoteError, DeskError, UsageError) as error:
        console.print(f"Error: {error}", markup=False, highlight=False)
        return 2
    table = Table(*_HEAD)
    for row in suite.rows:
        table.add_row(row.what, row.figure, _mark(row))
    console.print(table)
    if options.results:
        results.write(options.results, "board", section(suite))
    return 0 if suite.ok else 1


if __name__ == "__main__":
    sys.exit(main())
