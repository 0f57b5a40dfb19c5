"""Files for ESP32: each part is at its offset; a firmware that has it elsewhere is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from esp_idf_defs.partitions import PartitionTable
from esptool import CHIP_DEFS

from flatmq_tools import boards, image
from flatmq_tools.errors import ToolError
from flatmq_tools.image import filesystem, firmware, romfs
from images import downloads
from images.making import files, listed, make, modules, on_board

ESP32S = [name for name in boards.names() if boards.load(name).port == "esp32"]
ESP32 = boards.load("esp32")
SIZE = 0x54321  # of the firmware, from its place in flash on

# What earlier firmware had: ports/esp32/partitions-4MiB.csv before MicroPython 1.26.
WITH_VFS = downloads.PARTITIONS + "vfs,      data, fat,     0x200000, 0x200000,\n"
ELSEWHERE = downloads.PARTITIONS + "vfs,      data, fat,     0x210000, 0x1F0000,\n"
WITH_ROMFS = """\
nvs,      data, nvs,     0x9000,  0x6000,
phy_init, data, phy,     0xf000,  0x1000,
factory,  app,  factory, 0x10000, 0x1B0000,
romfs,    data, 0x8f,    0x1C0000, 0x40000,
"""
ROMFS_ELSEWHERE = WITH_ROMFS.replace("0x1C0000, 0x40000", "0x1B0000, 0x50000").replace(
    "0x10000, 0x1B0000", "0x10000, 0x1A0000"
)
LARGER = downloads.PARTITIONS.replace("0x1F0000", "0x210000")


@pytest.mark.parametrize("name", ESP32S)
def test_each_part_is_at_its_offset(name: str, tmp_path: Path) -> None:
    board = boards.load(name)
    flash = board.flash
    download = downloads.esp32(board, SIZE)
    made = make(board, tmp_path, download)
    # The file begins where the firmware's own download does.
    content = bytes(board.flashing.offset) + made
    assert len(content) == flash.filesystem_end == flash.size
    assert content[board.flashing.offset :][:SIZE] == download
    assert set(content[board.flashing.offset + SIZE : flash.filesystem]) == {0xFF}
    assert content[flash.filesystem :] == filesystem.build(files(), flash)
    # As the boot loader finds it there.
    table = PartitionTable.from_binary(content[0x8000:0x8C00])
    assert max(part.offset + part.size for part in table) == flash.filesystem
    assert content[board.flashing.offset] == CHIP_DEFS[board.flashing.chip].ESP_IMAGE_MAGIC


@pytest.mark.parametrize("name", ESP32S)
def test_the_firmware_is_where_its_chip_looks_for_it(name: str) -> None:
    board = boards.load(name)
    chip = CHIP_DEFS[board.flashing.chip]
    assert board.flashing.offset == chip.BOOTLOADER_FLASH_OFFSET
    assert firmware.CHIP_IDS[chip.IMAGE_CHIP_ID] == board.chip


def test_the_filesystem_is_behind_a_second_ota_partition(tmp_path: Path) -> None:
    file = tmp_path / "download"
    file.write_bytes(downloads.esp32(ESP32, SIZE, partitions=downloads.OTA))
    board = image.fitted(ESP32, file)
    made = image.make(board, files(), firmware_file=file)
    content = bytes(board.flashing.offset) + made.image
    assert content[0x310000:] == filesystem.build(files(), board.flash)
    file.write_bytes(downloads.esp32(ESP32, SIZE))
    assert image.fitted(ESP32, file) == ESP32


def test_the_filesystem_alone_is_for_its_offset() -> None:
    board = boards.load("esp32_s3")
    made = image.make(board, files())
    assert made.offset == board.flash.filesystem
    assert made.image == filesystem.build(files(), board.flash)


def test_more_flash_a_larger_filesystem(tmp_path: Path) -> None:
    board = boards.load("esp32").with_flash(8 << 20)
    content = make(board, tmp_path, downloads.esp32(board, SIZE))
    assert len(content) == (8 << 20) - board.flashing.offset
    file = tmp_path / "flash"
    file.write_bytes(content[board.flash.filesystem - board.flashing.offset :])
    assert listed(on_board("files", file, 0)) == files()


def test_a_partition_of_its_own_is_taken_where_it_is_the_same(tmp_path: Path) -> None:
    board = boards.load("esp32")
    content = make(board, tmp_path, downloads.esp32(board, SIZE, partitions=WITH_VFS))
    assert content[board.flash.filesystem - 0x1000 :] == filesystem.build(files(), board.flash)


def with_romfs() -> boards.Board:
    """ports/esp32/partitions-4MiB-romfs.csv, with twice the room and a filesystem behind it."""
    flash = replace(ESP32.flash, romfs=0x1C0000, romfs_size=0x40000)
    return replace(ESP32, flash=flash)


def test_a_romfs_goes_to_its_partition(tmp_path: Path) -> None:
    board = with_romfs()
    file = tmp_path / "download"
    file.write_bytes(downloads.esp32(board, SIZE, partitions=WITH_ROMFS))
    made = image.make(board, modules(), firmware_file=file, with_romfs=True)
    content = bytes(board.flashing.offset) + made.image
    stored = romfs.build({k: v for k, v in modules().items() if k not in made.files})
    assert content[0x1C0000 : 0x1C0000 + len(stored)] == stored
    assert content[board.flash.filesystem :] == filesystem.build(made.files, board.flash)
    assert made.romfs == b""


def test_a_romfs_lies_beside_a_filesystem_alone() -> None:
    assert image.make(with_romfs(), modules(), with_romfs=True).romfs


@pytest.mark.parametrize(("partitions", "size", "text"), [
    (downloads.PARTITIONS, SIZE, r"no romfs partition is in it, and .* has flash\.romfs"),
    (ROMFS_ELSEWHERE, SIZE,
     r"its romfs at 0x1b0000 to 0x200000, and flash\.romfs of .* says 0x1c0000 to 0x200000"),
    (WITH_ROMFS, 0x1BF100,
     r"reaches up to 0x1c0100, and the romfs of esp32 starts at 0x1c0000, 256 bytes before"),
])  # fmt: skip
def test_a_romfs_that_the_firmware_has_elsewhere(
    partitions: str, size: int, text: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match=text):
        make(with_romfs(), tmp_path, downloads.esp32(ESP32, size, partitions=partitions))


Download = Callable[[], bytes]
S3 = boards.load("esp32_s3")
WRONG: dict[str, tuple[str, Download, str]] = {
    "no firmware": ("esp32", lambda: b"MicroPython",
        r"it is no firmware .* 11 bytes .* 4d, not w"),
    "a UF2 file": ("esp32", lambda: b"UF2\n" * 20_000, r"it is no firmware .* begin with 55, not"),
    "for the other chip": ("esp32_c3",
        lambda: downloads.esp32(boards.load("esp32_c3"), SIZE, chip="esp32s3"),
        r"it is for esp32s3, and the board has esp32c3"),
    "for the chip before it": ("esp32_s3", lambda: downloads.esp32(ESP32, SIZE),
        r"it is for esp32, and the board has esp32s3"),
    "no partition table": ("esp32", lambda: downloads.esp32(ESP32, SIZE, partitions=None),
        r"no partition table is in it, where 0x8000 of the flash will be"),
    "the filesystem elsewhere": ("esp32",
        lambda: downloads.esp32(ESP32, SIZE, partitions=ELSEWHERE),
        r"it has its filesystem at 0x210000 to 0x400000, and flash\.filesystem of .*esp32\.toml "
        r"says 0x200000 to 0x400000"),
    "a larger application": ("esp32", lambda: downloads.esp32(ESP32, SIZE, partitions=LARGER),
        r"it has its filesystem at 0x220000 to 0x400000, and .* 0x200000 to 0x400000"),
    "a smaller flash": ("esp32_s3", lambda: downloads.esp32(S3, SIZE, partitions=WITH_VFS),
        r"it has its filesystem at 0x200000 to 0x400000, and .* 0x200000 to 0x800000"),
    "too large": ("esp32", lambda: downloads.esp32(ESP32, 0x1FF010),
        r"it reaches up to 0x200010, and the filesystem of esp32 starts at 0x200000, 16 bytes b"),
    "too old": ("esp32", lambda: downloads.esp32(ESP32, SIZE, version="1.22.2"),
        r"it is MicroPython 1\.22\.2; flatmq needs 1\.26 or later"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_firmware_is_refused_with_a_reason(case: str, tmp_path: Path) -> None:
    name, download, text = WRONG[case]
    with pytest.raises(ToolError, match=rf"{tmp_path}/download: {text}"):
        make(boards.load(name), tmp_path, download())


@pytest.mark.parametrize(("banner", "version"), [
    (b"MicroPython v1.26.0-preview.12.gabc on 2025-06-01", (1, 26, 0)),
    (b"MicroPython (with v2.0 preview) v1.29.1 on 2026-06-01", (1, 29, 1)),
    (b"3.4.0; MicroPython v1.28 on 2026-04-01", (1, 28, 0)),
    (b"MicroPython", None),
])  # fmt: skip
def test_the_version_is_read_from_the_banner(
    banner: bytes, version: tuple[int, int, int] | None
) -> None:
    assert firmware.version(b"\xff\0" + banner + b"\0") == version
