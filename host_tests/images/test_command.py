"""`flatmq image` and `make firmware`, as people type them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from flatmq_tools import boards
from images import downloads
from images.making import sketch


def flatmq(*arguments: object, folder: Path, seed: str = "0") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flatmq_tools.cli", "image", *map(str, arguments)],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'lib'}{os.pathsep}{ROOT / 'tools'}",
            "PYTHONHASHSEED": seed,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_firmware_the_filesystem_alone(tmp_path: Path) -> None:
    said = flatmq("pico_w", "--sketch", sketch(), folder=tmp_path)
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "build/pico_w-filesystem.uf2").is_file()
    assert "only the filesystem" in said.stdout
    assert "--firmware RPI_PICO_W-[0-9]*.uf2" in said.stdout
    assert "copy it to the drive RPI-RP2" in said.stdout


def test_with_firmware_one_file(tmp_path: Path) -> None:
    board = boards.load("esp32")
    (tmp_path / "download.bin").write_bytes(downloads.esp32(board, 0x54321))
    said = flatmq(*("esp32", "--firmware", "download.bin", "--sketch", sketch()), folder=tmp_path)
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "build/esp32.bin").stat().st_size == board.flash.size - 0x1000
    assert "MicroPython 1.28.0" in said.stdout
    assert "esptool --chip esp32 write-flash 0x1000 build/esp32.bin" in said.stdout


def test_settings_go_in(tmp_path: Path) -> None:
    out = tmp_path / "here" / "image.bin"
    said = flatmq(
        *("esp32", "--sketch", sketch(), "--set", "wifi.ssid=a home", "--out", out),
        folder=tmp_path,
    )
    assert said.returncode == 0, said.stderr
    assert b'"ssid": "a home"' in out.read_bytes()


def test_what_is_not_set_is_told(tmp_path: Path) -> None:
    said = flatmq("esp32", "--set", "wifi.ssid=home", folder=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "Not set: broker.host." in said.stdout


def test_a_board_on_a_line_needs_no_network(tmp_path: Path) -> None:
    assert "Not set" not in flatmq("pico", folder=tmp_path).stdout


def test_the_same_input_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for seed in "12":
        folder = tmp_path / seed
        folder.mkdir()
        (folder / "download").write_bytes(
            downloads.uf2(boards.load("pico"), downloads.program(boards.load("pico"), 0x54321))
        )
        said = flatmq(
            *("pico", "--firmware", "download", "--sketch", sketch()), folder=folder, seed=seed
        )
        assert said.returncode == 0, said.stderr
        made.append((folder / "build/pico.uf2").read_bytes())
    assert made[0] == made[1]


def test_a_romfs_lies_beside(tmp_path: Path) -> None:
    said = flatmq("esp32_c3", "--sketch", sketch(), "--romfs", folder=tmp_path)
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "build/esp32_c3.romfs").read_bytes()[:3] == b"\xd2\xcd\x31"
    assert "mpremote romfs deploy build/esp32_c3.romfs" in said.stdout


ERRORS = [
    (["pico_9"], "pico_9: no such board; there are esp32, "),
    (["pico", "--sketch", "nowhere"], "nowhere: no sketch: "),
    (["pico", "--firmware", "nowhere"], "'nowhere' does not exist"),
    (["esp32", "--flash-size", "lots"], "--flash-size lots: must be a number of MB, as in 16MB"),
    (["esp32", "--flash-size", "2MB"], "flash.filesystem_size = 0x0: must be at least"),
    (["pico", "--flash-size", "16MB"], "pico: its firmware has one place for the filesystem"),
    (["pico", "--set", "ssid"], "--set ssid: must be KEY=VALUE"),
    (["pico", "--out", "/proc/there/is.uf2"], "/proc/there/is.uf2: "),
]


@pytest.mark.parametrize(("arguments", "told"), ERRORS)
def test_an_error_is_a_line(arguments: list[str], told: str, tmp_path: Path) -> None:
    if "--sketch" not in arguments:
        arguments = [*arguments, "--sketch", str(sketch())]
    said = flatmq(*arguments, folder=tmp_path)
    assert said.returncode != 0
    assert told in said.stderr
    assert "Traceback" not in said.stderr
    assert not list(tmp_path.rglob("*.uf2"))


@pytest.mark.parametrize("name", boards.names())
def test_make_firmware_asks_for_it(name: str) -> None:
    found = subprocess.run(
        ["make", "--dry-run", "firmware", f"BOARD={name}", "FIRMWARE=a download"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.search(rf'flatmq image {name} --firmware "a download"$', found.stdout, re.MULTILINE)


def documented() -> list[str]:
    """The commands of docs/images.md."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/images.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_there_are_commands_to_run() -> None:
    assert len(documented()) == 6


@pytest.mark.parametrize("line", documented())
def test_a_documented_command_runs_as_written(line: str, tmp_path: Path) -> None:
    pico, esp32 = boards.load("pico_w"), boards.load("esp32")
    download = downloads.uf2(pico, downloads.program(pico, 0x54321))
    (tmp_path / "RPI_PICO_W.uf2").write_bytes(download)
    (tmp_path / "ESP32_GENERIC.bin").write_bytes(downloads.esp32(esp32, 0x54321))
    command, *arguments = shlex.split(line)
    if command == "make":
        made = subprocess.run(
            [command, "--dry-run", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        found = re.search(r"flatmq (image .*)", made.stdout)
        assert found is not None
        command, *arguments = shlex.split(f"flatmq {found[1]}")
    assert (command, arguments.pop(0)) == ("flatmq", "image")
    said = flatmq(*arguments, folder=tmp_path)
    assert said.returncode == 0, said.stderr
    assert list((tmp_path / "build").iterdir())
