"""`flatmq fleet`: simulated boards, each a client of its own, and what they really did."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from ..password import PASSWORD
from ..plain import PlainConsole
from . import truth
from .fleet import Figures, Fleet, Settings

LINE_EVERY = 5.0  # seconds, where there is no terminal to draw on

__all__ = ["Settings", "main"]


def main(
    host: str,
    port: int,
    settings: Settings,
    truth_file: Path | None = None,
    console: Console | None = None,
) -> int:
    """Run a fleet and show what it does; `truth_file` gets what it did.

    Returns 0 when everything that was planned was done, and what was published, acknowledged;
    else 1. Raises ToolError. The password of the user is in the environment, as
    FLATMQ_PASSWORD.
    """
    console = console or PlainConsole()
    if settings.user is not None and settings.password is None:
        settings.password = os.environ.get(PASSWORD)
    fleet = Fleet(host, port, settings)
    if truth_file is not None:
        truth.write(truth_file, [])  # a folder that cannot be written shows now
    console.print(
        f"{settings.devices:,} boards to {host}:{port}, {settings.rate:g} readings a second each, "
        f"for {settings.seconds:g} s; repeat it with --seed {settings.seed}",
        soft_wrap=True,
    )
    try:
        _shown(fleet, console)
    finally:
        if truth_file is not None:
            truth.write(truth_file, fleet.boots)
    total = truth.summary(fleet.boots)
    console.print(table(total, fleet.figures))
    for error, times in sorted(fleet.figures.errors.items(), key=lambda each: -each[1])[:5]:
        console.print(f"{times:,} × {error}", soft_wrap=True)
    if fleet.complete:
        console.print("everything that was published was acknowledged", style="bold")
        return 0
    missing = total.published - total.acknowledged
    why = (
        f"{missing:,} readings were not acknowledged"
        if missing
        else "it was stopped before its end"
    )
    console.print(f"incomplete: {why}", style="bold")
    return 1


def _shown(fleet: Fleet, console: Console) -> None:
    """Run it with a bar on a terminal, else with a line now and then."""
    if not console.is_terminal:
        last = [time.monotonic()]

        def line(what: str, share: float) -> None:
            if time.monotonic() - last[0] >= LINE_EVERY:
                last[0] = time.monotonic()
                text = f"{what} {share:4.0%}  {fleet.online:,} online  {fleet.taken:,} readings"
                console.print(text)

        fleet.run(line)
        return
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(40),
        TaskProgressColumn(),
        TextColumn("{task.fields[online]:,} online  {task.fields[taken]:,} readings"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("connecting", total=1.0, online=0, taken=0)

        def bar(what: str, share: float) -> None:
            progress.update(
                task, description=what, completed=share, online=fleet.online, taken=fleet.taken
            )

        fleet.run(bar)


def table(total: truth.Summary, figures: Figures) -> Table:
    """Return a table of what was done and what it took."""
    shown = Table(box=box.SIMPLE, show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    shown.add_column()
    rows = [
        ("boards", total.devices, f"{total.boots:,} boots"),
        ("readings taken", total.readings, ""),
        ("published", total.published, ""),
        ("acknowledged", total.acknowledged, ""),
        ("lost on purpose", total.lost, "their number was passed over"),
        ("lost without room", total.no_room, "while the broker was away"),
        ("lost with a reboot", total.unacknowledged, "or arrived: not acknowledged"),
        ("published twice", total.duplicated, "on purpose"),
        ("sent again", total.again, "a connection was lost: may have arrived twice"),
        ("out of order", total.reordered, "on purpose"),
        ("drop-outs", total.drop_outs, ""),
        ("connections lost", total.losses, "not on purpose"),
        ("reboots", total.reboots, ""),
        ("dead", total.dead, "no power from some time on"),
        ("stuck", total.stuck, "connected and silent from some time on"),
        ("wrong clocks", total.wrong_clocks, "boards"),
    ]
    for name, value, note in rows:
        shown.add_row(name, f"{value:,}", note)
    shown.add_row("connected in", f"{figures.connect:.2f} s", f"CPU {figures.connect_cpu:.2f} s")
    if figures.run and total.published:
        a_second = total.readings / figures.run
        each = figures.run_cpu / total.readings * 1e6
        shown.add_row("readings a second", f"{a_second:,.0f}", "")
        shown.add_row(
            "CPU", f"{figures.run_cpu / figures.run:.0%}", f"of a core; {each:.0f} µs a reading"
        )
        shown.add_row("late", f"{figures.late * 1000:,.0f} ms", "the loop, at most")
    return shown
