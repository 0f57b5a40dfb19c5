"""`python -m flatmq_rigs COMMAND`: the measurements and proofs of the project itself.

They run in a checkout. Each command is a module of its own, loaded when it runs; this is their
front. Some have their modules in host_tests, which parse their own options.
"""

import importlib.util
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import click

from flatmq_tools import common_options as common
from flatmq_tools.durations import duration
from flatmq_tools.typed import command

from .links import LINKS

_ROOT = Path(__file__).parents[2]
_Folder = Annotated[Path, common.FOLDER]
_Results = Annotated[
    Path | None, common.OUTPUT, "Markdown file in which to rewrite the section with these results."
]
_Messages = Annotated[int, "Number of messages to send."]
_Rounds = Annotated[
    int, click.IntRange(1, 100), "Number of times to measure everything; the tables show medians."
]
_Link = Annotated[str, "Transport that flatmq connects over."]
_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
# Commands whose modules are in host_tests: the module with arguments before those given, the help.
_IN_TESTS = {
    "faults": ("faults", "Run every scenario of a fault."),
    "fuzz-packs": (
        "pipeline.fuzz_packs --documents 1000000",
        "Send hostile messages through the pipeline's jobs.",
    ),
    "broken-streams": (
        "tls.broken_streams --streams 4000 --clients 3", "Break the TLS streams of clients.",
    ),
    "home-assistant": ("ha.real", "Show boards in Home Assistant itself."),
    "emulated": ("emulate.real", "Run sketches on an emulated board."),
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
}  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure and prove flatmq itself, from a checkout of the repository."""


@command(main)
def bench(
    *,
    rounds: _Rounds = 5,
    results: _Results = Path("docs/results.md"),
) -> int:
    """Measure flatmq beside other clients, in one run."""
    from . import bench as benches

    return benches.main(rounds=rounds, results=results)


@command(main)
def soak(
    *,
    messages: Annotated[
        int | None,
        click.IntRange(1_000, 1_000_000_000),
        "Number of messages to send.  [default: 1,000,000 over tcp, otherwise 200,000]",
    ] = None,
    seed: common.NewSeed = None,
    link: Annotated[_Link, click.Choice(LINKS)] = "tcp",
    results: _Results = None,
) -> int:
    """Count numbered messages over a failing link.

    --messages are sent in each direction, a third of them at each QoS, to a mosquitto on
    loopback.
    """
    from . import soak as soaks

    count = messages or (1_000_000 if link == "tcp" else 200_000)
    return soaks.main(count, link=link, document=results, seed=seed)


@command(main)
def powercut(
    *,
    results: _Results = None,
) -> int:
    """Cut the power of a spool at every write to its flash.

    Measures the wear of the flash too.
    """
    from . import powercut as cuts

    return cuts.main(results)


@command(main)
def size(*, results: _Results = None) -> int:
    """Measure the memory of a client, and its start."""
    from . import size as sizes

    return sizes.main(results)


@command(main, "pipeline-bench")
def pipeline_bench(
    *,
    messages: Annotated[_Messages, click.IntRange(1_000, 10_000_000)] = 500_000,
    rounds: _Rounds = 3,
    only: Annotated[
        tuple[str, ...],
        {"metavar": "PART"},
        "Row of the table: source, source-paho, ingest, jobs, log, memory, memory-5; repeatable.",
    ] = (),
    results: _Results = None,
) -> int:
    """Measure the pipeline and its parts.

    The same run measures paho-mqtt, and the most that this machine can do.
    """
    _need_the_pipeline()

    from .pipeline.bench import chains
    from .pipeline.bench import command as benches

    _need_known(only, chains.CHAINS)
    return benches.main(messages, rounds, only, results)


@command(main)
def crash(
    *,
    messages: Annotated[_Messages, click.IntRange(100)] = 50_000,
    kills: Annotated[int, click.IntRange(1), "Kills of each part."] = 8,
    part: Annotated[
        tuple[Literal["driver", "jvm", "broker", "ingest", "compaction", "store"], ...],
        "Part to kill; repeatable.  [default: all, each in a run of its own]",
    ] = (),
    seed: common.NewSeed = None,
    results: _Results = None,
) -> int:
    """Kill parts of the pipeline at work.

    Counts what is missing from the tables, or in them twice.
    """
    _need_the_pipeline()

    from .pipeline import crash as crashes

    return crashes.main(messages, kills, part or crashes.PARTS, results, seed)


@command(main)
def live(
    *,
    rate: Annotated[
        int, click.IntRange(1, 1_000_000), "Messages a second of the steady load."
    ] = 20_000,
    steady: Annotated[float, duration(1, 86_400), "Duration of the steady load."] = 180.0,
    results: _Results = None,
) -> int:
    """Load the pipeline like a busy fleet.

    Measures how far it falls behind: with 100,000 topics, 50,000 retained messages and one
    message of 10 MB.
    """
    _need_the_pipeline()
    from .pipeline import live as loads

    return loads.main(rate, steady, 100_000, 50_000, 10_000_000, results)


@command(main)
def scale(
    tables: Annotated[Path, common.THERE],
    *,
    document: Annotated[
        Path | None,
        common.OUTPUT,
        "Document whose section of these figures is replaced, such as docs/scale.md.",
    ] = None,
) -> int:
    """Measure, and calculate what fleets of other sizes need.

    TABLES is the folder that `flatmq pipeline demo` has written.
    """
    _need_the_pipeline()

    from .pipeline import scale as scales

    return scales.main(tables, document)


@command(main)
def history(
    out: _Folder,
    *,
    days: Annotated[
        tuple[int, ...],
        click.IntRange(1, 4000),
        "Days of the past to measure after; repeatable.",
    ] = (1, 30, 365),
    leave: Annotated[bool, "Leave the past in OUT for the next run."] = False,
    results: _Results = None,
) -> int:
    """Measure the pipeline with a year of messages behind it.

    Measures a refresh, a report and a restart, after 1, 30 and 365 days. OUT is a folder for the
    past of 500 boards with a message a minute. A year takes 5 GB there and an hour to write; a
    run that was interrupted goes on with what it has.
    """
    _need_the_pipeline()

    from .pipeline.bench import history as histories

    return histories.main(out, days, results, leave)


@command(main)
def release(folder: _Folder) -> int:
    """Build the files of a release into FOLDER.

    They are the wheel, the sdist, the packages for mip and the notes. What is in FOLDER is
    removed first. The same commit gives the same bytes.
    """
    from . import release as releases

    return releases.main(folder)


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


@command(main)
def owners() -> int:
    """Check which modules write which part of a client's state."""
    from . import owners as rules

    found = rules.wrong()
    for text in found:
        click.echo(text, err=True)
    return int(bool(found))


@command(main, "type-check")
def type_check(stubs: Annotated[Path, common.THERE]) -> int:
    """Check the types of all code.

    The client and the sketches are also checked against the stubs of each port of MicroPython.
    STUBS is a folder with a folder for each stub package.
    """
    from . import type_check as checks

    return checks.main(stubs.resolve())


@command(main)
def steps(board: str, folder: _Folder) -> int:
    """Make a sketch that prints when each step was reached.

    FOLDER becomes the sketch of BOARD, for `flatmq deploy` and `flatmq image`, with what prints
    the milliseconds from the reset to main.py, Wi-Fi, the broker and the first PUBACK.
    """
    from . import steps as sketches

    return sketches.make(board, folder)


@command(main)
def packages(folder: Annotated[Path | None, common.FOLDER] = None) -> None:
    """Write what `mip install` reads.

    The compiled client goes into FOLDER. Without it, the lists of the sources in the checkout are
    written again.
    """
    from . import packages as mip

    if folder is None:
        mip.write()
    else:
        mip.compiled(folder)


@command(main)
def headlines(folder: _Folder) -> None:
    """Draw the headlines of the results in FOLDER."""
    from . import headlines as drawings

    drawings.main(folder)


@command(main)
def recording(file: Annotated[Path, common.OUTPUT]) -> None:
    """Record the terminal that the README shows.

    FILE is the SVG to write.
    """
    from . import recording as terminal

    file.write_text(terminal.recorded() + "\n", encoding="utf-8")


@command(main)
def proofs(
    *,
    only: Annotated[tuple[str, ...], {"metavar": "PROOF"}, "Run this proof; repeatable."] = (),
    results: _Results = None,
) -> int:
    """Run everything in its long form, one after another.

    A proof that fails does not stop the others. What each prints is in build/proofs. The proofs
    on emulated boards need firmware files, which FLATMQ_FIRMWARE names, separated as in PATH.
    """
    from . import proofs as known

    _need_known(only, known.PROOFS)
    return known.main(only or tuple(known.PROOFS), results)


def _run_in_tests(module: str, arguments: Sequence[str]) -> NoReturn:
    """Become a module of host_tests."""
    path = os.pathsep.join(str(_ROOT / name) for name in ("lib", "tools", "host_tests"))
    words = [sys.executable, "-m", module, *arguments]
    os.execve(sys.executable, words, {**os.environ, "PYTHONPATH": path})


@command(
    main, "fuzz-long",
    context_settings={**_PASSED_ON, "help_option_names": ["-h", "--help"]},
)  # fmt: skip
def fuzz_long(
    *,
    link: Annotated[_Link, click.Choice(["tcp", "websocket"])] = "tcp",
    version: Annotated[Literal["4", "5"], "Version of MQTT; 4 is 3.1.1."] = "4",
    packets: Annotated[
        int | None,
        click.IntRange(1),
        "Number of packets to change.  [default: 10,000,000; 1,000,000 at MQTT 5, 200,000 over "
        "websocket]",
    ] = None,
) -> None:
    """Feed hostile packets by chance, judged by an oracle.

    Other options are passed on: --minutes, --seed, --processes, --device and --results.
    MicroPython runs one packet in 20 of them.
    """
    few = 200_000 if link == "websocket" else 1_000_000 if version == "5" else 10_000_000
    count = packets or few
    sizes = ["--packets", str(count), "--device", str(count // 20)]
    chosen = ["--link", link, "--version", version, *sizes]
    _run_in_tests("hostile.chance", [*chosen, *click.get_current_context().args])


def _add(name: str, module: str, text: str) -> None:
    @main.command(name, context_settings=_PASSED_ON, help=text)
    @click.pass_context
    def passed_on(context: click.Context) -> None:
        found, *default = module.split()
        _run_in_tests(found, [*default, *context.args])


for _name, _entry in _IN_TESTS.items():
    _add(_name, *_entry)

if __name__ == "__main__":
    main(prog_name="python -m flatmq_rigs")
