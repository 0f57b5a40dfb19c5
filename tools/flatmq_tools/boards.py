"""The supported boards: one TOML file per board in firmware/, named after the board.

A new board is a new file. Errors name the file, the key, the value and its limit.
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from . import folders
from .errors import ToolError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = folders.find("firmware")

CHIPS = {"rp2": ("rp2040", "rp2350"), "esp32": ("esp32", "esp32s3", "esp32c3")}
METHODS = {"rp2": "uf2", "esp32": "esptool"}
NETWORKS = ("wifi", "serial")
ADDRESSES = 1 << 32


@dataclass(frozen=True)
class Flash:
    """The board's flash; offsets are from its start, all in bytes."""

    size: int
    filesystem: int
    """Offset of the filesystem."""
    filesystem_size: int
    block: int
    """What an erase erases, and a block of the filesystem."""
    program: int
    """What littlefs writes at least at a time."""
    address: int = 0
    """Where the flash is mapped, for UF2; 0 where nothing asks."""
    grows: bool = False
    """The filesystem reaches up to the end of whatever flash the board has."""
    romfs: int = 0
    """Offset of the ROMFS partition."""
    romfs_size: int = 0
    """0: there is none."""

    @property
    def filesystem_end(self) -> int:
        return self.filesystem + self.filesystem_size


@dataclass(frozen=True)
class Flashing:
    """The way to write a board's flash."""

    method: str
    """"uf2" (a drive that appears) or "esptool"."""
    hint: str
    """How a hand brings the board into its boot loader."""
    family: int = 0
    """UF2: the family id."""
    drive: str = ""
    """UF2: the label of the boot loader's drive."""
    chip: str = ""
    """esptool: its --chip."""
    offset: int = 0
    """esptool: where the firmware goes."""


@dataclass(frozen=True)
class Usb:
    """The USB identifiers of a board."""

    ids: tuple[str, ...]
    """VID:PID, four hexadecimal digits each, in lower case."""


@dataclass(frozen=True)
class Board:
    """A board: one file of firmware/."""

    name: str
    """What users type, and the file's name."""
    title: str
    port: str
    """MicroPython's port: "rp2" or "esp32"."""
    board: str
    """MicroPython's name for it."""
    chip: str
    download: str
    """Which file of MicroPython's download page, as a glob pattern."""
    stubs: str
    """The package on PyPI that has the types of its modules."""
    network: str
    """"wifi", or "serial" for one that has no radio."""
    sketch: str
    """The folder in boards/ that an image has where no other is named."""
    flash: Flash
    flashing: Flashing
    usb: Usb
    file: Path

    def with_flash(self, size: int) -> Board:
        """The same board with that many bytes of flash.

        Raises ToolError if the filesystem does not follow the size, or has no room.
        """
        if not self.flash.grows:
            raise ToolError(
                f"{self.name}: its firmware has one place for the filesystem, "
                f"{self.flash.filesystem:#x} to {self.flash.filesystem_end:#x}, whatever the flash"
            )
        return self._with(size, self.flash.filesystem)

    def with_filesystem(self, start: int) -> Board:
        """The same board with a filesystem that begins there. Raises ToolError."""
        return self._with(self.flash.size, start)

    def _with(self, size: int, start: int) -> Board:
        flash = replace(self.flash, size=size, filesystem=start, filesystem_size=size - start)
        board = replace(self, flash=flash)
        _check(board)
        return board


TABLES: dict[str, type] = {"flash": Flash, "flashing": Flashing, "usb": Usb}
KINDS = {str: "a text", int: "a whole number", bool: "true or false", tuple: "a list of texts"}


def names(folder: Path = FOLDER) -> list[str]:
    """Every board there is a file for, in order."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def load(name: str, folder: Path = FOLDER) -> Board:
    """The board of that name. Raises ToolError."""
    known = names(folder)
    if name not in known:
        raise ToolError(f"{name}: no such board; there are {', '.join(known)}")
    file = folder / f"{name}.toml"
    try:
        with file.open("rb") as stream:
            table = tomllib.load(stream)
    except tomllib.TOMLDecodeError as error:
        raise ToolError(f"{file}: not TOML: {error}") from error
    board: Board = _build(Board, table, file, "", {"name": name, "file": file})
    _check(board)
    return board


def _build(kind: type, table: dict[str, Any], file: Path, prefix: str, given: dict) -> Any:
    """An object of `kind` out of a table of the file."""
    types = get_type_hints(kind)
    values = dict(given)
    for key, value in table.items():
        if key not in types or key in given:
            known = ", ".join(sorted(set(types) - set(given)))
            raise ToolError(f"{file}: {prefix}{key}: no such key; there are {known}")
        wanted = types[key]
        if is_dataclass(wanted):
            if not isinstance(value, dict):
                raise ToolError(f"{file}: {prefix}{key} = {value!r}: it is a table, [{key}]")
            values[key] = _build(TABLES[key], value, file, f"{key}.", {})
            continue
        base = getattr(wanted, "__origin__", wanted)
        if base is tuple and isinstance(value, list):
            value = tuple(value)  # noqa: PLW2901
        # True is an int to isinstance, and not to whoever wrote the file.
        if type(value) is not base or (
            base is tuple and not all(isinstance(item, str) for item in value)
        ):
            raise ToolError(f"{file}: {prefix}{key} = {value!r}: must be {KINDS[base]}")
        values[key] = value
    for field in fields(kind):
        if field.name not in values and field.default is MISSING:
            raise ToolError(f"{file}: {prefix}{field.name}: is missing")
    return kind(**values)


def _check(board: Board) -> None:
    """Check all values; raise ToolError for the first one that breaks a rule."""
    flash = board.flash

    def limit(key: str, value: Any, good: bool, text: str) -> None:
        if not good:
            shown = value if isinstance(value, str) else f"{value:#x}"
            raise ToolError(f"{board.file}: {key} = {shown}: {text}")

    def one_of(key: str, value: str, known: tuple[str, ...]) -> None:
        limit(key, value, value in known, f"must be one of {', '.join(known)}")

    one_of("port", board.port, tuple(CHIPS))
    one_of("chip", board.chip, CHIPS[board.port])
    one_of("network", board.network, NETWORKS)
    one_of("flashing.method", board.flashing.method, (METHODS[board.port],))
    for key in ("title", "board", "download", "stubs", "sketch"):
        limit(key, "", bool(getattr(board, key)), "must not be empty")

    block, size, begin, end = flash.block, flash.size, flash.filesystem, flash.filesystem_end
    limit("flash.block", block, block == 4096, "must be 0x1000, what an erase erases")
    is_power = flash.program in (16, 32, 64, 128, 256)
    limit("flash.program", flash.program, is_power, "must be a power of 2 from 0x10 to 0x100")
    for key in ("size", "filesystem", "filesystem_size", "romfs", "romfs_size"):
        value = getattr(flash, key)
        good = 0 <= value <= ADDRESSES and value % block == 0
        text = f"must be a multiple of flash.block = {block:#x}, and not below 0"
        limit(f"flash.{key}", value, good, text)
    limit("flash.address", flash.address, 0 <= flash.address < ADDRESSES, "must fit into 32 bits")
    # Two blocks hold littlefs's root; with fewer than four nothing fits beside it.
    room = flash.filesystem_size
    limit(
        "flash.filesystem_size", room, room >= 4 * block,
        f"must be at least {4 * block:#x}, four blocks",
    )  # fmt: skip
    ends = f"with flash.filesystem_size = {room:#x} it ends at {end:#x}"
    if board.port == "rp2" or flash.grows:
        text = f"{ends}, and must end with flash.size = {size:#x}"
        limit("flash.filesystem", begin, end == size, text)
    limit("flash.filesystem", begin, end <= size, f"{ends}, behind flash.size = {size:#x}")
    if flash.romfs_size:
        romfs_end = flash.romfs + flash.romfs_size
        good = romfs_end <= size and (romfs_end <= begin or flash.romfs >= end)
        text = (
            f"with flash.romfs_size = {flash.romfs_size:#x} it must end by flash.filesystem = "
            f"{begin:#x}"
        )
        limit("flash.romfs", flash.romfs, good, text)

    if board.flashing.method == "uf2":
        family = board.flashing.family
        limit("flashing.family", family, 0 < family < ADDRESSES, "must be a UF2 family id")
        limit("flashing.drive", "", bool(board.flashing.drive), "must not be empty")
    else:
        one_of("flashing.chip", board.flashing.chip, (board.chip,))
        offset = board.flashing.offset
        text = f"must be below flash.filesystem = {begin:#x}"
        limit("flashing.offset", offset, 0 <= offset < begin, text)
    limit("flashing.hint", "", bool(board.flashing.hint), "must not be empty")
    for text in board.usb.ids:
        good = bool(re.fullmatch("[0-9a-f]{4}:[0-9a-f]{4}", text))
        limit("usb.ids", text, good, "must be VID:PID, as in 2e8a:0005, in lower case")
