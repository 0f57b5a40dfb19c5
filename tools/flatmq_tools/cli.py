"""The command `flatmq`. Each of its commands is a module of its own; this is their front."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import flatmq

from . import common_options
from .ending import end
from .pipeline.cli import pipeline

if TYPE_CHECKING:
    from .trust import Trust


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(flatmq.__version__, prog_name="flatmq")
def main() -> None:
    """The desk side of flatmq, an MQTT client for MicroPython."""


@main.command()
@click.option(
    "--readings",
    type=click.IntRange(3, 10_000),
    default=25,
    show_default=True,
    help="How many messages the sketch publishes, five a second.",
)
def demo(readings: int) -> None:
    """Publish from a real MicroPython, receive here, and show what the heap does.

    A broker is started on loopback; BROKER=host:port names one that runs already.
    """
    from . import demo as command
    from .bytecode import CompileError

    end(lambda: command.main(readings), command.DemoError, CompileError)


@main.command()
@click.argument("broker")
@common_options.USER
@click.option("--seconds", type=click.FloatRange(0), help="Watch for so long; else until Ctrl-C.")
@click.option("--packs", type=click.IntRange(1), help="End when so many packs have come.")
@common_options.tls
def watch(
    broker: str,
    user: str | None,
    seconds: float | None,
    packs: int | None,
    trust: Trust | None,
) -> None:
    """Show what boards send to BROKER (host or host:port), as it comes in."""
    from . import broker as brokers
    from . import watch as command
    from .trust import TrustError

    def watched() -> int:
        target = brokers.external(broker, trust is not None)
        return command.main(target.host, target.port, user, seconds, packs, trust)

    end(watched, brokers.BrokerError, command.WatchError, TrustError)


_share = click.FloatRange(0, 1)
_often = click.FloatRange(0)


@main.command()
@click.argument("broker")
@click.option("--devices", type=click.IntRange(1, 60_000), default=1000, show_default=True)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1000, min_open=True),
    default=1.0,
    show_default=True,
    help="Readings a second of each board.",
)
@click.option(
    "--seconds", type=click.FloatRange(0, 604_800, min_open=True), default=30.0, show_default=True
)
@click.option("--seed", type=int, help="To have the same again: the same troubles, and names.")
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="A file for what each board really did: a line of JSON for each of its boots.",
)
@click.option(
    "--prefix", default="sim", show_default=True, help="What the boards' names begin with."
)
@common_options.USER
@common_options.tls
@click.option("--calm", is_flag=True, help="Nothing goes wrong but what is asked for below.")
@click.option("--lost", type=_share, help="Readings that are never published. [0.005]")
@click.option("--duplicated", type=_share, help="Readings that are published twice. [0.005]")
@click.option("--reordered", type=_share, help="Readings published after the next. [0.002]")
@click.option("--drop-outs", type=_often, help="A board and minute. [0.2]")
@click.option("--reboots", type=_often, help="A board and minute. [0.1]")
@click.option("--silent", type=_share, help="Boards that stop. [0.02]")
@click.option("--clocks", type=_share, help="Boards whose clock is wrong. [0.02]")
def fleet(
    broker: str,
    devices: int,
    rate: float,
    seconds: float,
    seed: int | None,
    truth: Path | None,
    prefix: str,
    user: str | None,
    trust: Trust | None,
    calm: bool,
    **troubles: float | None,
) -> None:
    """Simulate boards that publish to BROKER (host or host:port), and have their troubles.

    Each is a client of its own, with a will, a status and packs as the sketches have them.
    """
    import dataclasses
    import secrets

    from . import broker as brokers
    from . import fleet as command
    from .fleet import plan
    from .trust import TrustError

    asked = {name: value for name, value in troubles.items() if value is not None}
    settings = command.Settings(
        devices,
        rate,
        seconds,
        secrets.randbelow(1_000_000) if seed is None else seed,
        prefix,
        dataclasses.replace(plan.CALM if calm else plan.Troubles(), **asked),
        user,
    )

    def run() -> int:
        target = brokers.external(broker, trust is not None)
        settings.tls = trust.context() if trust else None
        return command.main(target.host, target.port, settings, truth)

    end(run, TrustError, *command.ERRORS)


@main.command()
@click.argument("port")
@click.argument("broker", metavar="HOST:PORT")
@click.option("--baud", type=click.IntRange(300), default=115200, show_default=True)
@common_options.tls
def bridge(port: str, broker: str, baud: int, trust: Trust | None) -> None:
    """Connect a board without a network to a broker, over its serial PORT.

    PORT is a device such as /dev/ttyACM0 or COM3, or a URL of pyserial. What the board prints is
    shown. Ends with Ctrl-C.
    """
    from . import bridge as command

    end(lambda: command.main(port, broker, baud=baud, trust=trust), *command.ERRORS)


@main.command()
@click.argument("broker", metavar="HOST[:PORT]")
@click.option(
    "--ca",
    type=common_options.FILE,
    help="Authorities to verify the broker by.  [default: those of this machine]",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for the authority that a board needs, PEM, or DER if it ends in .der.",
)
def tls(broker: str, ca: Path | None, save: Path | None) -> None:
    """Show a broker's certificates, and the settings by which a board trusts it.

    The port is 8883 unless given. Ends with status 1 if boards would refuse the broker.
    """
    from .address import AddressError

    try:
        from . import certificates, probe
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    end(
        lambda: probe.main(broker, ca=ca, save=save),
        AddressError,
        certificates.CertificateError,
        probe.ProbeError,
    )


@main.command("boards")
def boards_() -> None:
    """Show which boards are connected, and which there are."""
    from . import boards, connected

    end(connected.main, boards.BoardError)


_port = click.option(
    "--port",
    metavar="ADDRESS",
    help="Where the board is: /dev/ttyACM0, socket://HOST:PORT, rfc2217://HOST:PORT; the only "
    "one that is connected where it is not given.",
)


@main.command()
@click.argument("board")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_port
@click.option(
    "--drive",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the boot drive is mounted (RP2040, RP2350), if it is not found.",
)
def flash(board: str, file: Path, port: str | None, drive: Path | None) -> None:
    """Write FILE, MicroPython or an image, to a BOARD's flash."""
    from . import boards, connected, remote
    from . import flash as command

    end(
        lambda: command.main(board, file, port, drive),
        boards.BoardError,
        connected.ConnectedError,
        remote.RemoteError,
        command.FlashError,
    )


@main.command()
@click.argument("board")
@_port
@click.option("--sketch", help="A folder, or one of boards/; the board's own if not given.")
@common_options.settings("A setting; repeatable.")
def deploy(board: str, port: str | None, sketch: str | None, overrides: tuple[str, ...]) -> None:
    """Copy a sketch and the client to a BOARD that runs MicroPython, and start it."""
    from . import board_tls, boards, connected, contents, remote, settings
    from . import deploy as command
    from .bytecode import CompileError

    end(
        lambda: command.main(board, port, sketch, overrides),
        board_tls.BoardTLSError,
        boards.BoardError,
        connected.ConnectedError,
        contents.ContentsError,
        remote.RemoteError,
        settings.SettingsError,
        CompileError,
    )


@main.command()
@_port
def logs(port: str | None) -> None:
    """Show what a board prints, over its resets, until Ctrl-C."""
    from . import boards, connected
    from . import logs as command

    end(
        lambda: command.main(port),
        boards.BoardError,
        connected.ConnectedError,
        command.LogsError,
    )


@main.command()
@click.argument("board")
@click.option(
    "--firmware",
    type=common_options.FILE,
    help="MicroPython's download for the board; without it, the filesystem alone is made.",
)
@click.option("--sketch", help="A folder with a main.py, or the name of one in boards/.")
@common_options.settings("As in wifi.ssid=home; repeatable.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write.")
@click.option("--filesystem-only", is_flag=True, help="Leave the firmware out; it is checked.")
@click.option("--romfs", is_flag=True, help="The modules go into a ROMFS image.")
@click.option("--flash-size", metavar="SIZE", help="Of an ESP32 that has another: 16MB.")
def image(
    board: str,
    firmware: Path | None,
    sketch: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    filesystem_only: bool,
    romfs: bool,
    flash_size: str | None,
) -> None:
    """Make a file that puts MicroPython, the client and a sketch onto BOARD.

    BOARD is a file's name in firmware/: pico_w, esp32_s3 ...
    """
    from . import image as command
    from .bytecode import CompileError

    end(
        lambda: command.main(
            board,
            firmware_file=firmware,
            sketch=sketch,
            overrides=overrides,
            out=out,
            filesystem_only=filesystem_only,
            with_romfs=romfs,
            flash_size=flash_size,
        ),
        CompileError,
        *command.ERRORS,
    )


main.add_command(pipeline)


if __name__ == "__main__":
    main()
