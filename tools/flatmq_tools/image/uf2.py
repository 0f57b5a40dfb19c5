"""UF2, the format of files for the boot loader of RP2040 and RP2350: read, and write with more.

The format: https://github.com/microsoft/uf2. How the RP2040's boot ROM takes it: bootrom/
virtual_disk.c in raspberrypi/pico-bootrom-rp2040. It restarts in what it has got when all the
blocks that a block says there are have come, so one count goes for all. And it erases a sector
with the first block of those whose number divided by 16 is the same, whatever their addresses: so
each sector must be there as a whole, 16 blocks from a number that is a multiple of 16.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ToolError

BLOCK = 512
PAGE = 256  # what a block carries, and the chip programs
SECTOR = 4096  # what the chip erases
HEADER = struct.Struct("<8I")
MAGIC = (0x0A324655, 0x9E5D5157)
MAGIC_END = struct.pack("<I", 0x0AB16F30)
NOT_MAIN_FLASH = 0x00000001
FAMILY = 0x00002000  # the header's last word is a family id

ABSOLUTE = 0xE48BFF57  # of one block of any image for the RP2350, whatever runs

# boot/uf2.h of the Pico SDK.
FAMILIES = {
    0xE48BFF56: "rp2040",
    ABSOLUTE: "absolute",
    0xE48BFF58: "data",
    0xE48BFF59: "rp2350-arm-s",
    0xE48BFF5A: "rp2350-riscv",
    0xE48BFF5B: "rp2350-arm-ns",
}


@dataclass(frozen=True)
class Block:
    """One block of 512 bytes, as it is in the file."""

    raw: bytes
    flags: int
    address: int
    size: int
    """Bytes that it carries."""
    number: int
    total: int
    family: int
    """0 where it names none."""

    @property
    def data(self) -> bytes:
        return self.raw[32 : 32 + self.size]

    def is_for(self, family: int) -> bool:
        """Return whether the boot loader of that family writes the block to flash."""
        return self.family == family and not self.flags & NOT_MAIN_FLASH

    def renumbered(self, number: int, total: int) -> bytes:
        """The same block with other numbers."""
        return self.raw[:20] + struct.pack("<2I", number, total) + self.raw[28:]


def family_name(family: int) -> str:
    """Return the usual name of a family, and its number."""
    return f"{FAMILIES.get(family, 'unknown')} ({family:#x})"


def read(data: bytes) -> list[Block]:
    """The file's blocks in their order. Raises ToolError."""
    if not data or len(data) % BLOCK:
        raise ToolError(f"not a UF2 file: {len(data):,} bytes are no multiple of {BLOCK}")
    blocks = []
    for at in range(0, len(data), BLOCK):
        raw = data[at : at + BLOCK]
        first, second, flags, address, size, number, total, family = HEADER.unpack_from(raw)
        if (first, second) != MAGIC or not raw.endswith(MAGIC_END):
            raise ToolError(f"not a UF2 file: block {at // BLOCK} does not begin and end as one")
        family = family if flags & FAMILY else 0
        blocks.append(Block(raw, flags, address, size, number, total, family))
    return blocks


def pages(blocks: Iterable[Block], family: int) -> dict[int, Block]:
    """Return the blocks, by address, that the boot loader of that family writes to flash.

    Raises ToolError if there are none, or if one breaks a rule of that boot loader.
    """
    found: dict[int, Block] = {}
    others = set()
    for block in blocks:
        if not block.is_for(family):
            others.add(block.family)
            continue
        if block.size != PAGE or block.address % PAGE:
            raise ToolError(
                f"block {block.number} has {block.size} bytes for {block.address:#x}; the boot "
                f"loader takes {PAGE} bytes for a multiple of {PAGE:#x}"
            )
        if block.address in found:
            raise ToolError(f"block {block.number}: there is one for {block.address:#x} already")
        found[block.address] = block
    if not found:
        there = ", ".join(family_name(other) for other in sorted(others))
        raise ToolError(f"it is for {there}, and the board is {family_name(family)}")
    return found


def image(family: int, sectors: Mapping[int, bytes], firmware: Iterable[Block] = ()) -> bytes:
    """A UF2 file of the firmware and of the sectors (address -> 4096 bytes).

    The firmware's blocks stay as they are but for their numbers; those of other families stay
    in front with theirs. (There is one in RP2350's: its erratum E10. A boot ROM that writes it
    spoils the last sector of flash, which is why it must come first.) What is missing of a
    sector that the firmware begins is filled with 0xFF. Raises ToolError as in `pages`.
    """
    blocks = list(firmware)
    others = [block.raw for block in blocks if not block.is_for(family)]
    flash: dict[int, Block | None] = {}
    if blocks:
        flash.update(pages(blocks, family))
    for start in {address - address % SECTOR for address in flash}:
        for address in range(start, start + SECTOR, PAGE):
            flash.setdefault(address, None)
    for start, data in sectors.items():
        if start % SECTOR or len(data) != SECTOR:
            raise ValueError(f"{len(data)} bytes for {start:#x} are no sector")
        for at in range(0, SECTOR, PAGE):
            address = start + at
            if address in flash:
                raise ToolError(f"two things are to go to {address:#x}")
            flash[address] = _block(family, address, data[at : at + PAGE])
    total = len(flash)
    own = []
    for number, address in enumerate(sorted(flash)):
        block = flash[address] or _block(family, address, b"\xff" * PAGE)
        own.append(block.renumbered(number, total))
    return b"".join(others + own)


def _block(family: int, address: int, data: bytes) -> Block:
    header = HEADER.pack(*MAGIC, FAMILY, address, len(data), 0, 0, family)
    raw = header + data + bytes(BLOCK - len(header) - len(data) - len(MAGIC_END)) + MAGIC_END
    return Block(raw, FAMILY, address, len(data), 0, 0, family)
