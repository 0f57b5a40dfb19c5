"""The boot loaders of RP2040 and RP2350, writing a UF2 file that is copied to them to flash.

Written from raspberrypi/pico-bootrom-rp2040 (bootrom/virtual_disk.c) and pico-bootrom-rp2350
(src/nsboot/usb_virtual_disk.c), and apart from the writer, so that it reads files independently.
"""

import struct
from typing import NamedTuple

XIP = 0x10000000
SECTOR = 4096
ABSOLUTE = 0xE48BFF57


class Block(NamedTuple):
    """A block's header and what it carries."""

    flags: int
    address: int
    number: int
    total: int
    family: int
    data: bytes


def blocks(file: bytes) -> list[Block]:
    """Return every block; the assertions are what the format requires of each."""
    assert len(file) % 512 == 0
    found = []
    for at in range(0, len(file), 512):
        first, second, flags, address, size, number, total, family = struct.unpack_from(
            "<8I", file, at
        )
        assert (first, second) == (0x0A324655, 0x9E5D5157)
        assert file[at + 508 : at + 512] == b"\x30\x6f\xb1\x0a"
        assert size <= 476
        data = file[at + 32 : at + 32 + size]
        found.append(Block(flags, address, number, total, family, data))
    return found


class Flash:
    """A board's flash, of which a program can only clear bits."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)

    def erase(self, at: int) -> None:
        """The sector that `at` is in; the chip does not look at address bits that it lacks."""
        at = at % len(self.content) // SECTOR * SECTOR
        self.content[at : at + SECTOR] = b"\xff" * SECTOR

    def program(self, at: int, data: bytes) -> None:
        at %= len(self.content)
        end = at + len(data)
        both = int.from_bytes(self.content[at:end], "big") & int.from_bytes(data, "big")
        self.content[at:end] = both.to_bytes(len(data), "big")


def copied(arriving: list[Block], flash: bytes, chip: str) -> tuple[bytes, bool]:
    """The flash after the blocks have come in that order, and whether the board started."""
    result = Flash(flash)
    taken: set[int] = set()
    erased: set[int] = set()
    current = None
    started = False
    families = {"rp2040": (0xE48BFF56,), "rp2350": (0xE48BFF59, ABSOLUTE)}[chip]
    for block in arriving:
        assert not started, "blocks come after it has started"
        if block.family not in families or not block.flags & 0x2000 or block.flags & 1:
            continue
        assert len(block.data) == 256
        assert block.address % 256 == 0
        this = block.total if chip == "rp2040" else (block.total, block.family)
        if this != current:
            current = this
            taken.clear()
            erased.clear()
        assert block.number < block.total
        if block.number in taken:
            continue
        # The RP2040 takes the number for the place; the RP2350 looks at the address.
        place = block.number * 256 if chip == "rp2040" else block.address - XIP
        if place // SECTOR not in erased:
            erased.add(place // SECTOR)
            result.erase(block.address - XIP)
        result.program(block.address - XIP, block.data)
        taken.add(block.number)
        started = len(taken) == block.total
    return bytes(result.content), started
