"""The QEMU that emulates an ESP32: which program, and whether the board has a radio.

flatmq ships none. QEMU itself has no ESP32; two forks have.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from ..boards import Board
from ..errors import ToolError

PROGRAMS = {"esp32": "qemu-system-xtensa", "esp32c3": "qemu-system-riscv32"}
WHERE = (
    "build github.com/lcgamboa/qemu, branch picsimlab-esp32, which has Wi-Fi, or get the one of "
    "github.com/espressif/qemu, which has none"
)
_PATIENCE = 60.0  # seconds for its list of machines


@dataclass(frozen=True)
class Program:
    """A QEMU that has the board's chip; its path is "" for a board that needs none."""

    path: str
    machine: str
    """Its -machine."""
    wifi: bool
    """The board has a radio."""


def find(board: Board, given: str | None) -> Program:
    """Return the QEMU of the path `given`, or the one on the PATH. Raises ToolError."""
    name = PROGRAMS.get(board.chip)
    if name is None:
        return Program("", "", board.network == "wifi")
    path = shutil.which(given or name)
    if path is None:
        raise ToolError(
            f"--qemu {given}: there is no such program"
            if given
            else f"no {name} on the PATH, which emulates {board.name}: {WHERE}; then name it with "
            "--qemu"
        )
    try:
        listed = subprocess.run(
            [path, "-machine", "help"],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError(f"{path}: it does not list its machines: {error}") from error
    machines = {line.split()[0] for line in listed.splitlines() if line.strip()}
    for machine, wifi in ((f"{board.chip}-picsimlab", True), (board.chip, False)):
        if machine in machines:
            return Program(path, machine, wifi)
    raise ToolError(f"{path}: this QEMU has no {board.chip}: {WHERE}")
