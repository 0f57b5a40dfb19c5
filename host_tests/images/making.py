"""A small sketch, and what is made of it."""

import functools
import tempfile
from pathlib import Path

from littlefs import LittleFS, UserContext

from conftest import HERE, printed
from flatmq_tools import contents, image
from flatmq_tools.boards import Board

SETTINGS = {"wifi": {"ssid": "home", "password": "12345678"}}
SKETCH = {
    "mine/main.py": "import helper\n\nhelper.payload()\n",
    "mine/helper.py": (
        "import reading\n\nDEVICE = b'image-1'\nTOPIC = b'images/reading'\n\n\n"
        "def payload():\n    return reading.text()\n"
    ),
    "shared/reading.py": "def text():\n    return b'21.5'\n",
}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with the sketch, removed when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="flatmq-sketch-")
    for name, text in SKETCH.items():
        file = Path(folder.name, name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


def sketch() -> Path:
    return Path(_folder().name, "mine")


@functools.cache
def modules() -> dict[str, bytes]:
    return contents.contents(sketch(), SETTINGS)


@functools.cache
def files() -> dict[str, bytes]:
    """The same, and a file of every size that littlefs stores in a way of its own."""
    sizes = (0, 1, 127, 128, 129, 255, 511, 512, 513, 1023, 1024, 1025, 4096, 4097, 20_000)
    return modules() | {f"/data/{size}.bin": (bytes(range(256)) * 80)[:size] for size in sizes}


def make(board: Board, folder: Path, firmware: bytes) -> bytes:
    """The image of all `files`, with that firmware."""
    file = folder / "download"
    file.write_bytes(firmware)
    return image.make(board, files(), firmware_file=file).image


def on_board(*arguments: object) -> list[str]:
    script = HERE / "images/on_board.py"
    said = printed("micropython", "64m", script, *arguments, folders=[HERE / "spool"])
    return said.splitlines()


def littlefs(board: Board, content: bytes = b"", **options: int) -> LittleFS:
    """The filesystem of a board whose flash holds that."""
    flash = board.flash
    context = UserContext(flash.filesystem_size)
    context.buffer[: len(content)] = content
    count = flash.filesystem_size // flash.block
    return LittleFS(context, block_size=flash.block, block_count=count, **options)


def listed(lines: list[str], root: str = "/board") -> dict[str, bytes]:
    """Path -> bytes, as on_board.py prints them."""
    found = {}
    for line in lines:
        _, path, *content = line.split(" ")
        found[path.removeprefix(root)] = bytes.fromhex(content[0])
    return found
