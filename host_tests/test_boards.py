"""The boards' files: MicroPython's own numbers, and the errors of a wrong file."""

import re
from pathlib import Path

import pytest

from flatmq_tools import boards
from flatmq_tools.errors import ToolError

KIB = 1024

# Flash, offset of the filesystem, UF2 family or offset of the firmware: out of MicroPython's
# sources, so that a slip in a file does not go unnoticed.
FACTS = {
    "esp32": (4096 * KIB, 0x200000, 0x1000),
    "esp32_c3": (4096 * KIB, 0x200000, 0),
    "esp32_s3": (8192 * KIB, 0x200000, 0),
    "pico": (2048 * KIB, (2048 - 1408) * KIB, 0xE48BFF56),
    "pico_2": (4096 * KIB, 1024 * KIB, 0xE48BFF59),
    "pico_2_w": (4096 * KIB, 1536 * KIB, 0xE48BFF59),
    "pico_w": (2048 * KIB, (2048 - 848) * KIB, 0xE48BFF56),
}


@pytest.mark.parametrize("name", boards.names())
def test_a_board_is_where_micropython_says(name: str) -> None:
    board = boards.load(name)
    size, filesystem, other = FACTS[name]
    assert board.flash.size == size
    assert board.flash.filesystem == filesystem
    assert board.flash.filesystem_end == size
    assert (board.flashing.family or board.flashing.offset) == other
    assert board.name == name
    assert board.download.startswith(f"{board.board}-")


@pytest.mark.parametrize("name", FACTS)
def test_every_number_names_its_source(name: str) -> None:
    for line in (boards.FOLDER / f"{name}.toml").read_text().splitlines():
        if re.match(r"\w+ = (0x|[1-9])", line):
            assert "# " in line, line


def edited(folder: Path, board: str, old: str, new: str) -> None:
    text = (boards.FOLDER / f"{board}.toml").read_text()
    assert text.count(old) == 1, f"{old!r} is not in {board}.toml just once"
    (folder / "mine.toml").write_text(text.replace(old, new))


# By board: what is in its file, what stands there instead, what the error says.
WRONG = {
    "pico_w": [
        ('chip = "rp2040"', "chip = 2040", "chip = 2040: must be a text"),
        ('chip = "rp2040"', 'chip = "rp2041"', "chip = rp2041: must be one of rp2040, rp2350"),
        ('chip = "rp2040"', 'chip = "esp32"', "chip = esp32: must be one of rp2040, rp2350"),
        ('port = "rp2"', 'port = "stm32"', "port = stm32: must be one of rp2, esp32"),
        ('port = "rp2"\n', "", "port: is missing"),
        ('title = "', 'titel = "', "titel: no such key; there are board, chip, .*title"),
        ('network = "wifi"', 'network = "lora"', "network = lora: must be one of wifi, ser"),
        ('sketch = "pico_w"', 'sketch = ""', "sketch = : must not be empty"),
        ("size = 0x200000", 'size = "2M"', "flash.size = '2M': must be a whole number"),
        ("size = 0x200000", "size = true", "flash.size = True: must be a whole number"),
        ("size = 0x200000", "size = -4096", "flash.size = -0x1000: .*not below 0"),
        ("filesystem = 0x12C000", "filesystem = 0x12C800",
         "flash.filesystem = 0x12c800: must be a multiple of flash.block = 0x1000"),
        ("filesystem = 0x12C000", "filesystem = 0x12B000",
         "flash.filesystem = 0x12b000: .* ends at 0x1ff000, and must end with flash.size = 0x200"),
        ("filesystem_size = 0xD4000 ", "filesystem_size = 0x3000 ",
         "flash.filesystem_size = 0x3000: must be at least 0x4000"),
        ("block = 4096 ", "block = 512 ", "flash.block = 0x200: must be 0x1000"),
        ("program = 256 ", "program = 4096 ", "flash.program = 0x1000: must be a power of 2"),
        ("block = 4096 ", "romfs = 0x10C000\nromfs_size = 0x21000\nblock = 4096 ",
         "flash.romfs = 0x10c000: .*0x21000 it must end by flash.filesystem = 0x12c000"),
        ('method = "uf2"', 'method = "esptool"', "flashing.method = esptool: .* one of uf2"),
        ("family = 0xE48BFF56", "family = 0", "flashing.family = 0x0: must be a UF2 fam"),
        ('drive = "RPI-RP2"', 'drive = ""', "flashing.drive = : must not be empty"),
        ("[usb]\n", "[[usb]]\n", "usb = .*: it is a table"),
        ('"2e8a:0003"', '"2E8A:3"', "usb.ids = 2E8A:3: must be VID:PID, as in 2e8a:0005"),
        ('"2e8a:0003"', "3", r"usb.ids = \(.*3.*\): must be a list of texts"),
    ],
    "esp32": [
        ("filesystem_size = 0x200000", "filesystem_size = 0x201000",
         "flash.filesystem = 0x200000: .* ends at 0x401000, and must end with flash.size = 0x400"),
        ("filesystem_size = 0x200000          # ports/esp32/main.c: boardctrl_startup: to the "
         "end of flash\ngrows = true ", "filesystem_size = 0x201000\ngrows = false ",
         "flash.filesystem = 0x200000: .* ends at 0x401000, behind flash.size = 0x400000"),
        ("offset = 0x1000", "offset = 0x300000", "flashing.offset = 0x300000: must be below"),
        ("[flash]", "[flash", "not TOML: .*line"),
    ],
    "esp32_s3": [
        ('chip = "esp32s3"\n', 'chip = "esp32"\n', "flashing.chip = esp32: .* esp32s3"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("board", "old", "new", "text"), [(board, *row) for board in WRONG for row in WRONG[board]]
)
def test_a_wrong_file_is_told_its_key(
    board: str, old: str, new: str, text: str, tmp_path: Path
) -> None:
    edited(tmp_path, board, old, new)
    file = re.escape(str(tmp_path / "mine.toml"))
    with pytest.raises(ToolError, match=f"^{file}: {text}"):
        boards.load("mine", tmp_path)


def test_a_new_board_is_a_new_file(tmp_path: Path) -> None:
    edited(tmp_path, "pico_w", 'title = "Raspberry Pi Pico W"', 'title = "Mine"')
    assert boards.names(tmp_path) == ["mine"]
    assert boards.load("mine", tmp_path).title == "Mine"
