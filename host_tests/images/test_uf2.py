"""UF2 files for RP2040 and RP2350, and what their boot loaders make of them."""

import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import sizes
from flatmq_tools import boards, image
from flatmq_tools.errors import ToolError
from flatmq_tools.image import filesystem, romfs, uf2
from images import boot_rom, downloads
from images.making import files, listed, littlefs, make, modules, on_board

PICOS = [name for name in boards.names() if boards.load(name).port == "rp2"]
ONE_OF_EACH_CHIP = sizes.one_each(PICOS, lambda name: boards.load(name).chip)
SIZE = 0x54321  # of the firmware: ends within a page and within a sector


@functools.cache
def older(board: boards.Board) -> bytes:
    """Return a flash that was in use: another firmware, and the same image.

    Every directory was written so often that littlefs takes what is left of it for newer than
    a fresh one.
    """
    used = littlefs(board, filesystem.build(files(), board.flash), block_cycles=-1)
    for folder, _, _ in list(used.walk("/")):
        for number in range(60):
            with used.open(f"{folder.rstrip('/')}/old", "w") as file:
                file.write(str(number) * 200)
    return downloads.noise(board.flash.filesystem, "older") + bytes(used.context.buffer)


@pytest.mark.parametrize(
    ("name", "way"),
    sizes.one_each(
        itertools.product(PICOS, ("in order", "mixed")),
        lambda case: (boards.load(case[0]).chip, case[1]),
    ),
)
def test_flash_after_copying_the_file(name: str, way: str, tmp_path: Path) -> None:
    board = boards.load(name)
    program = downloads.program(board, SIZE)
    blocks = boot_rom.blocks(make(board, tmp_path, downloads.uf2(board, program)))
    if way == "mixed":
        # Hosts write in whatever order they like, but for the block that is there for E10.
        first = sum(block.family == boot_rom.ABSOLUTE for block in blocks)
        rest = blocks[first:]
        random.Random(1).shuffle(rest)
        blocks[first:] = rest
    flash, started = boot_rom.copied(blocks, older(board), board.chip)
    assert started
    assert flash[:SIZE] == program
    file = tmp_path / "flash"
    file.write_bytes(flash[board.flash.filesystem : board.flash.filesystem_end])
    assert listed(on_board("files", file, board.flash.program)) == files()


@pytest.mark.parametrize("name", ONE_OF_EACH_CHIP)
def test_the_filesystem_alone_leaves_the_firmware(name: str, tmp_path: Path) -> None:
    board = boards.load(name)
    made = image.make(board, files())
    before = older(board)
    flash, started = boot_rom.copied(boot_rom.blocks(made.image), before, board.chip)
    assert started
    assert flash[: board.flash.filesystem] == before[: board.flash.filesystem]
    file = tmp_path / "flash"
    file.write_bytes(flash[board.flash.filesystem :])
    assert listed(on_board("files", file, board.flash.program)) == files()


def test_a_romfs_goes_to_its_partition(tmp_path: Path) -> None:
    board = boards.load("pico_2_w")
    flash = replace(board.flash, romfs=0x140000, romfs_size=0x40000)
    board = replace(board, flash=flash)
    made = image.make(board, modules(), with_romfs=True)
    content, _ = boot_rom.copied(boot_rom.blocks(made.image), older(board), board.chip)
    stored = romfs.build({k: v for k, v in modules().items() if k not in made.files})
    assert content[0x140000 : 0x140000 + len(stored)] == stored
    assert made.romfs == b""
    file = tmp_path / "flash"
    file.write_bytes(content[flash.filesystem :])
    assert listed(on_board("files", file, flash.program)) == made.files


def test_a_romfs_that_does_not_fit() -> None:
    board = boards.load("pico_2_w")
    board = replace(board, flash=replace(board.flash, romfs=0x160000, romfs_size=0x1000))
    with pytest.raises(ToolError, match=r"\d\d,\d{3} bytes do not fit .* = 4,096"):
        image.make(board, modules(), with_romfs=True)


def changed(data: bytes, at: int, there: bytes) -> bytes:
    return data[:at] + there + data[at + len(there) :]


PICO_W = boards.load("pico_w")
Download = Callable[[], bytes]
WRONG: dict[str, tuple[str, Download, str]] = {
    "no UF2": ("pico_w", lambda: b"MicroPython" * 100,
               r"not a UF2 file: 1,100 bytes are no multiple of 512"),
    "nothing": ("pico_w", lambda: b"", r"not a UF2 file: 0 bytes"),
    "torn": ("pico_w", lambda: downloads.uf2(PICO_W, bytes(512))[:512] + bytes(512),
             r"not a UF2 file: block 1 does not begin and end as one"),
    "for the other chip": ("pico_w",
        lambda: downloads.uf2(boards.load("pico_2"), downloads.program(PICO_W, SIZE)),
        r"it is for absolute \(0xe48bff57\), rp2350-arm-s \(0xe48bff59\), and the board is rp20"),
    "for RISC-V": ("pico_2",
        lambda: downloads.uf2(
            boards.load("pico_2"), downloads.program(PICO_W, SIZE), family=0xE48BFF5A
        ),
        r"it is for absolute .*, rp2350-riscv \(0xe48bff5a\), and the board is rp2350-arm-s \("),
    "for the other board": ("pico_w",
        lambda: downloads.uf2(PICO_W, downloads.program(boards.load("pico"), SIZE)),
        r"it has its filesystem at 0xa0000 to 0x200000, and flash\.filesystem of .*pico_w\.toml "
        r"says 0x12c000 to 0x200000: is it the firmware for this board, RPI_PICO_W-"),
    "too large": ("pico_w", lambda: downloads.uf2(PICO_W, downloads.program(PICO_W, 0x12C100)),
        r"it reaches up to 0x1012c100, and the filesystem of pico_w starts at 0x1012c000, 256 b"),
    "larger than the flash": ("pico_w",
        lambda: downloads.uf2(PICO_W, downloads.program(PICO_W, 0x200100)),
        r"it goes to 0x10000000 to 0x10200100, and the board's flash is at 0x10000000 to 0x10200"),
    "too old": ("pico_w",
        lambda: downloads.uf2(PICO_W, downloads.program(PICO_W, SIZE, version="1.25.0")),
        r"it is MicroPython 1\.25\.0; flatmq needs 1\.26 or later$"),
    "no MicroPython": ("pico_w", lambda: downloads.uf2(PICO_W, downloads.noise(SIZE, "other")),
        r"it contains no version of MicroPython"),
    "pages of another size": ("pico_w",
        lambda: changed(downloads.uf2(PICO_W, bytes(512)), 16, b"\x80\0\0\0"),
        r"block 0 has 128 bytes for 0x10000000; the boot loader takes 256 bytes"),
    "the same place twice": ("pico_w", lambda: downloads.uf2(PICO_W, bytes(256)) * 2,
        r"block 0: there is one for 0x10000000 already"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_firmware_is_refused_with_a_reason(case: str, tmp_path: Path) -> None:
    name, download, text = WRONG[case]
    with pytest.raises(ToolError, match=rf"{tmp_path}/download: {text}"):
        make(boards.load(name), tmp_path, download())


def test_a_firmware_that_does_not_tell_its_place_is_taken(tmp_path: Path) -> None:
    download = downloads.uf2(PICO_W, downloads.program(PICO_W, SIZE, filesystem=None))
    assert len(make(PICO_W, tmp_path, download)) > len(download)


def test_two_things_in_one_place() -> None:
    """Nothing is overwritten silently, whoever calls it."""
    blocks = uf2.read(downloads.uf2(PICO_W, bytes(4096)))
    with pytest.raises(ToolError, match="two things are to go to 0x10000000"):
        uf2.image(PICO_W.flashing.family, {0x10000000: bytes(4096)}, blocks)
