"""The boards that are connected to this machine, and the choice of one of them."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from serial.tools import list_ports

from . import boards
from .errors import ToolError
from .plain import PlainConsole


@dataclass(frozen=True)
class Connected:
    """A serial port that a USB device gives."""

    port: str
    usb: str
    """VID:PID, as in a board's file."""
    serial: str
    """The serial number that the device reports, or ""."""
    product: str
    names: tuple[str, ...]
    """The boards that show themselves so; () for a device that none of them is."""


def find() -> list[Connected]:
    """Every USB serial port, sorted by its name."""
    known = [boards.load(name) for name in boards.names()]
    found = []
    for info in list_ports.comports():
        if info.vid is None or info.pid is None:
            continue
        usb = f"{info.vid:04x}:{info.pid:04x}"
        names = tuple(board.name for board in known if usb in board.usb.ids)
        product = info.product or info.description or ""
        found.append(Connected(info.device, usb, info.serial_number or "", product, names))
    return sorted(found, key=lambda each: each.port)


def choose(port: str | None, board: str | None = None) -> str:
    """Return the address of the board that is meant.

    That is `port` if given, otherwise the only port at which that board, or any board, may be.
    Raises ToolError, which lists what is connected.
    """
    if port:
        return port
    there = find()
    meant = [each for each in there if (board in each.names if board else each.names)]
    if len(meant) == 1:
        return meant[0].port
    which = board or "board"
    if meant:
        lines = "".join(f"\n  --port {each.port}  {each.product} {each.serial}" for each in meant)
        raise ToolError(f"{len(meant)} ports may be the {which}; choose one:{lines}")
    seen = ", ".join(f"{each.port} ({each.usb} {each.product})" for each in there) or "none at all"
    raise ToolError(
        f"no {which} is connected by USB with MicroPython running (serial ports seen: {seen}). "
        "Is the cable one that carries data? If it identifies itself differently, name its port: "
        "--port /dev/ttyACM0"
    )


def main(console: Console | None = None) -> int:
    """Print what is connected, and which boards there are files for; return 0."""
    console = console or PlainConsole()
    there = find()
    if there:
        table = Table(box=box.SIMPLE, title="connected", title_justify="left")
        for head in ("port", "VID:PID", "product", "serial number", "may be"):
            table.add_column(head, overflow="fold")
        for each in there:
            names = ", ".join(each.names) or "?"
            table.add_row(each.port, each.usb, each.product, each.serial, names)
        console.print(table)
    else:
        console.print("no board is connected by USB\n")
    table = Table(box=box.SIMPLE, title="known", title_justify="left")
    for head in ("name", "board", "download at micropython.org", "network"):
        table.add_column(head, overflow="fold")
    for name in boards.names():
        board = boards.load(name)
        table.add_row(name, board.title, board.download, board.network)
    console.print(table)
    return 0
