"""Images are mounted by a real MicroPython, as boards mount them, and it works with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from flatmq_tools import boards, image
from flatmq_tools.broker import Broker
from flatmq_tools.errors import ToolError
from flatmq_tools.image import filesystem, romfs
from images.making import files, listed, littlefs, modules, on_board
from observer import Observer


def program(board: boards.Board) -> int:
    """Return the program size that the port's _boot.py gives littlefs.

    On an ESP32 MicroPython finds it out by itself.
    """
    return board.flash.program if board.port == "rp2" else 0


def stored(board: boards.Board, folder: Path) -> Path:
    file = folder / f"{board.name}.littlefs"
    file.write_bytes(filesystem.build(files(), board.flash))
    return file


@pytest.fixture
def watcher(near: Broker) -> Iterator[Observer]:
    """Somebody who hears what the sketch publishes."""
    with Observer(near.host, near.port, "images/reading") as observer:
        yield observer


@pytest.mark.parametrize("name", ["pico_w", "esp32"])
def test_a_sketch_publishes_from_it_and_it_can_be_written(
    name: str, tmp_path: Path, watcher: Observer
) -> None:
    board = boards.load(name)
    said = on_board("run", stored(board, tmp_path), program(board), watcher.port)
    assert said == ["pending 0", "written"]
    watcher.until(lambda: watcher.payloads("images/reading") == [b"21.5"])


def test_a_sketch_publishes_from_a_romfs(tmp_path: Path, watcher: Observer) -> None:
    """The modules run where they lie; main.py and the settings stay where they can be changed."""
    made = image.make(boards.load("esp32"), modules(), with_romfs=True)
    assert sorted(made.files) == ["/main.py", "/settings.json"]
    file = tmp_path / "image.romfs"
    file.write_bytes(made.romfs)
    *lines, pending = on_board("rom", file, watcher.port)
    assert pending == "pending 0"
    watcher.until(lambda: watcher.payloads("images/reading") == [b"21.5"])
    assert listed(lines, "/rom") | made.files == modules()


@pytest.mark.parametrize("name", ["pico_w", "pico_2", "esp32_s3"])
def test_it_says_of_itself_what_micropython_would(name: str, tmp_path: Path) -> None:
    """Format of the disk, longest name, largest file and attribute, count and size of blocks."""
    board = boards.load(name)
    file = stored(board, tmp_path)

    ours = littlefs(board, file.read_bytes()).fs_stat()
    on_board("format", file, board.flash.program)
    assert littlefs(board, file.read_bytes()).fs_stat() == ours


def test_the_size_must_be_the_boards(tmp_path: Path) -> None:
    """An ESP32 with more flash needs --flash-size."""
    board = boards.load("esp32")
    assert on_board("larger", stored(board, tmp_path), board.flash.program) == ["refused 22"]


def test_the_same_files_the_same_bytes() -> None:
    flash = boards.load("pico_w").flash
    turned = dict(reversed(files().items()))
    assert filesystem.build(files(), flash) == filesystem.build(turned, flash)
    assert romfs.build(modules()) == romfs.build(dict(reversed(modules().items())))


def test_too_much_is_told_with_its_numbers() -> None:
    flash = boards.load("pico_w").flash
    much = {f"/{number}": bytes(100_000) for number in range(9)}
    with pytest.raises(
        ToolError,
        match=r"9 files of 900,000 bytes do not fit .* of 868,352 bytes: it was full at /8",
    ):
        filesystem.build(much, flash)
