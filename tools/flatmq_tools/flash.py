"""Write firmware, or an image with everything, to a board's flash."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import string
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from . import boards, connected
from .boards import Board
from .errors import ToolError
from .image import firmware, uf2
from .plain import PlainConsole
from .remote import Remote, RemoteError

INFO = "INFO_UF2.TXT"  # what a boot drive has on it
DRIVE = 20.0  # seconds until the boot drive has to be there after the board was asked for it
_CHUNK = 32 * 1024


def main(
    name: str,
    file: Path,
    port: str | None = None,
    drive: Path | None = None,
    console: Console | None = None,
) -> int:
    """Write `file` to the board of that name; return 0.

    port: where it is connected, None for the only one. drive: the folder where its boot drive is
    mounted, None to look for it. Raises ToolError and RemoteError.
    """
    console = console or PlainConsole()
    board = boards.load(name)
    data = file.read_bytes()
    _check_name(board, file)
    if board.flashing.method == "uf2":
        check_uf2(board, file, data)
        folder = drive or _boot_drive(board, port, console)
        copy(file, data, folder, console)
    else:
        offset = esp_offset(board, file, data)
        address = connected.choose(port, name)
        command = esptool_command(board, file, offset, address)
        console.print(f"{file.name} goes to the {board.title} at {address}")
        if subprocess.run(command, check=False).returncode:
            raise ToolError(f"esptool could not flash it. {board.flashing.hint} Then try again.")
    console.print(f"flashed: {board.title}")
    return 0


def _check_name(board: Board, file: Path) -> None:
    """A download for another board would start, and not find its radio, or its files."""
    if fnmatch.fnmatch(file.name, board.download):
        return
    for name in boards.names():
        other = boards.load(name)
        if fnmatch.fnmatch(file.name, other.download):
            raise ToolError(
                f"{file.name} is MicroPython for the {other.title} ({name}); the {board.title} "
                f"takes {board.download}"
            )


# UF2


def check_uf2(board: Board, file: Path, data: bytes) -> None:
    """Raise ToolError if the file is for another chip, whose boot loader would ignore it."""
    wanted = board.flashing.family
    try:
        found = {block.family for block in uf2.read(data)} - {0, uf2.ABSOLUTE}
    except ToolError as error:
        raise ToolError(f"{file}: {error}") from error
    if found != {wanted}:
        given = ", ".join(map(uf2.family_name, sorted(found)))
        raise ToolError(
            f"{file}: for the family {given or 'of no chip'}; the {board.title} takes "
            f"{uf2.family_name(wanted)}, as in {board.download}"
        )


def _mounts() -> Iterator[Path]:
    """Yield folders where a drive may be mounted."""
    if os.name == "nt":
        yield from (Path(f"{letter}:/") for letter in string.ascii_uppercase)
        return
    for place in ("/media/*", "/media/*/*", "/run/media/*/*", "/Volumes/*", "/mnt/*"):
        yield from sorted(Path("/").glob(place[1:]))


def boot_drives(board: Board, mounts: Iterable[Path] | None = None) -> list[Path]:
    """The mounted drives that are the boot loader of the board's chip."""
    found = []
    for folder in _mounts() if mounts is None else mounts:
        with contextlib.suppress(OSError):
            text = (folder / INFO).read_text(errors="replace")
            if f"Board-ID: {board.flashing.drive}" in text:
                found.append(folder)
    return found


def _boot_drive(board: Board, port: str | None, console: Console) -> Path:
    """Return the folder of the boot drive, after asking a running board to show it."""
    found = boot_drives(board)
    if not found and _ask_for_drive(board, port, console):
        deadline = time.monotonic() + DRIVE
        while not found and time.monotonic() < deadline:
            time.sleep(0.3)
            found = boot_drives(board)
    if len(found) > 1:
        lines = "".join(f"\n  --drive {folder}" for folder in found)
        raise ToolError(f"{len(found)} boot drives were found; choose one:{lines}")
    if not found:
        unmounted = Path("/dev/disk/by-label", board.flashing.drive)
        if unmounted.exists():
            raise ToolError(
                f"the boot drive {board.flashing.drive} is not mounted: "
                f"`udisksctl mount -b {unmounted}`, or mount it and say where: --drive FOLDER"
            )
        raise ToolError(
            f"boot drive {board.flashing.drive} not found. {board.flashing.hint} "
            "It then appears as a USB drive; if it is mounted in an unusual place, name that: "
            "--drive FOLDER"
        )
    return found[0]


def _ask_for_drive(board: Board, port: str | None, console: Console) -> bool:
    """Have a board that runs MicroPython start its boot loader; False when there is none."""
    if not port and not any(board.name in each.names for each in connected.find()):
        return False
    address = connected.choose(port, board.name)
    console.print(f"asking the board at {address} for its boot loader")
    with Remote(address) as remote:
        try:
            remote.enter(patience=5)
            remote.leave_for("import time, machine; time.sleep_ms(100); machine.bootloader()")
        except RemoteError as error:
            raise ToolError(f"{error} {board.flashing.hint}") from error
    return True


def copy(file: Path, data: bytes, drive: Path, console: Console) -> None:
    """Copy it to the boot drive, which goes away as soon as it has the last block."""
    target = drive / file.name
    done = 0
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:
        with Progress(*columns, console=console) as bar, target.open("wb", buffering=0) as out:
            task = bar.add_task("", total=len(data))
            while done < len(data):
                written = out.write(data[done : done + _CHUNK])
                os.fsync(out.fileno())
                done += written
                bar.update(task, completed=done)
    except OSError as error:
        if done < len(data) - _CHUNK:  # the last ones may be taken without an answer
            raise ToolError(
                f"{drive}: {error.strerror} after {done:,} of {len(data):,} bytes. Unplug the "
                "board and start again"
            ) from error


# esptool


def esp_offset(board: Board, file: Path, data: bytes) -> int:
    """Return the offset in flash of the file: firmware, a whole-flash image or a filesystem.

    Raises ToolError for anything else, and for firmware of another chip.
    """
    flashing = board.flashing
    if data[8:16] == b"littlefs":
        return board.flash.filesystem
    for at, offset in ((0, flashing.offset), (flashing.offset, 0)):
        chip = firmware.chip(data[at:])
        if chip is not None:
            if chip != board.chip:
                raise ToolError(
                    f"{file}: for {chip}; the {board.title} takes {board.chip}, as in "
                    f"{board.download}"
                )
            return offset
    raise ToolError(f"{file}: no firmware for {board.chip}, as in {board.download}")


def esptool_command(board: Board, file: Path, offset: int, port: str) -> list[str]:
    """Return the command that flashes the file; esptool shows its own progress."""
    return [
        sys.executable, "-m", "esptool", "--chip", board.flashing.chip, "--port", port,
        "--baud", "460800", "write-flash", hex(offset), str(file),
    ]  # fmt: skip
