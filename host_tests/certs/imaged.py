"""An image that `flatmq image` makes with settings of TLS, and what is in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from click.testing import CliRunner, Result

from flatmq_tools import boards
from flatmq_tools.cli import main as cli
from images import making

_TABLES = {"name": "device", "interval": "device", "ssid": "wifi"}


def image(folder: Path, *told: str, board: str = "esp32", more: Iterable[str] = ()) -> Result:
    """Run `flatmq image` with each of `told` as --set broker...., or device.name."""
    options = ["--sketch", str(making.sketch()), "--out", str(folder / "image.bin")]
    for each in told:
        options += ["--set", f"{_TABLES.get(each.partition('=')[0], 'broker')}.{each}"]
    return CliRunner().invoke(cli, ["image", board, *options, *more])


def on_board(folder: Path, board: str = "esp32") -> dict[str, bytes]:
    """The files in the image, read by MicroPython."""
    lines = making.on_board("files", folder / "image.bin", boards.load(board).flash.program)
    return making.listed(lines)
