"""The modules in the flash of an emulated ESP32, as a MicroPython finds them there."""

import ast
from pathlib import Path

import pytest

from conftest import interpreter_command, ran
from emulate.files import BOOT, ESP32, unpack
from flatmq_tools import boards
from flatmq_tools.emulate import archive, qemu
from flatmq_tools.errors import ToolError

FILES = {
    "/main.py": b"import one, two.three\n",
    "/boot.py": b"print('a boot.py of a sketch')\n",
    "/settings.json": b"{}",
    "/one.py": b"VALUE = 1\n" + b"#" * 5000,
    "/lib/two/__init__.py": b"",
    "/lib/two/three.py": b"from one import VALUE\nVALUE += 2\n",
}
PROGRAM = f"""\
{BOOT}
import os, sys, main, two.three
print(two.three.VALUE, sys.path[0], os.stat("/lib/one.py")[6])
try:
    import two.absent
except ImportError:
    print("no such module")
"""


def test_modules_are_found_in_the_flash(tmp_path: Path) -> None:
    firmware = Path("esp32.bin")
    board = boards.load("esp32")
    made = archive.make(board, FILES, firmware)
    assert made.image.startswith(firmware.read_bytes())
    content = qemu.content(board, made.image)
    assert len(content) == board.flash.size
    flash = tmp_path / "flash.bin"
    flash.write_bytes(content)
    folder = tmp_path / "board"
    unpack(board, content[board.flash.filesystem :], folder)
    kept = {file.name for file in folder.iterdir()}
    assert kept == {"main.py", "boot.py", "settings.json"}
    (folder / "esp32.py").write_text(ESP32.format(flash=str(flash)))
    done = ran([*interpreter_command("micropython", "256k"), "-c", PROGRAM], cwd=folder)
    assert done.stdout.splitlines() == [
        "a boot.py of a sketch",
        f"3 /lib {len(FILES['/one.py'])}",
        "no such module",
    ], done.stderr


def test_modules_that_have_no_room() -> None:
    large = {**FILES, "/large.py": b"#" * 0x1B0000}
    with pytest.raises(ToolError, match=r"esp32.bin: .* no room for .* bytes of modules"):
        archive.make(boards.load("esp32"), large, Path("esp32.bin"))


def test_the_boot_of_a_board_that_is_updated_imports_what_firmware_has() -> None:
    files = archive.with_larger_reads({"/boot.py": b"import slots\n"})
    nodes = [each for each in ast.parse(files["/boot.py"]).body if isinstance(each, ast.Import)]
    assert b"from" not in files["/boot.py"]
    assert {name.name for node in nodes for name in node.names} == {"flashbdev", "vfs", "slots"}
