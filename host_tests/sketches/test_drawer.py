"""The README's "From drawer to dashboard", as written: from a download to readings in a terminal.

The address and the Wi-Fi are others, the download is made up, and the board is a MicroPython that
runs what its boot loader would have put into flash.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import ROOT
from flatmq_tools import boards
from flatmq_tools.broker import Broker, mosquitto
from hil import plugged
from images import boot_rom, downloads, making
from sketches.board_bench import Board, switched_on
from typed_command import said

README = (ROOT / "README.md").read_text()
ADDRESS = "192.168.1.10"


def commands() -> list[str]:
    """Those of the section, but for `make tools`, which has made what runs this."""
    section = README.split("## From drawer to dashboard")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    first, *others = block.splitlines()
    assert first.startswith("make tools")
    return others


def booted(board: Board, content: dict[str, bytes]) -> None:
    """Put that, and nothing else, on the board."""
    shutil.rmtree(board.folder)
    for path, data in content.items():
        file = board.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker with nothing retained, which `flatmq watch` would show first."""
    with mosquitto() as running:
        yield running


def test_the_readme_brings_a_board_to_a_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    monkeypatch.chdir(tmp_path)
    pico = boards.load("pico_w")
    Path("RPI_PICO_W.uf2").write_bytes(downloads.uf2(pico, downloads.program(pico, 0x54321)))
    drive = plugged.drive(monkeypatch, tmp_path)
    output = {}
    board = Board("pico_w", tmp_path / "board", {}, broker.port)
    for line in commands():
        name, *arguments = shlex.split(
            line.replace(f"host={ADDRESS}", f"host={broker.host} --set broker.port={broker.port}")
            .replace(ADDRESS, broker.address)
        )  # fmt: skip
        assert name == "flatmq"
        if arguments[0] == "watch":
            # As the boot ROM takes it, over a flash that holds what came before.
            arriving = boot_rom.blocks((drive / "pico_w.uf2").read_bytes())
            content, started = boot_rom.copied(arriving, bytes(pico.flash.size), pico.chip)
            assert started
            image = tmp_path / "image"
            image.write_bytes(content[pico.flash.filesystem : pico.flash.filesystem_end])
            booted(board, making.listed(making.on_board("files", image, pico.flash.program)))
            with switched_on(board):
                output[arguments[0]] = said(*arguments, "--packs", 1, "--seconds", 60)
        else:
            output[arguments[0]] = said(*arguments)
    assert "Pico W" in output["boards"]
    assert "does not start" not in output["image"]
    assert re.search(r"pico-\w+  .*27\.\d+ °C", output["watch"]), output["watch"]
