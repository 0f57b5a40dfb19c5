"""The report in the terminal: the numbers of the page, as tables."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from . import needs, numbers
from .figures import Device, Figures

MOST = 15
_HEADS = ("status", "silent for", "received", "lost", "copies", "late", "delay", "restarts")
# What is left out, in this order, where names do not fit beside it.
_LESS = ("late", "received", "copies", "restarts", "status", "delay")
_NAME = 40  # characters of a name in a line
_LONG = 400  # characters of what has more than anybody reads
_STYLES = {"bad": "bold red", "odd": "bold yellow", "good": "green", "": "bold"}


def show(figures: Figures, console: Console) -> None:
    """Print them."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for each in numbers.summary(figures):
        table.add_row(each.name, _text(each.text, _STYLES[each.mood]), _text(each.note))
    console.print(table)
    period = f"{numbers.local(figures.since)} to {numbers.local(figures.until)}"
    for remark in (period, *figures.remarks):
        console.print(Text(remark, style="dim"))
    needy = needs.needy(needs.needs(figures))
    worst = [device for device in needs.worst(figures) if device.name in needy]
    if not worst:
        return
    heads = list(_HEADS)
    unbounded = console.options.update_width(1000)
    table = _needy(worst, heads)
    for head in _LESS:
        if Measurement.get(console, unbounded, table).maximum <= console.width:
            break
        heads.remove(head)
        table = _needy(worst, heads)
    console.print(table)


def _needy(worst: list[Device], heads: list[str]) -> Table:
    """The first of these devices, with a column for each of `heads`."""
    table = Table(box=box.SIMPLE, title="Devices that need a look", title_justify="left")
    table.add_column("device", overflow="fold", max_width=_NAME)
    for head in heads:
        left = head == "status"
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for device in worst[:MOST]:
        cells = _cells(device)
        table.add_row(_text(device.name), *(cells[head] for head in heads))
    if len(worst) > MOST:
        table.caption = f"{MOST} of {numbers.count(len(worst))}"
    return table


def _cells(of: Device) -> dict[str, Text]:
    def known(text: Text) -> Text:
        return text if of.numbered else _text(numbers.UNKNOWN, "dim")

    return {
        "status": _text(of.status or ""),
        "silent for": _text(numbers.silence(of.silent_s), "bold yellow" if of.silent else ""),
        "received": _text(numbers.count(of.received)),
        "lost": known(_text(numbers.count(of.lost), "bold red" if of.lost else "dim")),
        "copies": _text(numbers.count(of.duplicates)),
        "late": known(_text(numbers.count(of.reordered))),
        "delay": _text(numbers.milliseconds(of.p50)),
        "restarts": known(_text(numbers.count(of.reboots))),
    }


def _text(text: str, style: str = "") -> Text:
    """Return a text that a terminal shows, and does not obey; few have a narrow blank."""
    text = text.replace("\N{NARROW NO-BREAK SPACE}", " ")
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return Text(shown if len(shown) <= _LONG else f"{shown[:_LONG]}…", style=style)
