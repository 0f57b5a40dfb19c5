"""The command line of `flatmq`. Each subcommand has a module of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

import flatmq

from . import common_options, extras
from .durations import Duration, Span
from .ending import end
from .ota.cli import ota
from .pipeline.cli import pipeline

if TYPE_CHECKING:
    from .ota.package import Slots
    from .trust import Trust


_EXTRAS = {
    "demo": "demo",
    "emulate": "emulate",
    "deploy": "boards",
    "flash": "boards",
    "image": "image",
    "ota": "image",
}


@click.group(
    cls=extras.Group, extras=_EXTRAS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(flatmq.__version__, prog_name="flatmq")
def main() -> None:
    """Host tools for flatmq, an MQTT client for MicroPython."""


@main.command()
@click.option(
    "--readings",
    type=click.IntRange(3, 10_000),
    help="Number of readings to publish, instead of the sketch's.",
)
def demo(readings: int | None) -> None:
    """Publish from MicroPython on this machine, without a board.

    Runs the sketch boards/host/main.py, receives on the host, and shows the heap. Starts a
    broker on loopback. To use a running one, set the environment variable BROKER=host:port;
    then the device has a random name, and only what lies under it is received.
    """
    from . import demo as command
    from .bytecode import CompileError

    end(lambda: command.main(readings), command.DemoError, CompileError)


@main.command()
@click.argument("broker")
@common_options.USER
@common_options.seconds(click.FloatRange(0))
@click.option(
    "--packs",
    type=click.IntRange(1),
    help="Stop after this many packs; if --seconds ends first, exit with status 1.",
)
@common_options.tls
def watch(
    broker: str,
    user: str | None,
    seconds: float | None,
    packs: int | None,
    trust: Trust | None,
) -> None:
    """Show what boards publish to BROKER, as it arrives.

    BROKER is a host or host:port.
    """
    from . import broker as brokers
    from . import watch as command
    from .desk_client import DeskError
    from .trust import TrustError

    def watched() -> int:
        target = brokers.external(broker, trust is not None)
        return command.main(target.host, target.port, user, seconds, packs, trust)

    end(watched, brokers.BrokerError, DeskError, TrustError)


@main.command()
@click.argument("broker")
@click.argument("board", required=False, callback=common_options.board_name)
@click.option("--trace", is_flag=True, help="Show whole tracebacks, also without BOARD.")
@click.option("--clear", is_flag=True, help="Remove the crash of BOARD from the broker.")
@common_options.USER
@common_options.tls
def crashes(
    broker: str, board: str | None, trace: bool, clear: bool, user: str | None, trust: Trust | None
) -> None:
    """Show the crashes that boards published to BROKER.

    BROKER is a host or host:port. The broker has the last crash of each board. With BOARD, show
    its traceback.
    """
    from . import broker as brokers
    from . import crashes as command
    from .desk_client import DeskError
    from .trust import TrustError

    if clear and not board:
        raise click.UsageError("--clear needs BOARD")

    def shown() -> int:
        target = brokers.external(broker, trust is not None)
        return command.main(target.host, target.port, user, board, trace, clear, trust)

    end(shown, brokers.BrokerError, DeskError, TrustError)


_share = click.FloatRange(0, 1)
_often = click.FloatRange(0)


@main.command()
@click.argument("broker")
@common_options.devices(1000)
@click.option(
    "--rate",
    type=click.FloatRange(0, 1000, min_open=True),
    default=1.0,
    show_default=True,
    help="Readings per board per second.",
)
@common_options.seconds(click.FloatRange(0, 604_800, min_open=True), 30.0)
@common_options.seed()
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="File to record what each board really did, one line of JSON per boot.",
)
@click.option("--prefix", default="sim", show_default=True, help="Prefix of the boards' names.")
@common_options.USER
@common_options.tls
@click.option("--calm", is_flag=True, help="Make 0 the default of each of the options below.")
@click.option(
    "--lost", type=_share, help="Share of readings that are never published.  [default: 0.005]"
)
@click.option(
    "--duplicated", type=_share, help="Share of readings published twice.  [default: 0.005]"
)
@click.option(
    "--reordered",
    type=_share,
    help="Share of readings published after the next one.  [default: 0.002]",
)
@click.option("--drop-outs", type=_often, help="Disconnects per board per minute.  [default: 0.2]")
@click.option("--reboots", type=_often, help="Reboots per board per minute.  [default: 0.1]")
@click.option(
    "--silent", type=_share, help="Share of boards that stop during the run.  [default: 0.02]"
)
@click.option(
    "--clocks", type=_share, help="Share of boards whose clock is wrong.  [default: 0.02]"
)
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
    """Simulate a fleet of failing boards that publish to BROKER.

    BROKER is a host or host:port. Each board is a client of its own, with a will, a status and
    packs like those of the sketches.
    """
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
@click.option(
    "--baud",
    type=click.IntRange(300),
    default=115200,
    show_default=True,
    help="Speed of the serial line, in baud.",
)
@common_options.tls
def bridge(port: str, broker: str, baud: int, trust: Trust | None) -> None:
    """Connect a board to a broker over its serial PORT.

    The board needs no network, and logs in by itself, with the user and password of its
    settings. PORT is a device, such as /dev/ttyACM0 or COM3, or a pyserial URL. Shows what the
    board prints, and runs until Ctrl-C.
    """
    from . import bridge as command

    end(lambda: command.main(port, broker, baud=baud, trust=trust), *command.ERRORS)


@main.command()
@click.argument("broker", metavar="HOST[:PORT]")
@common_options.CA
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the authority's certificate that a board needs: DER if its name ends in .der, "
    "otherwise PEM.",
)
def tls(broker: str, ca: Path | None, save: Path | None) -> None:
    """Show a broker's certificates, and how a board trusts them.

    Prints the settings for the board. The default port is 8883. Exits with status 1 if boards
    would refuse the broker.
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


@main.command("time")
@click.argument("broker")
@common_options.seconds(click.FloatRange(0))
@common_options.USER
@common_options.tls
def time_(broker: str, seconds: float | None, user: str | None, trust: Trust | None) -> None:
    """Answer boards at BROKER that ask for the time.

    BROKER is a host or host:port. The boards have the part `time`. Runs until Ctrl-C.
    """
    from . import broker as brokers
    from . import timing as command
    from .desk_client import DeskError
    from .trust import TrustError

    def answered() -> int:
        target = brokers.external(broker, trust is not None)
        return command.main(target.host, target.port, user, seconds, trust)

    end(answered, brokers.BrokerError, DeskError, TrustError)


@main.command("boards")
def boards_() -> None:
    """List the connected boards and the supported ones."""
    from . import boards, connected

    end(connected.main, boards.BoardError)


_port = click.option(
    "--port",
    metavar="ADDRESS",
    help="Address of the board: /dev/ttyACM0, socket://HOST:PORT or rfc2217://HOST:PORT.  "
    "[default: the only board that is connected]",
)


@main.command()
@click.argument("board")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_port
@click.option(
    "--drive",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder where the boot drive is mounted (RP2040, RP2350).  [default: search for it]",
)
def flash(board: str, file: Path, port: str | None, drive: Path | None) -> None:
    """Write FILE to the flash of BOARD.

    FILE is a MicroPython firmware, or an image made by `flatmq image`.
    """
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
@common_options.SKETCH
@common_options.SETTINGS
def deploy(board: str, port: str | None, sketch: str | None, overrides: tuple[str, ...]) -> None:
    """Copy a sketch and the client to BOARD, and start the sketch.

    BOARD must run MicroPython already.
    """
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
@click.argument("board", required=False, callback=common_options.board_name)
@_port
@click.option(
    "--broker",
    metavar="HOST[:PORT]",
    help="Broker that the board reaches.  [default: read the serial line]",
)
@common_options.seconds(click.FloatRange(0))
@common_options.USER
@common_options.tls
def logs(
    board: str | None,
    port: str | None,
    broker: str | None,
    seconds: float | None,
    user: str | None,
    trust: Trust | None,
) -> None:
    """Show what a board prints, across resets, until Ctrl-C.

    The board is connected to this machine, or it is BOARD, which reaches the same broker and has
    the part `logs`.
    """
    from . import boards, connected
    from . import logs as command
    from .desk_client import DeskError
    from .trust import TrustError

    if (board is None) != (broker is None) or (broker and port):
        raise click.UsageError("give BOARD and --broker, or --port, or none of them")

    def shown() -> int:
        from . import broker as brokers
        from . import remote_logs

        if broker is None or board is None:
            return command.main(port)
        target = brokers.external(broker, trust is not None)
        return remote_logs.main(target.host, target.port, user, board, seconds, trust)

    end(
        shown,
        boards.BoardError,
        connected.ConnectedError,
        command.LogsError,
        TrustError,
        DeskError,
    )


@main.command()
@click.argument("board")
@click.option(
    "--firmware",
    type=common_options.FILE,
    help="Official MicroPython firmware for the board.  [default: build only the filesystem]",
)
@common_options.SKETCH
@common_options.SETTINGS
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Image file to write.  [default: build/BOARD.uf2 or build/BOARD.bin]",
)
@click.option(
    "--filesystem-only",
    is_flag=True,
    help="Leave the firmware out of the image; --firmware is only checked.",
)
@click.option("--romfs", is_flag=True, help="Put the modules into a ROMFS image.")
@click.option(
    "--flash-size",
    metavar="SIZE",
    help="Flash size of an ESP32, such as 16MB.  [default: as in the board's file]",
)
@common_options.slots
def image(
    board: str,
    firmware: Path | None,
    sketch: str | None,
    overrides: tuple[str, ...],
    out: Path | None,
    filesystem_only: bool,
    romfs: bool,
    flash_size: str | None,
    slots: Slots | None,
) -> None:
    """Build an image for BOARD.

    The image has MicroPython, the client and a sketch. BOARD is the name of a file in
    firmware/ without .toml, such as pico_w or esp32_s3.
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
            slots=slots,
        ),
        CompileError,
        *command.ERRORS,
    )


@main.command()
@click.argument("board")
@click.argument("sketch", required=False)
@click.option(
    "--firmware", type=common_options.FILE, help="Official MicroPython firmware for the board."
)
@common_options.SETTINGS
@click.option(
    "--broker",
    metavar="HOST[:PORT]",
    help="Broker that the board reaches.  [default: one that is started on loopback]",
)
@click.option(
    "--qemu",
    metavar="PROGRAM",
    help="QEMU that emulates an ESP32.  [default: qemu-system-xtensa or -riscv32 on the PATH]",
)
@click.option(
    "--until",
    metavar="TOPIC[=PAYLOAD]",
    help="Stop at this message, with status 0; with status 1 if --for ends first. TOPIC may have "
    "wildcards.",
)
@click.option(
    "--for",
    "limit",
    type=Duration(),
    help="Stop after this time of the board's clock, such as 30s.  [default: run until Ctrl-C; "
    "60s with --until, 180s for an ESP32]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="TCP port on loopback for the board's serial line.  [default: a free one]",
)
@click.option(
    "--reset-at",
    "resets",
    multiple=True,
    type=Duration(),
    help="Press the reset button after this time; repeatable.",
)
@click.option(
    "--wifi-loss",
    "losses",
    multiple=True,
    type=Span(),
    help="Take the access point away, as in 20s:5s: after 20 s, for 5 s; repeatable.",
)
@click.option(
    "--power-cut",
    "cuts",
    multiple=True,
    type=Duration(),
    help="Cut the power in the middle of the first write to the flash after this time; "
    "repeatable.",
)
@common_options.slots
@common_options.USER
@common_options.tls
def emulate(
    board: str,
    sketch: str | None,
    firmware: Path | None,
    overrides: tuple[str, ...],
    broker: str | None,
    qemu: str | None,
    until: str | None,
    limit: float | None,
    port: int,
    resets: tuple[float, ...],
    losses: tuple[tuple[float, float], ...],
    cuts: tuple[float, ...],
    slots: Slots | None,
    user: str | None,
    trust: Trust | None,
) -> None:
    """Run a sketch on an emulated BOARD.

    BOARD is pico_w, pico, esp32 or esp32_c3. SKETCH is a folder with a main.py, or the name of
    one in boards/; by default the one in the board's file. The board reaches one broker and
    nothing else, whatever the address in its settings. Exits with status 1 if the program ends
    with an exception. --user and the options of TLS are for the connection to --broker that
    waits for the message; the board has its own settings.
    """
    from . import emulate as command
    from .bytecode import CompileError
    from .trust import TrustError

    end(
        lambda: command.main(
            board,
            firmware,
            sketch,
            overrides,
            qemu=qemu,
            port=port,
            resets=resets,
            losses=losses,
            cuts=cuts,
            address=broker,
            until=until,
            limit=limit,
            slots=slots and dataclasses.replace(slots, counter=0),  # takes every package
            user=user,
            trust=trust,
        ),
        CompileError,
        TrustError,
        *command.ERRORS,
    )


main.add_command(ota)
main.add_command(pipeline)


if __name__ == "__main__":
    main()
