"""Boards that are plugged in, as a computer sees them: ports, and the drive of a boot loader."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from serial.tools import list_ports

from flatmq_tools import flash


def ports(monkeypatch: pytest.MonkeyPatch, *known: tuple[str, int | None, int | None]) -> None:
    """Have pyserial list these ports (device, VID, PID), and no others."""
    more = {"serial_number": "e66", "product": "Board", "description": ""}
    infos = [
        SimpleNamespace(device=device, vid=vid, pid=pid, **more) for device, vid, pid in known
    ]
    monkeypatch.setattr(list_ports, "comports", lambda: infos)


def drive(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Make the boot drive of an RP2040 in a folder, and have no other; return it."""
    made = folder / "drives" / "RPI-RP2"
    made.mkdir(parents=True)
    said = "UF2 Bootloader v3.0\nModel: Raspberry Pi RP2\nBoard-ID: RPI-RP2\n"
    (made / flash.INFO).write_text(said)
    monkeypatch.setattr(flash, "_mounts", made.parent.iterdir)
    return made
