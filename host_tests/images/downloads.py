"""Firmware files made up for tests, in the form of MicroPython's downloads."""

import hashlib
import struct

from esp_idf_defs.partitions import PartitionTable

from flatmq_tools.boards import Board

# ports/esp32/partitions-4MiBplus.csv
PARTITIONS = """\
nvs,      data, nvs,     0x9000,  0x6000,
phy_init, data, phy,     0xf000,  0x1000,
factory,  app,  factory, 0x10000, 0x1F0000,
"""
# ports/esp32/partitions-4MiB-ota.csv
OTA = """\
nvs,      data, nvs,     0x9000,   0x4000,
otadata,  data, ota,     0xd000,   0x2000,
phy_init, data, phy,     0xf000,   0x1000,
ota_0,    app,  ota_0,   0x10000,  0x180000,
ota_1,    app,  ota_1,   0x190000, 0x180000,
"""
ESP_CHIPS = {"esp32": 0, "esp32c3": 5, "esp32s3": 9}
ABSOLUTE = 0xE48BFF57
ALL = object()  # a filesystem where the board's file has it


def noise(size: int, seed: str) -> bytes:
    """Bytes that look like a program, the same each time."""
    return hashlib.shake_128(seed.encode()).digest(size)


def banner(version: str) -> bytes:
    return f"\0MicroPython v{version} on 2026-08-01; A board with a chip\0".encode()


def program(
    board: Board,
    size: int,
    version: str = "1.28.0",
    filesystem: object | tuple[int, int] | None = ALL,
) -> bytes:
    """Return the start of the flash of an RP2040 or RP2350, with the SDK's binary info."""
    xip = 0x10000000
    data = bytearray(noise(size, board.name))
    data[0x3000 : 0x3000 + len(banner(version))] = banner(version)
    if filesystem is None:
        return bytes(data)
    if filesystem is ALL:
        filesystem = board.flash.filesystem, board.flash.filesystem_size
    offset, length = filesystem  # type: ignore[misc]
    # Markers, the entries' start and end, a table for those that are copied to RAM.
    struct.pack_into(
        "<5I", data, 0x1F0, 0x7188EBF2, xip + 0x2000, xip + 0x200C, xip + 0x2800, 0xE71AA390
    )
    # Three entries: one that is elsewhere, a version, a block device.
    struct.pack_into("<3I", data, 0x2000, 0x20000100, xip + 0x2100, xip + 0x2200)
    struct.pack_into("<2HII", data, 0x2100, 6, 0x5052, 0x11A9BC3A, xip + 0x2304)
    struct.pack_into("<2H4IH", data, 0x2200, 7, 0x504D, xip + 0x2310, xip + offset, length, 0, 3)
    data[0x2304:0x230C] = b"v1.28.0\0"
    data[0x2310:0x231C] = b"MicroPython\0"
    return bytes(data)


def uf2(board: Board, content: bytes, family: int | None = None) -> bytes:
    """As picotool writes it: the last sector is not filled, RP2350's begins with E10's block."""
    family = board.flashing.family if family is None else family
    content += bytes(-len(content) % 256)
    count = len(content) // 256
    file = b""
    if board.chip == "rp2350":
        file += _block(ABSOLUTE, 0x10FFFF00, b"\xef" * 256, 0, 2)
    return file + b"".join(
        _block(family, 0x10000000 + at, content[at : at + 256], at // 256, count)
        for at in range(0, len(content), 256)
    )


def _block(family: int, address: int, data: bytes, number: int, total: int) -> bytes:
    header = struct.pack(
        "<8I", 0x0A324655, 0x9E5D5157, 0x2000, address, len(data), number, total, family
    )
    return (header + data).ljust(508, b"\0") + struct.pack("<I", 0x0AB16F30)


def esp32(
    board: Board,
    size: int,
    version: str = "1.28.0",
    partitions: str | None = PARTITIONS,
    chip: str | None = None,
) -> bytes:
    """A boot loader, a partition table and an application, from the boot loader's place on."""
    start = board.flashing.offset
    data = bytearray(b"\xff" * size)
    data[:0x4000] = noise(0x4000, board.name)
    struct.pack_into("<4BI", data, 0, 0xE9, 4, 2, 0x20, 0x40080000)
    struct.pack_into("<H", data, 12, ESP_CHIPS[chip or board.chip])
    table = b"" if partitions is None else PartitionTable.from_csv(partitions).to_binary()
    data[0x8000 - start : 0x8000 - start + len(table)] = table
    data[0x10000 - start :] = noise(size - 0x10000 + start, version)
    data[0x18000 - start : 0x18000 - start + len(banner(version))] = banner(version)
    return bytes(data)


def application(board: Board, size: int, version: str = "1.28.0") -> bytes:
    """Return an image for an OTA partition: two segments, a checksum and a hash."""
    data = noise(size, version)
    described = struct.pack("<I", 0xABCD5432) + banner(version) + data
    image = struct.pack("<4BI", 0xE9, 2, 2, 0x20, 0x40080000).ljust(23, b"\0") + b"\1"
    image = image[:12] + struct.pack("<H", ESP_CHIPS[board.chip]) + image[14:]
    for part in (described[: size // 2 & ~3], described[size // 2 & ~3 :]):
        image += struct.pack("<2I", 0x3F400020, len(part)) + part
    image += bytes(15 - len(image) % 16) + b"\x5a"
    return image + hashlib.sha256(image).digest()
