"""The version of a firmware file, and the places where it looks for its filesystems."""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

from ..boards import Board
from ..errors import ToolError
from . import uf2

# lib/flatmq allocates nothing from 1.26 on, which loads .mpy as mpy-cross makes it (version 6.3).
OLDEST = (1, 26)
# What the banner begins with (py/mpconfig.h: MICROPY_BANNER_NAME_AND_VERSION).
BANNER = re.compile(rb"MicroPython (?:\(with v2\.0 preview\) )?v(\d+)\.(\d+)(?:\.(\d+))?")

# Binary info of the Pico SDK: pico/binary_info/defs.h and structure.h.
INFO_START = 0x7188EBF2
INFO_END = 0xE71AA390
INFO_WITHIN = 1024  # of the program's start
BLOCK_DEVICE = struct.Struct("<2H4IH")  # type, tag, name, address, size, more, flags
BLOCK_DEVICE_TYPE = 7
MICROPYTHON_TAG = 0x504D  # "MP"

# esptool: targets/*.py: IMAGE_CHIP_ID; the file's byte 12 (esp_image_header_t of ESP-IDF).
CHIP_IDS = {0: "esp32", 2: "esp32s2", 5: "esp32c3", 9: "esp32s3", 13: "esp32c6", 16: "esp32h2"}
IMAGE_MAGIC = 0xE9
IMAGE_HEADER = 24  # bytes
HASH = 32  # bytes at the end of an image
DESCRIBED = 32  # where an application has the magic number of its description,
DESCRIPTION = 0xABCD5432.to_bytes(4, "little")  # esp_app_desc.h: ESP_APP_DESC_MAGIC_WORD
# ESP-IDF: partition tables: where they are, and an entry of one.
TABLE = 0x8000
TABLE_SIZE = 0xC00
ENTRY = struct.Struct("<2s2B2I16sI")  # magic, type, subtype, offset, size, label, flags
ENTRY_MAGIC = b"\xaa\x50"
ENTRY_MD5 = b"\xeb\xeb"


@dataclass(frozen=True)
class Place:
    """A part of the flash, in bytes from its start."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size

    def __str__(self) -> str:
        return f"{self.offset:#x} to {self.end:#x}"


def version(data: bytes) -> tuple[int, int, int] | None:
    """MicroPython's version as its banner has it, or None where there is none."""
    found = BANNER.search(data)
    if found is None:
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0)


def check_version(data: bytes) -> str:
    """Return the version as text. Raises ToolError if it is too old or missing."""
    found = version(data)
    if found is None:
        raise ToolError("it contains no version of MicroPython: is it MicroPython firmware?")
    text = ".".join(map(str, found))
    if found[:2] < OLDEST:
        raise ToolError(f"it is MicroPython {text}; flatmq needs {OLDEST[0]}.{OLDEST[1]} or later")
    return text


def _check_places(found: dict[str, Place], board: Board) -> None:
    """found: "filesystem" and "romfs", those that are known."""
    flash = board.flash
    expected = {"filesystem": Place(flash.filesystem, flash.filesystem_size)}
    if flash.romfs_size:
        expected["romfs"] = Place(flash.romfs, flash.romfs_size)
    for key, place in expected.items():
        if key in found and found[key] != place:
            raise ToolError(
                f"it has its {key} at {found[key]}, and flash.{key} of {board.file} says {place}: "
                f"is it the firmware for this board, {board.download}?"
            )


def _check_end(end: int, address: int, board: Board) -> None:
    """Check that the firmware ends before the filesystem and the ROMFS partition.

    `end` is where the firmware ends and `address` where the flash begins, both as addresses.
    """
    flash = board.flash
    starts = {flash.filesystem: "filesystem"}
    if flash.romfs_size:
        starts[flash.romfs] = "romfs"
    first = min(starts)
    if end > first:
        raise ToolError(
            f"it reaches up to {address + end:#x}, and the {starts[first]} of {board.name} starts "
            f"at {address + first:#x}, {end - first:,} bytes before"
        )


# RP2040 and RP2350


def check_uf2(blocks: list[uf2.Block], board: Board) -> str:
    """The firmware's version. Raises ToolError."""
    found = uf2.pages(blocks, board.flashing.family)
    flash = board.flash
    first, last = min(found), max(found) + uf2.PAGE
    top = flash.address + flash.size
    if first < flash.address or last > top:
        raise ToolError(
            f"it goes to {first:#x} to {last:#x}, and the board's flash is at "
            f"{flash.address:#x} to {top:#x}"
        )
    program = _contiguous(found)
    text = check_version(program)
    _check_places(block_devices(program, first, flash.address), board)
    _check_end(last - flash.address, flash.address, board)
    return text


def _contiguous(found: dict[int, uf2.Block]) -> bytes:
    start = min(found)
    data = bytearray(max(found) + uf2.PAGE - start)
    for address, block in found.items():
        data[address - start : address - start + uf2.PAGE] = block.data
    return bytes(data)


# What MicroPython calls them: ports/rp2/rp2_flash.c.
DEVICES = {b"MicroPython": "filesystem", b"ROMFS": "romfs"}


def block_devices(program: bytes, start: int, flash: int) -> dict[str, Place]:
    """Return the "filesystem" and the "romfs" that the firmware declares for picotool.

    start: the address of its first byte; flash: that of the flash. Returns {} if it
    declares none.
    """

    def words(address: int, count: int) -> tuple[int, ...]:
        at = address - start
        if at < 0 or at + 4 * count > len(program):
            return ()
        return struct.unpack_from(f"<{count}I", program, at)

    for at in range(0, INFO_WITHIN, 4):
        header = words(start + at, 5)
        if header and header[0] == INFO_START and header[4] == INFO_END:
            break
    else:
        return {}
    places = {}
    for pointer in range(header[1], header[2], 4):
        entry = words(pointer, 1)
        position = entry[0] - start if entry else -1
        if position < 0 or position + BLOCK_DEVICE.size > len(program):
            continue
        kind, tag, name, address, size, _, _ = BLOCK_DEVICE.unpack_from(program, position)
        if kind != BLOCK_DEVICE_TYPE or tag != MICROPYTHON_TAG:
            continue
        label = program[name - start :].partition(b"\0")[0] if name >= start else b""
        if label in DEVICES:
            places[DEVICES[label]] = Place(address - flash, size)
    return places


# ESP32


def chip(data: bytes) -> str | None:
    """The chip that an ESP32's firmware is for; None where the file begins as none."""
    if data[:1] != bytes([IMAGE_MAGIC]) or len(data) < IMAGE_HEADER:
        return None
    number = int.from_bytes(data[12:14], "little")
    return CHIP_IDS.get(number, f"an unknown chip ({number})")


def check_bin(data: bytes, board: Board) -> str:
    """The firmware's version. Raises ToolError."""
    named_chip = chip(data)
    if named_chip is None or len(data) < TABLE:
        raise ToolError(
            f"it is no firmware for an ESP32: {len(data):,} bytes that begin with {data[:1].hex()}"
            f", not with {IMAGE_MAGIC:x}"
        )
    if named_chip != board.chip:
        raise ToolError(f"it is for {named_chip}, and the board has {board.chip}")
    text = check_version(data)
    flash = board.flash
    found = partitions(data[TABLE - board.flashing.offset :])
    if not found:
        raise ToolError(f"no partition table is in it, where {TABLE:#x} of the flash will be")
    places = {"filesystem": _filesystem(found, flash.size)}
    if flash.romfs_size:
        if "romfs" not in found:
            raise ToolError(f"no romfs partition is in it, and {board.file} has flash.romfs")
        places["romfs"] = found["romfs"]
    _check_places(places, board)
    _check_end(board.flashing.offset + len(data), 0, board)
    return text


def _filesystem(found: dict[str, Place], size: int) -> Place:
    named = found.get("vfs") or found.get("ffat")
    if named is None:
        # ports/esp32/main.c: boardctrl_startup: MicroPython makes one of all that is left.
        end = max(place.end for place in found.values())
        named = Place(end, size - end)
    return named


def fitted(data: bytes, board: Board) -> Board:
    """Return the board with the filesystem of a firmware that has a second OTA partition.

    It is behind that. Any other firmware is that of the board, or is refused later.
    """
    found = {}
    if chip(data) == board.chip and board.flash.grows:
        found = partitions(data[TABLE - board.flashing.offset :])
    if "ota_1" not in found:
        return board
    return board.with_filesystem(_filesystem(found, board.flash.size).offset)


def application(data: bytes, board: Board) -> bytes:
    """Return the application of a firmware: what an OTA partition has in it.

    `data` is that, or has all of the flash. Raises ToolError.
    """
    named_chip = chip(data)
    if named_chip is None:
        raise ToolError(
            f"it is no firmware for an ESP32: it begins with {data[:1].hex()}, not with "
            f"{IMAGE_MAGIC:x}"
        )
    if named_chip != board.chip:
        raise ToolError(f"it is for {named_chip}, and the board has {board.chip}")
    found = partitions(data[TABLE - board.flashing.offset :])
    room = None
    if found:
        if "ota_1" not in found:
            raise ToolError(
                "it has no second OTA partition, so a board with it cannot be updated: the "
                "official one has -OTA- in its name"
            )
        room = found["ota_1"].size
        data = data[found["ota_0"].offset - board.flashing.offset :]
    end = _end(data)
    if data[DESCRIBED : DESCRIBED + 4] != DESCRIPTION:
        raise ToolError("it is a boot loader or another program, and no application")
    if hashlib.sha256(data[: end - HASH]).digest() != data[end - HASH : end]:
        raise ToolError(f"its {len(data):,} bytes do not have the SHA-256 at their end")
    if room is not None and end > room:
        raise ToolError(f"its application must have at most {room:,} bytes, not {end:,}")
    check_version(data[:end])
    return data[:end]


def _end(data: bytes) -> int:
    """Return the length of an image (esp_image_format.h of ESP-IDF), with its hash."""
    at = IMAGE_HEADER
    for _ in range(data[1] if len(data) > IMAGE_HEADER else 0):
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
    return (at + 16) // 16 * 16 + HASH


def partitions(table: bytes) -> dict[str, Place]:
    """Label -> place, of a partition table as it is in flash; {} where there is none."""
    found = {}
    for at in range(0, min(len(table), TABLE_SIZE) - ENTRY.size + 1, ENTRY.size):
        magic, _, _, offset, size, label, _ = ENTRY.unpack_from(table, at)
        if magic == ENTRY_MD5:
            continue
        if magic != ENTRY_MAGIC:
            break
        found[label.partition(b"\0")[0].decode("ascii", "replace")] = Place(offset, size)
    return found
