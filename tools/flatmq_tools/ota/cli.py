"""The command line of `flatmq ota`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import common_options
from ..ending import end

if TYPE_CHECKING:
    from ..trust import Trust

_FILE = click.Path(dir_okay=False, path_type=Path)
_SIGNING = click.option(
    "--signing-key",
    "signing",
    required=True,
    type=common_options.FILE,
    help="The key from `flatmq ota keygen`.",
)


@click.group()
def ota() -> None:
    """Update boards over MQTT."""


@ota.command()
@click.argument("file", type=_FILE)
def keygen(file: Path) -> None:
    """Write a new key to FILE, and its public half to FILE.pub.

    FILE signs updates and stays on this machine. Boards get FILE.pub by `flatmq image --ota-key`.
    """
    from . import keys

    def run() -> int:
        public = keys.generate(file)
        click.echo(f"{file}: the key that signs; keep it secret, and keep a copy")
        click.echo(f"{public}: for boards: flatmq image BOARD --ota-key {public}")
        return 0

    end(run, keys.KeyFileError)


@ota.command()
@click.argument("board")
@click.argument("out", type=_FILE)
@common_options.SKETCH
@click.option(
    "--firmware",
    type=common_options.FILE,
    help="Official MicroPython firmware for the board.  [default: pack a sketch]",
)
@click.option("--version", required=True, help="Name of the version, as boards report it.")
def pack(board: str, out: Path, sketch: str | None, firmware: Path | None, version: str) -> None:
    """Pack a sketch and the client for BOARD into the file OUT.

    BOARD is as for `flatmq image`. With --firmware, this packs firmware, for an ESP32 with two OTA
    partitions. A package is newer than all that were made before it.
    """
    from ..boards import BoardError
    from ..bytecode import CompileError
    from ..contents import ContentsError
    from . import package

    def run() -> int:
        if firmware is None:
            made = package.make(board, sketch, version)
        elif sketch is None:
            made = package.make_firmware(board, firmware, version)
        else:
            raise package.PackageError("--firmware and --sketch: a package has one of them")
        try:
            out.write_bytes(made.written())
        except OSError as error:
            raise package.PackageError(f"{out}: {error.strerror}") from error
        click.echo(f"{out}: version {version} for {board}, {len(made.archive):,} bytes")
        return 0

    end(run, package.PackageError, BoardError, ContentsError, CompileError)


@ota.command()
@click.argument("broker", metavar="HOST[:PORT]")
@click.argument("target")
@click.argument("image", type=common_options.FILE)
@_SIGNING
@common_options.seconds(click.FloatRange(0))
@common_options.USER
@common_options.tls
def push(
    broker: str, target: str, image: Path, signing: Path, seconds: float | None,
    user: str | None, trust: Trust | None,
) -> None:  # fmt: skip
    """Send the package IMAGE to TARGET, a board or group/NAME.

    A board fetches it piece by piece, checks it, and restarts. This runs until the board has said
    how that went; for a group, until Ctrl-C. Exits with status 1 if it does not run the new
    version.
    """
    from .. import broker as brokers
    from ..desk_client import DeskError
    from ..trust import TrustError
    from . import keys, package
    from . import push as command

    def run() -> int:
        where = brokers.external(broker, trust is not None)
        return command.main(where, target, image, signing, user, trust, seconds)

    end(
        run, brokers.BrokerError, keys.KeyFileError, DeskError, package.PackageError,
        TrustError,
    )  # fmt: skip


@ota.command()
@click.argument("broker", metavar="HOST[:PORT]")
@common_options.USER
@common_options.tls
def status(broker: str, user: str | None, trust: Trust | None) -> None:
    """Show the version of each board, and how its update goes."""
    from .. import broker as brokers
    from ..desk_client import DeskError
    from ..trust import TrustError
    from . import status as command

    def run() -> int:
        return command.main(brokers.external(broker, trust is not None), user, trust)

    end(run, brokers.BrokerError, DeskError, TrustError)


@ota.command()
@click.argument("broker", metavar="HOST[:PORT]")
@click.argument("target")
@common_options.USER
@common_options.tls
def cancel(broker: str, target: str, user: str | None, trust: Trust | None) -> None:
    """Offer no update to TARGET any more. A board that fetches one stops."""
    from .. import broker as brokers
    from ..desk_client import DeskError
    from ..trust import TrustError
    from . import status as command

    def run() -> int:
        return command.cancel(brokers.external(broker, trust is not None), target, user, trust)

    end(run, brokers.BrokerError, DeskError, TrustError)


@ota.command()
@click.argument("broker", metavar="HOST[:PORT]")
@click.argument("board")
@_SIGNING
@common_options.USER
@common_options.tls
def prompt(
    broker: str, board: str, signing: Path, user: str | None, trust: Trust | None
) -> None:  # fmt: skip
    """Type into the prompt of BOARD, which needs device.parts = prompt.

    Each line is signed, and runs in the program of the board, between its other work. A session
    ends after ten minutes.
    """
    from .. import broker as brokers
    from ..desk_client import DeskError
    from ..trust import TrustError
    from . import keys
    from . import prompt as command

    def run() -> int:
        where = brokers.external(broker, trust is not None)
        return command.main(where, board, signing, user, trust)

    end(
        run, brokers.BrokerError, keys.KeyFileError, DeskError, command.PromptError,
        TrustError,
    )  # fmt: skip
