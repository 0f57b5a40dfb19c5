"""The command line of `flatmq ota`."""

from pathlib import Path
from typing import Annotated

import click

from .. import common_options as common
from ..errors import ToolError
from ..typed import command

_SigningKey = Annotated[Path, common.FILE, "The key from `flatmq ota keygen`."]


@click.group()
def ota() -> None:
    """Update boards over MQTT."""


@command(ota)
def keygen(file: Annotated[Path, common.OUTPUT]) -> int:
    """Write a new key to FILE, and its public half to FILE.pub.

    FILE signs updates and stays on this machine. Boards get FILE.pub by `flatmq image --ota-key`.
    """
    from . import keys

    public = keys.generate(file)
    click.echo(f"{file}: the key that signs; keep it secret, and keep a copy")
    click.echo(f"{public}: for boards: flatmq image BOARD --ota-key {public}")
    return 0


@command(ota)
def pack(
    board: str,
    out: Annotated[Path, common.OUTPUT],
    *,
    sketch: common.Sketch = None,
    firmware: Annotated[
        Path | None,
        common.FILE,
        "Official MicroPython firmware for the board.  [default: pack a sketch]",
    ] = None,
    version: Annotated[str, "Name of the version, as boards report it."],
) -> int:
    """Pack a sketch and the client for BOARD into the file OUT.

    BOARD is as for `flatmq image`. With --firmware, this packs firmware, for an ESP32 with two OTA
    partitions. A package is newer than all that were made before it.
    """
    from .. import folders
    from . import package

    if firmware is None:
        made = package.make(board, sketch, version)
    elif sketch is None:
        made = package.make_firmware(board, firmware, version)
    else:
        raise ToolError("--firmware and --sketch: a package has one of them")
    folders.write(out, made.written())
    click.echo(f"{out}: version {version} for {board}, {len(made.archive):,} bytes")
    return 0


@command(ota)
def push(
    desk: common.Reached,
    target: str,
    package: Annotated[Path, common.FILE],
    *,
    signing_key: _SigningKey,
    seconds: common.Until = None,
) -> int:
    """Send PACKAGE to TARGET, a board or group/NAME.

    A board fetches it piece by piece, checks it, and restarts. This runs until the board has said
    how that went, and waits while the board tries again; for a group, until Ctrl-C. Exits with
    status 1 if it does not run the new version.
    """
    from . import push as pushing

    return pushing.main(desk, target, package, signing_key, seconds)


@command(ota)
def status(desk: common.Reached) -> int:
    """Show the version of each board, and how its update goes."""
    from . import status as states

    return states.main(desk)


@command(ota)
def cancel(desk: common.Reached, target: str) -> int:
    """Offer no update to TARGET any more. A board that fetches one stops."""
    from . import status as states

    return states.cancel(desk, target)


@command(ota)
def prompt(desk: common.Reached, board: str, *, signing_key: _SigningKey) -> int:
    """Type into the prompt of BOARD, which needs device.parts = prompt.

    Each line is signed, and runs in the program of the board, between its other work. A session
    ends after ten minutes.
    """
    from . import prompt as prompting

    return prompting.main(desk, board, signing_key)
