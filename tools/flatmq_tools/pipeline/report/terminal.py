"""The report in the terminal: the numbers of the page, as tables."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import numbers
from .figures import Figures

MOST = 15
_HEADS = ("silent for", "received", "lost", "twice", "reordered", "delay", "reboots")
_STYLES = {"bad": "bold red", "odd": "bold yellow", "good": "green", "": "bold"}


def show(figures: Figures, console: Console) -> None:
    """Prints them."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for each in numbers.summary(figures):
        table.add_row(
            each.name, Text(_plain(each.text), style=_STYLES[each.mood]), _text(each.note)
        )
    console.print(table)
    worst = [
        d for d in numbers.worst(figures.devices)
        if d.silent or d.lost or d.duplicates or d.reordered or d.reboots
    ]  # fmt: skip
    if not worst:
        return
    table = Table(box=box.SIMPLE, title="Devices that need a look", title_justify="left")
    table.add_column("device", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for head in _HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for d in worst[:MOST]:
        silent = Text(
            _plain(numbers.duration(d.silent_s)), style="bold yellow" if d.silent else ""
        )
        lost = Text(_plain(numbers.count(d.lost)), style="bold red" if d.lost else "dim")
        table.add_row(
            Text(d.name), _text(d.status or ""), silent, _text(numbers.count(d.received)), lost,
            str(d.duplicates), str(d.reordered), _text(numbers.milliseconds(d.p50)),
            str(d.reboots),
        )  # fmt: skip
    if len(worst) > MOST:
        table.caption = f"{MOST} of {numbers.count(len(worst))}"
    console.print(table)


def _text(text: str) -> Text:
    return Text(_plain(text))


def _plain(text: str) -> str:
    """Some terminals have no narrow blank."""
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ")
