"""Make a board's image: its firmware, the client, a sketch and its settings in one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import board_tls, boards, contents, folders, settings
from ..errors import ToolError
from ..ota import package
from ..plain import PlainConsole
from . import filesystem, firmware, romfs, uf2

BUILD = Path("build")
# What stays in the filesystem where the modules have a ROMFS of their own: what is changed on the
# board, and what MicroPython runs as source.
CHANGEABLE = ("/main.py", "/boot.py", "/settings.json", *board_tls.PATHS.values())


@dataclass(frozen=True)
class Made:
    """The image of one board, and its parts."""

    image: bytes
    """A UF2 file, or what goes to `offset` in an ESP32's flash."""
    suffix: str
    offset: int
    """In the flash; of a UF2, 0: it has its addresses in it."""
    files: dict[str, bytes]
    """In the filesystem."""
    blocks: int
    """Of the filesystem, that are in the image."""
    romfs: bytes
    """What is not in the image of the ROMFS that was asked for; else b""."""
    version: str
    """Of the firmware; "" where there is none."""


def fitted(board: boards.Board, firmware_file: Path | None) -> boards.Board:
    """Return the board with the filesystem where that firmware has it."""
    if firmware_file is None or board.flashing.method == "uf2":
        return board
    return firmware.fitted(firmware_file.read_bytes(), board)


def make(
    board: boards.Board,
    files: dict[str, bytes],
    *,
    firmware_file: Path | None = None,
    with_romfs: bool = False,
) -> Made:
    """Everything but the writing of files. `files` as of `contents.contents`.

    An error names the firmware's file where that is at fault.
    """
    flash = board.flash
    rom = b""
    if with_romfs:
        rom = romfs.build({k: v for k, v in files.items() if k not in CHANGEABLE})
        files = {k: v for k, v in files.items() if k in CHANGEABLE}
        if flash.romfs_size and len(rom) > flash.romfs_size:
            raise ToolError(
                f"{len(rom):,} bytes do not fit into the ROMFS partition of {board.name}, "
                f"flash.romfs_size = {flash.romfs_size:,}"
            )
    stored = filesystem.build(files, flash)

    data = b""
    version = ""
    blocks: list[uf2.Block] = []
    if firmware_file is not None:
        data = firmware_file.read_bytes()
        try:
            if board.flashing.method == "uf2":
                blocks = uf2.read(data)
                version = firmware.check_uf2(blocks, board)
            else:
                version = firmware.check_bin(data, board)
        except ToolError as error:
            raise ToolError(f"{firmware_file}: {error}") from error

    offset = 0
    used: Sequence[int] = range(flash.filesystem_size // flash.block)
    if board.flashing.method == "uf2":
        used = filesystem.live(stored, flash)
        sectors = {
            flash.address + flash.filesystem + number * flash.block: _sector(stored, number)
            for number in used
        }
        if flash.romfs_size:
            for number in range(-(-len(rom) // flash.block)):
                address = flash.address + flash.romfs + number * flash.block
                sectors[address] = _sector(rom, number)
            rom = b""
        image = uf2.image(board.flashing.family, sectors, blocks)
    elif data:
        offset = board.flashing.offset
        parts = {offset: data, flash.filesystem: stored}
        if rom and flash.romfs_size:
            parts[flash.romfs] = rom
            rom = b""
        image = b""
        for start, part in sorted(parts.items()):  # with 0xFF between them, as erased
            image = image.ljust(start - offset, b"\xff") + part
    else:
        offset = flash.filesystem
        image = stored
    suffix = ".uf2" if board.flashing.method == "uf2" else ".bin"
    return Made(image, suffix, offset, files, len(used), rom, version)


def _sector(data: bytes, number: int) -> bytes:
    return data[number * uf2.SECTOR : (number + 1) * uf2.SECTOR].ljust(uf2.SECTOR, b"\xff")


def main(
    name: str,
    *,
    firmware_file: Path | None = None,
    sketch: str | None = None,
    overrides: tuple[str, ...] = (),
    out: Path | None = None,
    with_romfs: bool = False,
    flash_size: str | None = None,
    slots: package.Slots | None = None,
) -> int:
    """Make the image of the board of that name, write it and say how it gets onto the board.

    flash_size: "16MB", where the board has another than its file says. slots: for updates over
    MQTT.
    """
    console = PlainConsole()
    board = boards.load(name)
    if flash_size is not None:
        board = board.with_flash(_bytes(flash_size))
    board = fitted(board, firmware_file)
    folder = contents.find_sketch(sketch or board.sketch)
    with console.status(f"making an image for {board.title} ..."):
        chosen = package.settled(settings.load(overrides), slots)
        ready, keys, remarks = board_tls.prepare_for(board, chosen)
        files = contents.contents(folder, ready) | keys
        if slots:
            if with_romfs:
                raise ToolError("--romfs: modules that are updated over MQTT cannot be there")
            package.check(folder)
            files = package.slotted(files, name, slots)
        made = make(
            board,
            files,
            firmware_file=firmware_file,
            with_romfs=with_romfs,
        )
    alone = firmware_file is None
    if out is None:
        out = BUILD / f"{name}{'-filesystem' if alone else ''}{made.suffix}"
    folders.write(out, made.image)
    lines = _told(board, made, folder, out, alone)
    if made.romfs:
        rom = out.with_name(f"{name}.romfs")
        folders.write(rom, made.romfs)
        lines += [
            f"{rom}: {len(made.romfs):,} bytes: the modules, for a firmware with a ROMFS partition"
            f"{'' if board.flash.romfs_size else ' (official builds have none)'}:",
            f"  mpremote romfs deploy {rom}",
        ]
    lines += remarks + settings.remarks(ready, board.network)
    for line in lines:
        # Commands are there to be copied: no line is broken.
        console.print(line, soft_wrap=True)
    return 0


def _bytes(size: str) -> int:
    """Return the bytes of a size as esptool writes it: 4MB, 512KB."""
    found = re.fullmatch(r"(\d+) ?([KM])i?B?", size, re.IGNORECASE)
    if found is None:
        raise ToolError(f"--flash-size {size}: must be a number of MB, as in 16MB")
    return int(found[1]) * {"K": 1 << 10, "M": 1 << 20}[found[2].upper()]


def _told(board: boards.Board, made: Made, sketch: Path, out: Path, alone: bool) -> list[str]:
    """Describe the image, and how to get it onto the board, in lines."""
    flash = board.flash
    if sketch.is_relative_to(Path.cwd()):
        sketch = sketch.relative_to(Path.cwd())
    lines = [
        f"{out}: {len(made.image):,} bytes for {board.title}",
        f"  {sketch}: {len(made.files)} files, {sum(map(len, made.files.values())):,} bytes, in a "
        f"filesystem at {flash.filesystem:#x} to {flash.filesystem_end:#x}",
    ]
    if alone:
        lines.append(
            f"  only the filesystem, for a board that runs MicroPython already; "
            f"--firmware {board.download} puts both into one file"
        )
    else:
        lines.insert(1, f"  MicroPython {made.version}")
    if board.flashing.method == "uf2":
        total = flash.filesystem_size // flash.block
        lines.append(f"  {made.blocks} of the filesystem's {total} blocks are written")
        lines.append(f"{board.flashing.hint} Then copy it to the drive {board.flashing.drive}.")
    else:
        lines += [
            "To write it to the board:",
            f"  esptool --chip {board.flashing.chip} write-flash {made.offset:#x} {out}",
        ]
    return lines
