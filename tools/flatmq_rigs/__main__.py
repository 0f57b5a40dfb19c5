"""`python -m flatmq_rigs COMMAND`: the measurements and proofs of the project itself.

They run in a checkout. Each command is a module of its own, loaded when it runs; this is their
front. The Makefile has a target for each, with what it needs installed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import click

from flatmq_tools import common_options
from flatmq_tools.ending import end

from . import rig_options
from .links import LINKS

_FILE = click.Path(dir_okay=False, path_type=Path)


_RESULTS = Path("docs/results.md")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure and prove flatmq itself, from a checkout of the repository."""


@main.command()
@rig_options.rounds(5)
@click.option("--only", multiple=True, metavar="CLIENT", help="Measure this client; repeatable.")
@click.option("--quick", is_flag=True, help="Measure briefly and print; write no results.")
@rig_options.STRICT
@rig_options.results(_RESULTS)
def bench(rounds: int, only: tuple[str, ...], quick: bool, strict: bool, results: Path) -> None:
    """Measure flatmq beside other clients, in one run."""
    from . import bench as command

    end(
        lambda: command.main(
            rounds=rounds, only=only, quick=quick, strict=strict, results=results
        ),
        command.BenchError,
    )


@main.command()
@rig_options.messages(1_000_000, 1_000, 1_000_000_000)
@common_options.seed()
@click.option(
    "--kilobytes",
    type=click.IntRange(1, 1_000_000),
    default=1_000,
    show_default=True,
    help="Mean traffic in one direction between two faults, in kB; a fault follows after 5 s "
    "in any case.",
)
@click.option(
    "--client",
    type=click.Choice(["micropython", "cpython"]),
    default="micropython",
    show_default=True,
    help="Interpreter that runs flatmq.",
)
@click.option(
    "--link",
    type=click.Choice(LINKS),
    default="tcp",
    show_default=True,
    help="Transport that flatmq connects over.",
)
@click.option(
    "--heap",
    type=click.IntRange(16, 1_000_000),
    help="Heap of MicroPython in KB.  [default: the smallest in which the link works]",
)
@rig_options.results()
def soak(
    messages: int,
    seed: int | None,
    kilobytes: int,
    client: str,
    link: str,
    heap: int | None,
    results: Path | None,
) -> None:
    """Send numbered messages over a failing link, and count them.

    --messages are sent in each direction, a third of them at each QoS. A mosquitto is started on
    loopback. BROKER=host:port names a broker that already runs; the link is tcp then.
    """
    from flatmq_tools.bytecode import CompileError

    from . import soak as command
    from .links import LinkError

    end(
        lambda: command.main(
            messages,
            seed=seed,
            python=client,
            link=link,
            heap_kb=heap,
            mean=kilobytes * 1000,
            results_path=results,
        ),
        command.SoakError,
        command.PeerError,
        LinkError,
        CompileError,
    )


@main.command()
@rig_options.results(_RESULTS)
@click.option(
    "--every",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Cut a second time only after every Nth first cut.",
)
@click.option(
    "--mqtt",
    type=click.Choice(["3.1.1", "5"]),
    help="Only cut the power, with clients of this version, and only print the table.",
)
def powercut(results: Path, every: int, mqtt: str | None) -> None:
    """Cut the power of a spool at every write to its flash.

    Measures the wear of the flash too.
    """
    from . import powercut as command

    version = {"3.1.1": 4, "5": 5}.get(mqtt or "")
    end(lambda: command.main(results, every, version), command.PowerCutError)


@main.command()
@rig_options.results()
def size(results: Path | None) -> None:
    """Show how much flash and memory the client takes.

    The figures are by module, and by step of a program.
    """
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
    help="A row of the tables: flatmq, flatmq-5, properties, paho, memory, memory-5, ceiling, "
    "landing, reading; source, source-paho, files, jobs, log. Repeatable.",
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
    if importlib.util.find_spec("paho") is None:
        raise click.ClickException("the measurements need: pip install 'flatmq[pipeline,rigs]'")
    from flatmq_tools.broker import BrokerError
    from flatmq_tools.pipeline.java import JavaError

    from .pipeline.bench import command
    from .pipeline.bench.figures import BenchError

    unknown = set(only) - set(command.PARTS)
    if unknown:
        raise click.BadParameter(
            f"must be one of {', '.join(command.PARTS)}, not {', '.join(sorted(unknown))}",
            param_hint="--only",
        )
    end(
        lambda: command.main(messages, rounds, only, strict, results),
        BrokerError,
        BenchError,
        JavaError,
    )


@main.command()
@rig_options.messages(50_000, 100)
@click.option(
    "--kills",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Kills of each part.",
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["driver", "jvm", "source", "broker", "ingest", "compaction", "store"]),
    help="Part to kill; repeatable.  [default: all, each in a run of its own]",
)
@common_options.seed()
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
@click.option(
    "--rate",
    type=click.IntRange(1, 1_000_000),
    default=20_000,
    show_default=True,
    help="Messages a second of the steady load.",
)
@click.option(
    "--steady",
    type=click.FloatRange(1, 86_400),
    default=180.0,
    show_default=True,
    help="Duration of the steady load, in seconds.",
)
@click.option(
    "--topics",
    type=click.IntRange(1, 10_000_000),
    default=100_000,
    show_default=True,
    help="Number of different topics, with a message in each.",
)
@click.option(
    "--retained",
    type=click.IntRange(1, 10_000_000),
    default=50_000,
    show_default=True,
    help="Number of retained messages that are there at the start.",
)
@click.option(
    "--size",
    type=click.IntRange(1, 200_000_000),
    default=10_000_000,
    show_default=True,
    help="Size of the large message, in bytes.",
)
@rig_options.results()
def live(
    rate: int, steady: float, topics: int, retained: int, size: int, results: Path | None
) -> None:
    """Load the pipeline like a busy fleet.

    Measures how far it falls behind.
    """
    _need_the_pipeline()
    from .pipeline import live as command

    end(
        lambda: command.main(rate, steady, topics, retained, size, results),
        command.LiveError,
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
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
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

    end(
        lambda: command.main(out, days, results, leave),
        command.HistoryError,
        JavaError,
    )


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def release(folder: Path) -> None:
    """Build the files of a release into FOLDER.

    They are the wheel, the sdist, the packages for mip and the notes. What is in FOLDER is
    removed first. The same commit gives the same bytes.
    """
    from flatmq_tools.bytecode import CompileError

    from . import release as command

    end(lambda: command.main(folder), command.ReleaseError, CompileError)


def _need_the_pipeline() -> None:
    if sys.version_info < (3, 11) or importlib.util.find_spec("pyarrow") is None:
        raise click.ClickException(
            "the pipeline needs Python 3.11 or later, and: pip install 'flatmq[pipeline]'"
        )


@main.command("type-check")
@click.argument("stubs", type=click.Path(exists=True, file_okay=False, path_type=Path))
def type_check(stubs: Path) -> None:
    """Check the types of the client and the sketches.

    They are checked against the stubs of each port of MicroPython. STUBS is a folder with a
    folder for each stub package.
    """
    from . import type_check as command

    sys.exit(command.main(stubs.resolve()))


@main.command("private-access")
@click.argument("folders", nargs=-1, required=True)
def private_access(folders: tuple[str, ...]) -> None:
    """Report private names used outside their module.

    Looks at every module below FOLDERS.
    """
    from . import private_access as command

    sys.exit(command.main(list(folders)))


if __name__ == "__main__":
    main(prog_name="python -m flatmq_rigs")
