"""The command line of `flatmq`. Each subcommand has a module of its own."""

import dataclasses
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

import flatmq

from . import common_options as common
from . import extras
from .durations import DURATION, SPAN, duration
from .ota.cli import ota
from .pipeline.cli import pipeline
from .typed import Reading, command

if TYPE_CHECKING:
    from .fleet.plan import Troubles

_EXTRAS = {
    "demo": "demo",
    "emulate": "emulate",
    "deploy": "boards",
    "flash": "boards",
    "image": "image",
    "ota": "image",
    "tls": "image",
}


@click.group(
    cls=extras.Group, extras=_EXTRAS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(flatmq.__version__, prog_name="flatmq")
def main() -> None:
    """Host tools for flatmq, an MQTT client for MicroPython."""


@command(main)
def demo(
    *,
    readings: Annotated[
        int | None,
        click.IntRange(3, 10_000),
        "Number of readings to publish, instead of the sketch's.",
    ] = None,
) -> int:
    """Publish from MicroPython on this machine, without a board.

    Runs the sketch boards/host/main.py, receives on the host, and shows the heap. Starts a
    broker on loopback. To use a running one, set the environment variable BROKER=host:port;
    then the device has a random name, and only what lies under it is received.
    """
    from . import demo as demos

    return demos.main(readings)


@command(main)
def watch(
    desk: common.Reached,
    *,
    seconds: common.Until = None,
    packs: Annotated[
        int | None,
        click.IntRange(1),
        "Stop after this many packs; if --seconds ends first, exit with status 1.",
    ] = None,
) -> int:
    """Show what boards publish to a broker, as it arrives."""
    from . import watch as watching

    return watching.main(desk, seconds, packs)


@command(main)
def crashes(
    desk: common.Reached,
    board: common.Board = None,
    *,
    clear: Annotated[bool, "Remove the crash of BOARD from the broker."] = False,
) -> int:
    """Show the crashes that boards published to a broker.

    The broker has the last crash of each board. With BOARD, show its traceback.
    """
    from . import crashes as reports

    if clear and not board:
        raise click.UsageError("--clear needs BOARD")
    return reports.main(desk, board, clear)


class _Range(click.FloatRange):
    """A range without nan, which click takes for a number in each range."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return float(number)


def _prefix(text: str) -> str:
    """Check the beginning of names of boards."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9:._-]{,63}", text):
        raise ValueError(f"must be 1 to 64 letters, digits, or - : . _, not {text[:80]!r}")
    return text


_Share = Annotated[float | None, _Range(0, 1)]
_Often = Annotated[float | None, _Range(0, 6000)]


def _troubles(
    *,
    calm: Annotated[bool, "Make 0 the default of each of the options below."] = False,
    lost: Annotated[
        _Share, "Share of readings that are never published.  [default: 0.005]"
    ] = None,
    duplicated: Annotated[_Share, "Share of readings published twice.  [default: 0.005]"] = None,
    reordered: Annotated[
        _Share, "Share of readings published after the next one.  [default: 0.002]"
    ] = None,
    drop_outs: Annotated[_Often, "Disconnects per board per minute.  [default: 0.2]"] = None,
    reboots: Annotated[_Often, "Reboots per board per minute.  [default: 0.1]"] = None,
    silent: Annotated[_Share, "Share of boards that stop during the run.  [default: 0.02]"] = None,
    clocks: Annotated[_Share, "Share of boards whose clock is wrong.  [default: 0.02]"] = None,
) -> "Troubles":
    from .fleet import plan

    given = {
        "lost": lost, "duplicated": duplicated, "reordered": reordered, "drop_outs": drop_outs,
        "reboots": reboots, "silent": silent, "clocks": clocks,
    }  # fmt: skip
    asked = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(plan.CALM if calm else plan.Troubles(), **asked)


@command(main)
def fleet(
    desk: common.Reached,
    *,
    devices: common.Devices = 1000,
    rate: Annotated[float, _Range(0, 1000, min_open=True), "Readings per board per second."] = 1.0,
    seconds: Annotated[common.Seconds, duration(0.001, 604_800)] = 30.0,
    seed: common.NewSeed = None,
    truth: Annotated[
        Path | None,
        common.OUTPUT,
        "File to record what each board really did, one line of JSON per boot.",
    ] = None,
    prefix: Annotated[str, Reading("text", _prefix), "Prefix of the boards' names."] = "sim",
    troubles: Annotated["Troubles", _troubles],
) -> int:
    """Simulate a fleet of failing boards that publish to a broker.

    Each board is a client of its own, with a will, a status and packs like those of the sketches.
    """
    import secrets

    from . import fleet as fleets

    desk.client("fleet")  # refuses a user that cannot be
    if seed is None:
        seed = secrets.randbelow(1_000_000)
    settings = fleets.Settings(devices, rate, seconds, seed, prefix, troubles, desk.user)
    settings.trust = desk.trust
    return fleets.main(desk.broker.host, desk.broker.port, settings, truth)


@command(main)
def bridge(
    port: str,
    broker: Annotated[str, {"metavar": "HOST:PORT"}],
    *,
    baud: Annotated[int, click.IntRange(300), "Speed of the serial line, in baud."] = 115200,
    trust: common.Tls,
) -> int:
    """Connect a board to a broker over its serial PORT.

    The board needs no network, and logs in by itself, with the user and password of its
    settings. PORT is a device, such as /dev/ttyACM0 or COM3, or a pyserial URL. Shows what the
    board prints, and runs until Ctrl-C.
    """
    from . import bridge as bridges

    return bridges.main(port, broker, baud=baud, trust=trust)


@command(main)
def tls(
    broker: common.Broker,
    *,
    ca: common.Ca = None,
    save: Annotated[
        Path | None,
        common.OUTPUT,
        "File for the authority's certificate that a board needs: DER if its name ends in .der, "
        "otherwise PEM.",
    ] = None,
) -> int:
    """Show a broker's certificates, and how a board trusts them.

    Prints the settings for the board. The default port is 8883. Exits with status 1 if boards
    would refuse the broker.
    """
    from . import probe

    return probe.main(broker, ca=ca, save=save)


@command(main, "time")
def time_(desk: common.Reached, *, seconds: common.Until = None) -> int:
    """Answer boards at a broker that ask for the time.

    The boards have the part `time`. Runs until Ctrl-C.
    """
    from . import timing

    return timing.main(desk, seconds)


@command(main, "boards")
def boards_() -> int:
    """List the connected boards and the supported ones."""
    from . import connected

    return connected.main()


_Port = Annotated[
    str | None,
    {"metavar": "ADDRESS"},
    "Address of the board: /dev/ttyACM0, socket://HOST:PORT or rfc2217://HOST:PORT.  "
    "[default: the only board that is connected]",
]


@command(main)
def flash(
    board: str,
    file: Annotated[Path, common.FILE],
    *,
    port: _Port = None,
    drive: Annotated[
        Path | None,
        common.THERE,
        "Folder where the boot drive is mounted (RP2040, RP2350).  [default: search for it]",
    ] = None,
) -> int:
    """Write FILE to the flash of BOARD.

    FILE is a MicroPython firmware, or an image made by `flatmq image`.
    """
    from . import flash as flashing

    return flashing.main(board, file, port, drive)


@command(main)
def deploy(
    board: str,
    *,
    port: _Port = None,
    sketch: common.Sketch = None,
    overrides: common.Overrides = (),
) -> int:
    """Copy a sketch and the client to BOARD, and start the sketch.

    BOARD must run MicroPython already.
    """
    from . import deploy as deploying

    return deploying.main(board, port, sketch, overrides)


@command(main)
def logs(
    board: common.Board = None,
    *,
    port: _Port = None,
    broker: Annotated[
        str | None,
        {"metavar": "HOST[:PORT]"},
        "Broker that the board reaches.  [default: read the serial line]",
    ] = None,
    seconds: common.Until = None,
    user: common.User = None,
    trust: common.Tls,
) -> int:
    """Show what a board prints, across resets, until Ctrl-C.

    The board is connected to this machine, or it is BOARD, which reaches the same broker and has
    the part `logs`.
    """
    from . import desk_client, remote_logs
    from . import logs as serial_logs

    if (board is None) != (broker is None) or (broker and port):
        raise click.UsageError("give BOARD and --broker, or --port, or none of them")
    common.check_reached(broker, user, trust)
    if broker is None or board is None:
        return serial_logs.main(port, seconds=seconds)
    return remote_logs.main(desk_client.reached(broker, user, trust), board, seconds)


@command(main)
def image(
    board: str,
    *,
    firmware: Annotated[
        Path | None,
        common.FILE,
        "Official MicroPython firmware for the board.  [default: build only the filesystem]",
    ] = None,
    sketch: common.Sketch = None,
    overrides: common.Overrides = (),
    out: Annotated[
        Path | None,
        common.OUTPUT,
        "Image file to write.  [default: build/BOARD.uf2 or build/BOARD.bin]",
    ] = None,
    romfs: Annotated[bool, "Put the modules into a ROMFS image."] = False,
    flash_size: Annotated[
        str | None,
        {"metavar": "SIZE"},
        "Flash size of an ESP32, such as 16MB.  [default: as in the board's file]",
    ] = None,
    slots: common.OtaSlots,
) -> int:
    """Build an image for BOARD.

    The image has MicroPython, the client and a sketch. BOARD is the name of a file in
    firmware/ without .toml, such as pico_w or esp32_s3.
    """
    from . import image as images

    return images.main(
        board,
        firmware_file=firmware,
        sketch=sketch,
        overrides=overrides,
        out=out,
        with_romfs=romfs,
        flash_size=flash_size,
        slots=slots,
    )


@command(main)
def emulate(
    board: str,
    sketch: str | None = None,
    *,
    firmware: Annotated[
        Path | None, common.FILE, "Official MicroPython firmware for the board."
    ] = None,
    overrides: common.Overrides = (),
    broker: Annotated[
        str | None,
        {"metavar": "HOST[:PORT]"},
        "Broker that the board reaches.  [default: one that is started on loopback]",
    ] = None,
    qemu: Annotated[
        str | None,
        {"metavar": "PROGRAM"},
        "QEMU that emulates an ESP32.  [default: qemu-system-xtensa or -riscv32 on the PATH]",
    ] = None,
    until: Annotated[
        str | None,
        {"metavar": "TOPIC[=PAYLOAD]"},
        "Stop at this message, with status 0; with status 1 if --for ends first. TOPIC may have "
        "wildcards.",
    ] = None,
    limit: Annotated[
        float | None,
        "--for",
        DURATION,
        "Stop after this time of the board's clock, such as 30s.  [default: run until Ctrl-C; "
        "60s with --until, 180s for an ESP32]",
    ] = None,
    port: Annotated[
        int,
        click.IntRange(0, 65535),
        {"show_default": False},
        "TCP port on loopback for the board's serial line.  [default: a free one]",
    ] = 0,
    reset_at: Annotated[
        tuple[float, ...], DURATION, "Press the reset button after this time; repeatable."
    ] = (),
    wifi_loss: Annotated[
        tuple[tuple[float, float], ...],
        SPAN,
        "Take the access point away, as in 20s:5s: after 20 s, for 5 s; repeatable.",
    ] = (),
    power_cut: Annotated[
        tuple[float, ...],
        DURATION,
        "Cut the power in the middle of the first write to the flash after this time; repeatable.",
    ] = (),
    slots: common.OtaSlots,
    user: common.User = None,
    trust: common.Tls,
) -> int:
    """Run a sketch on an emulated BOARD.

    BOARD is pico_w, pico, esp32 or esp32_c3. SKETCH is a folder with a main.py, or the name of
    one in boards/; by default the one in the board's file. The board reaches one broker and
    nothing else, whatever the address in its settings. Exits with status 1 if the program ends
    with an exception. --user and the options of TLS are for the connection to --broker that
    waits for the message; the board has its own settings.
    """
    from . import emulate as emulators

    common.check_reached(broker, user, trust)
    return emulators.main(
        board,
        firmware,
        sketch,
        overrides,
        qemu=qemu,
        port=port,
        resets=reset_at,
        losses=wifi_loss,
        cuts=power_cut,
        address=broker,
        until=until,
        limit=limit,
        slots=slots and dataclasses.replace(slots, counter=0),  # takes every package
        user=user,
        trust=trust,
    )


main.add_command(ota)
main.add_command(pipeline)


if __name__ == "__main__":
    main()
