"""`python -m hil`: every step with the board at $BOARD_PORT, and a table of its figures.

BOARD_PORT    any address that mpremote connects to; without it nothing is run
BOARD_WIFI    ssid:password of the Wi-Fi that the board is to join
BOARD_BROKER  host:port of a broker that the board can reach
DESK_BROKER   the same broker as this machine reaches it, where that is another address
EMULATE       a firmware for the Pico W, or for an ESP32, which needs a QEMU on the PATH: the board
              is emulated, and there is a broker; no other variable is needed
"""

import argparse
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from flatmq_rigs import results
from flatmq_rigs.emulated import board_of
from flatmq_tools import broker, emulate
from flatmq_tools.address import address
from flatmq_tools.emulate import archive, network, qemu_program
from flatmq_tools.emulate.order import Order
from flatmq_tools.errors import ToolError
from flatmq_tools.typed import is_ours

from .desk import DeskError
from .suite import HOME, MOUNTED, Suite, Where, compiled


class UsageError(ValueError):
    """A variable that cannot be understood."""


def _address(name: str, text: str) -> tuple[str, int]:
    """The address in numbers: a board that looks up a name may wait for long."""
    try:
        host, port = address(text)
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except (ToolError, OSError) as error:
        raise UsageError(f"{name}={text}: {error}") from error
    return str(found[0][4][0]), port


def where(environment: Mapping[str, str], *, is_ready: bool = False) -> Where:
    """Return what the variables say.

    Raises UsageError, which names one that is wrong, never a password.
    """
    wifi = environment.get("BOARD_WIFI")
    away = environment.get("BOARD_BROKER")
    joined = None
    if wifi:
        ssid, colon, password = wifi.partition(":")
        if not colon or not ssid:
            raise UsageError("BOARD_WIFI is ssid:password")
        joined = (ssid, password)
    there = _address("BOARD_BROKER", away) if away else None
    desk = environment.get("DESK_BROKER")
    return Where(
        environment["BOARD_PORT"],
        joined,
        there,
        _address("DESK_BROKER", desk) if desk and there else there,
        is_ready,
    )


@contextlib.contextmanager
def _surroundings(environment: Mapping[str, str]) -> Iterator[Where]:
    """Yield what the variables say; with EMULATE, an emulated board and its broker.

    An ESP32, which is slow with its flash, has all files in its image.
    """
    firmware = environment.get("EMULATE")
    if not firmware:
        yield where(environment)
        return
    if not Path(firmware).is_file():
        raise UsageError(f"EMULATE={firmware}: there is no such file")
    board = board_of(Path(firmware))
    program = qemu_program.find(board, None)
    is_slow = bool(program.path)
    with broker.mosquitto() as near, tempfile.TemporaryDirectory() as folder:
        if is_slow:
            files = compiled().items()
            parts = {f"{MOUNTED}{path.removeprefix(HOME)}": data for path, data in files}
            made = archive.make(board, parts, Path(firmware))
            firmware = str(Path(folder, "image.bin"))
            Path(firmware).write_bytes(made.image)
        order = Order(
            board=board.name,
            image=firmware,
            broker=(near.host, near.port),
            wifi=program.wifi,
            qemu=program.path,
            machine=program.machine,
        )
        machine = emulate.Machine(order, Path(folder))
        try:
            event = machine.events.get()
            if event is None:
                raise machine.died()
            port = f"socket://127.0.0.1:{event['serial']}"
            if not order.wifi:
                yield where({"BOARD_PORT": port}, is_ready=True)
                return
            password = "" if is_slow else "any"  # the access point of QEMU is an open one
            yield where(
                {
                    "BOARD_PORT": port,
                    "BOARD_WIFI": f"{network.SSIDS[board.port]}:{password}",
                    "BOARD_BROKER": network.GATEWAY,
                    "DESK_BROKER": near.address,
                },
                is_ready=is_slow,
            )
        finally:
            machine.stop()


def main(arguments: list[str] | None = None) -> int:
    """Run every step; return 1 if one failed, 2 if they could not be run."""
    parser = argparse.ArgumentParser(prog="hil", description=__doc__)
    parser.add_argument("--results", type=Path, help="Document whose section is rewritten.")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    if not (os.environ.get("BOARD_PORT") or os.environ.get("EMULATE")):
        console.print(
            "The tests with a board were NOT run: BOARD_PORT is not set. Name a board's port, for "
            "instance BOARD_PORT=/dev/ttyACM0 (`flatmq boards` lists them), or a firmware for the "
            "Pico W, to emulate one: EMULATE=RPI_PICO_W.uf2.",
            highlight=False,
        )
        return 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        with (
            _surroundings(os.environ) as surroundings,
            Progress(*columns, console=console, transient=True) as bar,
        ):
            task = bar.add_task("to the board", total=None, visible=False)

            def wrote(done: int, size: int) -> None:
                bar.update(task, completed=done, total=size, visible=done < size)

            def say(text: str) -> None:
                bar.console.print(text, markup=False, highlight=False)

            suite = Suite(surroundings, say, wrote)
            suite.run()
    except Exception as error:
        if not isinstance(error, (DeskError, UsageError)) and not is_ours(error):
            raise
        console.print(f"Error: {error}", markup=False, highlight=False)
        return 2
    table = Table(*suite.head)
    for row in suite.lines():
        table.add_row(*row)
    console.print(table)
    if options.results:
        text = f"{suite.section()}\n\n{results.table(suite.head, suite.lines())}\n"
        results.write(options.results, suite.name, text)
    return 0 if suite.ok else 1


if __name__ == "__main__":
    sys.exit(main())
