"""Packages of firmware: what `flatmq ota pack --firmware` takes, and what it refuses."""

from pathlib import Path

import pytest

import typed_command
from flatmq_tools import boards
from flatmq_tools.ota import package
from images import downloads

ESP32 = boards.load("esp32")
GOOD = downloads.application(ESP32, 40_000)
PLACE = (
    0x10000 - ESP32.flashing.offset
)  # of the first application, in a file with all of the flash


def _whole(application: bytes, partitions: str = downloads.OTA) -> bytes:
    download = downloads.esp32(ESP32, 0x60000, partitions=partitions)
    return download[:PLACE] + application + download[PLACE + len(application) :]


def _packed(data: bytes, folder: Path, *words: str) -> tuple[int, str]:
    file = folder / "firmware.bin"
    file.write_bytes(data)
    command = ("ota", "pack", *words, folder / "out", "--version", "x")
    done = typed_command.flatmq(*command, "--firmware", file)
    return done.exit_code, done.output.replace(f"{file}: ", "")


@pytest.mark.parametrize(
    "data", [GOOD, GOOD + b"\xff" * 999, _whole(GOOD)], ids=["alone", "padded", "whole"]
)
def test_an_application_is_packed(data: bytes, tmp_path: Path) -> None:
    """Alone, with something behind it, and from all of a flash."""
    status, output = _packed(data, tmp_path, "esp32")
    assert status == 0, output
    made = package.read(tmp_path / "out")
    assert (made.kind, made.board, made.version) == ("firmware", "esp32", "x")
    assert made.archive == GOOD


@pytest.mark.parametrize(
    ("words", "data", "why"),
    [
        ("pico_w", GOOD, "firmware of pico_w cannot be updated over MQTT: only an ESP32 "),
        ("esp32_c3", GOOD, "it is for esp32, and the board has esp32c3"),
        ("esp32", b"UF2\n" * 9, "it is no firmware for an ESP32: it begins with 55, not with e9"),
        ("esp32", b"\xe9", "it is no firmware for an ESP32"),
        ("esp32", _whole(GOOD, downloads.PARTITIONS), "it has no second OTA partition"),
        ("esp32", _whole(GOOD)[:PLACE], "it is a boot loader or another program, and no app"),
        ("esp32", GOOD[:30_000], "its 30,000 bytes do not have the SHA-256 at their end"),
        ("esp32", GOOD[:999] + b"\0" + GOOD[1000:], "do not have the SHA-256"),
        ("esp32", _whole(GOOD)[: PLACE + 20_000], "do not have the SHA-256"),
        ("esp32", _whole(GOOD, downloads.OTA.replace("0x180000", "0x1000", 2)), "must have at"),
        ("esp32", downloads.application(ESP32, 9999, "1.20.0"), "it is MicroPython 1.20.0; "),
        ("esp32 --sketch esp32", GOOD, "--firmware and --sketch: a package has one of them"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_refused(words: str, data: bytes, why: str, tmp_path: Path) -> None:
    status, output = _packed(data, tmp_path, *words.split())
    assert status == 1, output
    assert why in output
    assert not (tmp_path / "out").exists()
