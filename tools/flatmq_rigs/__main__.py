"""`python -m flatmq_rigs COMMAND`: the measurements and proofs of the project itself.

They run in a checkout. Each command is a module of its own, loaded when it runs; this is their
front. Some have their modules in host_tests, which parse their own options.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from flatmq_tools.ending import end

from . import rig_options
from .links import LINKS

_ROOT = Path(__file__).parents[2]
_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
# Commands whose modules are in host_tests: the module with arguments before those given, the help.
_IN_TESTS = {
    "faults": ("faults", "Run every scenario of a fault."),
    "fuzz": ("hostile.guided", "Feed hostile bytes, guided by coverage."),
    "fuzz-packs": (
        "pipeline.fuzz_packs --documents 1000000 --spark 50000",
        "Send hostile messages through the pipeline's jobs.",
    ),
    "broken-streams": (
        "tls.broken_streams --streams 4000 --clients 3", "Break the TLS streams of clients.",
    ),
    "look": ("pipeline.look", "Show the report in a browser, as on a phone."),
    "home-assistant": ("ha.real", "Show boards in Home Assistant itself."),
    "emulated": ("emulate.real", "Run sketches on an emulated board."),
    "emulated-hour": ("emulate.hour", "Run the station sketch on an emulated Pico W for an hour."),
    "emulated-updates": (
        "emulate.updates", "Update an emulated Pico W over MQTT, with power cuts.",
    ),
    "emulated-firmware": (
        "emulate.firmware", "Update the firmware of an emulated ESP32 over MQTT.",
    ),
    "tls-full-heap": (
        "emulate.tls_in_full_heap", "Cut the TLS of an emulated Pico W whose heap is full.",
    ),
    "board": ("hil", "Test flatmq on the board at BOARD_PORT."),
    "board-bench": ("hil.bench", "Measure flatmq on the board at BOARD_PORT."),
}  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure and prove flatmq itself, from a checkout of the repository."""


@main.command()
@rig_options.rounds(5)
@click.option("--only", multiple=True, metavar="CLIENT", help="Measure this client; repeatable.")
@rig_options.results(Path("docs/results.md"))
def bench(**options: Any) -> None:
    """Measure flatmq beside other clients, in one run."""
    from . import bench as command

    end(lambda: command.main(**options), command.BenchError)


@main.command()
@rig_options.number(
    "--messages",
    None,
    1_000,
    "Number of messages to send.  [default: 1,000,000 over tcp, otherwise 200,000]",
    1_000_000_000,
)
@rig_options.SEED
@rig_options.number(
    "--kilobytes",
    1_000,
    1,
    "Mean traffic in one direction between two faults, in kB; a fault follows after 5 s "
    "in any case.",
    1_000_000,
)
@rig_options.link(*LINKS)
@rig_options.results()
def soak(link: str, messages: int | None, results: Path | None, seed: int | None) -> None:
    """Count numbered messages over a failing link.

    --messages are sent in each direction, a third of them at each QoS, to a mosquitto on
    loopback.
    """
    from flatmq_tools.bytecode import CompileError

    from . import soak as command
    from .links import LinkError

    count = messages or (1_000_000 if link == "tcp" else 200_000)
    end(
        lambda: command.main(count, link=link, document=results, seed=seed),
        command.SoakError,
        command.PeerError,
        LinkError,
        CompileError,
    )


@main.command()
@rig_options.results()
def powercut(results: Path | None) -> None:
    """Cut the power of a spool at every write to its flash.

    Measures the wear of the flash too.
    """
    from . import powercut as command

    end(lambda: command.main(results), command.PowerCutError)


@main.command()
@rig_options.results()
def size(results: Path | None) -> None:
    """Measure the memory of a client, and its start."""
    from flatmq_tools.bytecode import CompileError

    from . import size as command

    end(lambda: command.main(results), CompileError, command.SizeError)


@main.command("pipeline-bench")
@rig_options.messages(500_000, 1_000, 10_000_000)
@rig_options.rounds(3)
@click.option(
    "--only",
    multiple=True,
    metavar="PART",
    help="A row of the tables: flatmq, flatmq-5, paho, memory, memory-5, landing; source, "
    "source-paho, files, jobs, log. Repeatable.",
)
@rig_options.STRICT
@rig_options.results()
def pipeline_bench(
    messages: int, rounds: int, only: tuple[str, ...], strict: bool, results: Path | None
) -> None:
    """Measure the pipeline and its parts.

    The same run measures paho-mqtt, and the most that this machine can do.
    """
    _need_the_pipeline()
    from flatmq_tools.broker import BrokerError
    from flatmq_tools.pipeline.java import JavaError

    from .pipeline.bench import command
    from .pipeline.bench.figures import BenchError

    _need_known(only, command.PARTS)
    end(
        lambda: command.main(messages, rounds, only, strict, results),
        BrokerError,
        BenchError,
        JavaError,
    )


@main.command()
@rig_options.messages(50_000, 100)
@rig_options.number("--kills", 8, 1, "Kills of each part.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["driver", "jvm", "broker", "ingest", "compaction", "store"]),
    help="Part to kill; repeatable.  [default: all, each in a run of its own]",
)
@rig_options.SEED
@rig_options.results()
def crash(
    messages: int, kills: int, parts: tuple[str, ...], seed: int | None, results: Path | None
) -> None:
    """Kill parts of the pipeline at work.

    Counts what is missing from the tables, or in them twice.
    """
    _need_the_pipeline()
    from flatmq_tools.pipeline.java import JavaError

    from .pipeline import crash as command

    end(
        lambda: command.main(messages, kills, parts or command.PARTS, results, seed),
        command.CrashError,
        JavaError,
    )


@main.command()
@rig_options.number("--rate", 20_000, 1, "Messages a second of the steady load.", 1_000_000)
@rig_options.number("--steady", 180.0, 1, "Duration of the steady load, in seconds.", 86_400)
@rig_options.results()
def live(rate: int, steady: float, results: Path | None) -> None:
    """Load the pipeline like a busy fleet.

    Measures how far it falls behind: with 100,000 topics, 50,000 retained messages and one
    message of 10 MB.
    """
    _need_the_pipeline()
    from .pipeline import live as command

    end(
        lambda: command.main(rate, steady, 100_000, 50_000, 10_000_000, results), command.LiveError
    )


@main.command()
@click.argument("tables", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--document",
    type=_FILE,
    help="Document whose section of these figures is replaced, such as docs/scale.md.",
)
def scale(tables: Path, document: Path | None) -> None:
    """Measure, and calculate what fleets of other sizes need.

    TABLES is the folder that `flatmq pipeline demo` has written.
    """
    _need_the_pipeline()
    from flatmq_tools.fleet import ERRORS

    from .pipeline import scale as command

    end(lambda: command.main(tables, document), command.ScaleError, *ERRORS)


@main.command()
@click.argument("out", type=_FOLDER)
@click.option(
    "--days",
    type=click.IntRange(1, 4000),
    multiple=True,
    default=(1, 30, 365),
    show_default=True,
    help="Days of the past to measure after; repeatable.",
)
@click.option("--leave", is_flag=True, help="Leave the past in OUT for the next run.")
@rig_options.results()
def history(out: Path, days: tuple[int, ...], leave: bool, results: Path | None) -> None:
    """Measure the pipeline with a year of messages behind it.

    Measures a refresh, a report and a restart, after 1, 30 and 365 days. OUT is a folder for the
    past of 500 boards with a message a minute. A year takes 5 GB there and an hour to write; a
    run that was interrupted goes on with what it has.
    """
    _need_the_pipeline()
    from flatmq_tools.pipeline.java import JavaError

    from .pipeline.bench import history as command

    end(lambda: command.main(out, days, results, leave), command.HistoryError, JavaError)


@main.command()
@click.argument("folder", type=_FOLDER)
def release(folder: Path) -> None:
    """Build the files of a release into FOLDER.

    They are the wheel, the sdist, the packages for mip and the notes. What is in FOLDER is
    removed first. The same commit gives the same bytes.
    """
    from flatmq_tools.bytecode import CompileError

    from . import release as command

    end(lambda: command.main(folder), command.ReleaseError, CompileError)


def _need_known(only: Sequence[str], known: Collection[str]) -> None:
    unknown = set(only) - set(known)
    if unknown:
        text = f"must be one of {', '.join(known)}, not {', '.join(sorted(unknown))}"
        raise click.BadParameter(text, param_hint="--only")


def _need_the_pipeline() -> None:
    if sys.version_info < (3, 11) or importlib.util.find_spec("pyarrow") is None:
        raise click.ClickException(
            "the pipeline needs Python 3.11 or later, and: pip install 'flatmq[pipeline]'"
        )


@main.command()
def owners() -> None:
    """Check which modules write which part of a client's state."""
    from . import owners as command

    found = command.wrong()
    for text in found:
        click.echo(text, err=True)
    sys.exit(bool(found))


@main.command("type-check")
@click.argument("stubs", type=click.Path(exists=True, file_okay=False, path_type=Path))
def type_check(stubs: Path) -> None:
    """Check the types of all code.

    The client and the sketches are also checked against the stubs of each port of MicroPython.
    STUBS is a folder with a folder for each stub package.
    """
    from . import type_check as command

    sys.exit(command.main(stubs.resolve()))


@main.command()
@click.argument("board")
@click.argument("folder", type=_FOLDER)
def steps(board: str, folder: Path) -> None:
    """Make a sketch that prints when each step was reached.

    FOLDER becomes the sketch of BOARD, for `flatmq deploy` and `flatmq image`, with what prints
    the milliseconds from the reset to main.py, Wi-Fi, the broker and the first PUBACK.
    """
    from flatmq_tools.boards import BoardError
    from flatmq_tools.contents import ContentsError

    from . import steps as command

    end(lambda: command.make(board, folder), BoardError, ContentsError)


@main.command()
def packages() -> None:
    """Write what `mip install` reads into the checkout."""
    from . import packages as command

    command.write()


@main.command()
@click.argument("folder", type=_FOLDER)
def headlines(folder: Path) -> None:
    """Draw the headlines of the results in FOLDER."""
    from . import headlines as command

    command.main(folder)


@main.command()
@click.argument("file", type=_FILE)
def recording(file: Path) -> None:
    """Record the terminal that the README shows.

    FILE is the SVG to write.
    """
    from . import recording as command

    file.write_text(command.recorded() + "\n", encoding="utf-8")


@main.command()
@click.option("--only", multiple=True, metavar="PROOF", help="Run this proof; repeatable.")
@rig_options.results()
def proofs(only: tuple[str, ...], results: Path | None) -> None:
    """Run everything in its long form, one after another.

    A proof that fails does not stop the others. What each prints is in build/proofs. The proofs
    on emulated boards need firmware files, which FLATMQ_FIRMWARE names, separated as in PATH.
    """
    from . import proofs as command

    _need_known(only, command.PROOFS)
    sys.exit(command.main(only or tuple(command.PROOFS), results))


def _run_in_tests(module: str, arguments: Sequence[str]) -> NoReturn:
    """Become a module of host_tests."""
    path = os.pathsep.join(str(_ROOT / name) for name in ("lib", "tools", "host_tests"))
    command = [sys.executable, "-m", module, *arguments]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})


@main.command("fuzz-long", context_settings={**_PASSED_ON, "help_option_names": ["-h", "--help"]})
@rig_options.link("tcp", "websocket", "tls")
@click.option(
    "--version",
    type=click.Choice(["4", "5"]),
    default="4",
    show_default=True,
    help="Version of MQTT; 4 is 3.1.1.",
)
@rig_options.number(
    "--packets",
    None,
    1,
    "Number of packets to change.  "
    "[default: 10,000,000; 1,000,000 at MQTT 5, 200,000 over websocket, 20,000 over tls]",
)
@click.pass_context
def fuzz_long(context: click.Context, link: str, version: str, packets: int | None) -> None:
    """Feed hostile packets by chance, judged by an oracle.

    Other options are passed on: --minutes, --seed, --processes, --device and --results.
    MicroPython runs one packet in 20 of them, over TLS one in 40.
    """
    few = {"websocket": 200_000, "tls": 20_000}
    count = packets or few.get(link) or (1_000_000 if version == "5" else 10_000_000)
    device = count // (40 if link == "tls" else 20)
    sizes = ["--packets", str(count), "--device", str(device)]
    chosen = ["--link", link, "--version", version, *sizes]
    _run_in_tests("hostile.chance", [*chosen, *context.args])


def _add(name: str, module: str, text: str) -> None:
    def command(context: click.Context) -> None:
        found, *default = module.split()
        _run_in_tests(found, [*default, *context.args])

    made = main.command(name, context_settings=_PASSED_ON, help=text)
    made(click.pass_context(command))


for _name, _entry in _IN_TESTS.items():
    _add(_name, *_entry)

if __name__ == "__main__":
    main(prog_name="python -m flatmq_rigs")
