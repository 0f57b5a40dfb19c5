"""An image that `flatmq image` makes with settings of TLS, and what is in it."""

from collections.abc import Iterable
from pathlib import Path

from click.testing import Result

import typed_command
from flatmq_tools import boards
from images import making

_TABLES = {"name": "device", "interval": "device", "ssid": "wifi"}


def image(folder: Path, *settings: str, board: str = "esp32", more: Iterable[str] = ()) -> Result:
    """Run `flatmq image` with each of `settings` as --set broker...., or device.name."""
    options = ["--sketch", str(making.sketch()), "--out", str(folder / "image.bin")]
    for each in settings:
        options += ["--set", f"{_TABLES.get(each.partition('=')[0], 'broker')}.{each}"]
    return typed_command.flatmq("image", board, *options, *more)


def made(folder: Path, *settings: str, board: str = "esp32", more: Iterable[str] = ()) -> str:
    """Return what it prints, and it must end well."""
    said = image(folder, *settings, board=board, more=more)
    assert said.exit_code == 0, said.output
    return said.output


def on_board(folder: Path, board: str = "esp32") -> dict[str, bytes]:
    """The files in the image, read by MicroPython."""
    lines = making.on_board("files", folder / "image.bin", boards.load(board).flash.program)
    return making.listed(lines)
