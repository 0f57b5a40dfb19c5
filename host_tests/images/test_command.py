"""`flatmq image`, as people type it: what it writes, says and refuses.

The commands of docs/images.md are run with those of all pages.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from flatmq_tools import boards
from images import downloads
from images.making import sketch
from typed_command import flatmq, said


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_firmware_the_filesystem_alone(folder: Path) -> None:
    shown = said("image", "pico_w", "--sketch", sketch())
    assert (folder / "build/pico_w-filesystem.uf2").is_file()
    assert "only the filesystem" in shown
    assert "--firmware RPI_PICO_W-[0-9]*.uf2" in shown
    assert "copy it to the drive RPI-RP2" in shown


def test_with_firmware_one_file(folder: Path) -> None:
    board = boards.load("esp32")
    (folder / "download.bin").write_bytes(downloads.esp32(board, 0x54321))
    shown = said("image", "esp32", "--firmware", "download.bin", "--sketch", sketch())
    assert (folder / "build/esp32.bin").stat().st_size == board.flash.size - 0x1000
    assert "MicroPython 1.28.0" in shown
    assert "esptool --chip esp32 write-flash 0x1000 build/esp32.bin" in shown


def test_a_disk_that_is_full_leaves_no_half_image(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Path.write_bytes

    def half(file: Path, data: bytes) -> int:
        whole(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (folder / "mine.uf2").write_bytes(b"before")
    monkeypatch.setattr(Path, "write_bytes", half)
    done = flatmq("image", "pico_w", "--sketch", sketch(), "--out", "mine.uf2")
    assert (done.exit_code, done.output) == (1, "Error: mine.uf2: No space left on device\n")
    assert [(file.name, file.read_bytes()) for file in folder.glob("*.*")] == [
        ("mine.uf2", b"before")
    ]


def test_settings_go_in_and_what_the_sketch_would_end_with_is_named(folder: Path) -> None:
    out = folder / "here" / "image.bin"
    shown = said("image", "esp32", "--set", "wifi.ssid=a home", "--out", out)
    assert b'"ssid": "a home"' in out.read_bytes()
    assert "does not start with these settings: broker.host is empty" in shown
    assert "does not start" not in said("image", "pico")  # which needs no network
    shown = said("image", "pico", "--set", "device.interval=0")
    assert "device.interval must be a whole number from 1 to 86400" in shown
    assert "does not start" not in said("image", "pico", "--set", "device.parts=crashes, time")
    shown = said("image", "pico", "--set", "device.parts=crashes,[/tim]")
    assert "does not start with these settings: device.parts: [/tim] is not one of crash" in shown


def test_the_same_input_the_same_bytes(folder: Path) -> None:
    pico = boards.load("pico")
    (folder / "download").write_bytes(downloads.uf2(pico, downloads.program(pico, 0x54321)))
    command = [sys.executable, "-m", "flatmq_tools.cli", "image", "pico", "--firmware", "download"]
    path = os.pathsep.join(str(ROOT / name) for name in ("lib", "tools"))
    for seed in "12":
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}
        out = ["--sketch", str(sketch()), "--out", f"{seed}.uf2"]
        subprocess.run([*command, *out], env=environment, check=True, capture_output=True)
    assert (folder / "1.uf2").read_bytes() == (folder / "2.uf2").read_bytes()


def test_a_romfs_lies_beside(folder: Path) -> None:
    shown = said("image", "esp32_c3", "--sketch", sketch(), "--romfs")
    assert (folder / "build/esp32_c3.romfs").read_bytes()[:3] == b"\xd2\xcd\x31"
    assert "mpremote romfs deploy build/esp32_c3.romfs" in shown


ERRORS = [
    (["pico_9"], "pico_9: no such board; there are esp32, "),
    (["pico", "--sketch", "nowhere"], "nowhere: no sketch: "),
    (["pico", "--firmware", "nowhere"], "'nowhere' does not exist"),
    (["esp32", "--flash-size", "lots"], "--flash-size lots: must be a number of MB, as in 16MB"),
    (["esp32", "--flash-size", "2MB"], "flash.filesystem_size = 0x0: must be at least"),
    (["pico", "--flash-size", "16MB"], "pico: its firmware has one place for the filesystem"),
    (["pico", "--set", "ssid"], "--set ssid: must be KEY=VALUE"),
    (["pico", "--ota-version", "2"], "--ota-version needs --ota-key"),
    (["pico", "--out", "/proc/there/is.uf2"], "/proc/there/is.uf2: "),
    (["pico_w", "--ota-key", __file__, "--ota-group", "a/b"], "'group/a/b': must be the name"),
    (["pico_w", "--ota-key", __file__, "--ota-group", "#"], "'group/#': must be the name of a"),
    (["pico_w", "--ota-key", __file__, "--ota-version", ""], "version: must be 1 to 32 printable"),
]


@pytest.mark.parametrize(("arguments", "error"), ERRORS)
def test_an_error_is_a_line(arguments: list[str], error: str, folder: Path) -> None:
    if "--sketch" not in arguments:
        arguments = [*arguments, "--sketch", str(sketch())]
    done = flatmq("image", *arguments)
    assert done.exit_code != 0
    assert error in done.output
    assert not list(folder.rglob("*.uf2"))
