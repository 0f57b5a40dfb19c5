"""A folder with firmware that only the stand-ins of the emulators run."""

import os
from pathlib import Path

import pytest

from conftest import ROOT
from flatmq_tools import boards
from images import downloads


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pico = boards.load("pico_w")
    uf2 = downloads.uf2(pico, downloads.program(pico, 0x54321))
    (tmp_path / "firmware.uf2").write_bytes(uf2)
    for name in ("esp32", "esp32_c3"):
        firmware = downloads.esp32(boards.load(name), 0x54321)
        (tmp_path / f"{name}.bin").write_bytes(firmware)
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join(str(ROOT / name) for name in ("lib", "tools", "host_tests"))
    monkeypatch.setenv("PYTHONPATH", path)
    return tmp_path
