"""The firmware files of FLATMQ_FIRMWARE, and the emulated boards that run them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flatmq_tools import boards
from flatmq_tools.emulate import qemu_program
from flatmq_tools.errors import ToolError
from flatmq_tools.image import firmware as file_of_firmware

OTA = "-OTA"  # behind the name of a board: see `firmware`
VARIABLE = "FLATMQ_FIRMWARE"  # in the environment: files, separated as in PATH


class NotHereError(RuntimeError):
    """The board cannot be emulated on this machine; the text says what is missing."""


def needed(board: str) -> str:
    """Return what `firmware` does; end the program with status 2 if that is not here."""
    try:
        return firmware(board)
    except NotHereError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def board_of(firmware: Path) -> boards.Board:
    """Return the board for a firmware file: a Pico W, unless its name or its chip is another's."""
    chip = file_of_firmware.chip(firmware.read_bytes()[: file_of_firmware.IMAGE_HEADER])
    name = {"esp32": "esp32", "esp32c3": "esp32_c3"}.get(chip or "", "pico_w")
    return boards.load("pico" if firmware.match(boards.load("pico").download) else name)


def firmware(board: str) -> str:
    """Return the absolute path of a firmware for an emulated board. Raises NotHereError.

    `board` may end in "-OTA", for a firmware that has two OTA partitions.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise NotHereError(f"{VARIABLE} is not set")
    name = board.removesuffix(OTA)
    for file in map(Path, named.split(os.pathsep)):
        if file.is_file() and board_of(file).name == name:
            found = boards.load(name)
            has_ota = file_of_firmware.fitted(file.read_bytes(), found) != found
            if has_ota == board.endswith(OTA):
                break
    else:
        raise NotHereError(f"{VARIABLE} names no firmware for {board}")
    if found.chip in qemu_program.PROGRAMS:
        try:
            program = qemu_program.find(found, None)
        except ToolError as error:
            raise NotHereError(str(error)) from error
        if not program.wifi:
            raise NotHereError(f"{program.path} has no Wi-Fi")
    return str(file.resolve())
