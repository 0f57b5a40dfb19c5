"""An image that `flatmq image` makes with settings of TLS, and what is in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from click.testing import CliRunner, Result

from flatmq_tools import boards
from flatmq_tools.cli import main as cli
from images import making


def image(folder: Path, *told: str, board: str = "esp32", more: Iterable[str] = ()) -> Result:
    """Run `flatmq image` with each of `told` as --set broker...., or device.name."""
    tables = {"name": "device", "interval": "device", "ssid": "wifi"}
    options = []
    for each in told:
        options += ["--set", f"{tables.get(each.partition('=')[0], 'broker')}.{each}"]
    out = folder / "image.bin"
    arguments = [
        "image",
        board,
        "--sketch",
        str(making.sketch()),
        "--out",
        str(out),
        *options,
        *more,
    ]
    return CliRunner().invoke(cli, arguments)


def on_board(folder: Path, board: str = "esp32") -> dict[str, bytes]:
    """The files in the image, read by MicroPython."""
    lines = making.on_board("files", folder / "image.bin", boards.load(board).flash.program)
    return making.listed(lines)
