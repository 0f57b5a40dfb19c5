"""The command line of `flatmq pipeline`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import common_options, extras
from ..durations import Duration
from ..ending import end
from ..password import PASSWORD
from .report.period import Moment, When

if TYPE_CHECKING:
    from ..trust import Trust


def _port(_: click.Context, __: click.Parameter, given: str | None) -> tuple[str, int] | None:
    """Return the address and port of --metrics-port."""
    if given is None:
        return None
    try:
        from .metrics import MetricsError, address
    except ImportError as error:
        raise click.ClickException(
            "--metrics-port needs prometheus-client: pip install 'flatmq[pipeline]'"
        ) from error
    try:
        return address(given)
    except MetricsError as error:
        raise click.BadParameter(str(error)) from error


_metrics_port = click.option(
    "--metrics-port",
    metavar="[ADDRESS:]PORT",
    callback=_port,
    help="Serve Prometheus metrics at http://ADDRESS:PORT/metrics. Without an ADDRESS only this "
    "machine can read them.  [default: serve none]",
)


class _Command(click.Command):
    """A command of the pipeline. Its help needs no extra."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. Raises click.ClickException if the pipeline is not installed."""
        if sys.version_info < (3, 11) or importlib.util.find_spec("pyarrow") is None:
            raise click.ClickException(
                "the pipeline needs Python 3.11 or later, and: pip install 'flatmq[pipeline]'"
            )
        return super().invoke(ctx)


class _Group(extras.Group):
    command_class = _Command


@click.group(cls=_Group, default="pipeline", extras={"demo": "demo,pipeline"})
def pipeline() -> None:
    """Turn what a broker sends into tables and a report, with Spark."""


@pipeline.command()
@click.argument("broker", metavar="HOST[:PORT]")
@click.argument("target")
@common_options.filters("#")
@click.option(
    "--log",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("flatmq-log"),
    show_default=True,
    help="Folder on a local disk in which messages wait to be landed.",
)
@click.option(
    "--client-id",
    default="",
    help="Client identifier, which names the session.  [default: derived from the log]",
)
@click.option(
    "--qos",
    type=click.IntRange(0, 2),
    default=1,
    show_default=True,
    help="QoS of the subscriptions.",
)
@common_options.USER
@common_options.tls
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86_400),
    default=10.0,
    show_default=True,
    help="Seconds between two commits to the table.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="MiB that may wait in the log. When it is full, the broker keeps what follows.",
)
@click.option(
    "--segment",
    type=click.IntRange(1, 2048),
    default=64,
    show_default=True,
    help="Maximum size of a file of the log, in MiB of messages.",
)
@click.option(
    "--keepalive",
    type=click.IntRange(0, 65_535),
    default=60,
    show_default=True,
    help="Keep Alive, in seconds; 0 turns it off.",
)
@click.option(
    "--mqtt-version",
    "version",
    type=click.Choice(["3.1", "3.1.1", "5"]),
    default="3.1.1",
    show_default=True,
    help="MQTT version. With 5, the properties of messages are landed too.",
)
@click.option(
    "--session-expiry",
    "expiry",
    type=click.IntRange(0, 0xFFFFFFFF),
    metavar="SECONDS",
    help="Seconds for which the broker keeps messages while the ingest is away; needs "
    "--mqtt-version 5.  [default: forever]",
)
@click.option(
    "--metrics",
    metavar="TOPIC",
    help="Publish counters to TOPIC/telemetry and the state to TOPIC/status, like a board.",
)
@click.option(
    "--metrics-every",
    type=click.FloatRange(1, 86_400),
    default=10.0,
    show_default=True,
    help="Seconds between two publications of --metrics.",
)
@_metrics_port
@common_options.seconds(click.FloatRange(0))
def ingest(
    broker: str, target: str, filters: tuple[str, ...], folder: Path, client_id: str, qos: int,
    user: str | None, trust: Trust | None, every: float, limit: int, segment: int,
    keepalive: int, version: str, expiry: int | None, metrics: str | None, metrics_every: float,
    metrics_port: tuple[str, int] | None, seconds: float | None,
) -> None:  # fmt: skip
    """Write what the broker at HOST sends to the Delta table TARGET/raw.

    TARGET is the OUT of a `flatmq pipeline run`: a folder, or a URL that deltalake supports, such
    as s3://... A message is acknowledged once it is synced to the log, and is in the table once.
    Several ingests may write to one TARGET. SIGTERM and Ctrl-C end it cleanly. After SIGKILL, just
    start it again.
    """
    from ..address import address
    from . import landing as command
    from .in_use import InUseError
    from .ingest import Ingest, IngestError
    from .log import MIB, LogError, Writer
    from .options import VERSIONS

    if expiry is not None and version != "5":
        raise click.UsageError("--session-expiry needs --mqtt-version 5")
    try:
        where = address(broker, trust is not None)
        with Writer(folder, limit * MIB, segment * MIB) as log:
            worker = Ingest(
                log, where, filters, qos, client_id, user=user,
                password=os.environ.get(PASSWORD) if user else None, keepalive=keepalive,
                tls=trust, version=VERSIONS[version], session_expiry=expiry,
            )  # fmt: skip
            command.main(
                worker, target, every_s=every, metrics=metrics, metrics_s=metrics_every,
                seconds=seconds, metrics_port=metrics_port,
            )  # fmt: skip
    except (IngestError, InUseError, LogError, command.LandingError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        place = error.filename or folder
        raise click.ClickException(f"{place}: {error.strerror or error}") from error


_AHEAD = click.option(
    "--ahead",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How much later than its arrival the time of a reading may be. Readings outside --ahead "
    "and --behind go to the table out_of_time.",
)
_BEHIND = click.option(
    "--behind",
    type=Duration(),
    default="366d",
    show_default=True,
    help="How much earlier than its arrival the time of a reading may be.",
)
_IDENTITY = click.option(
    "--identity",
    type=click.Choice(["topic", "payload"]),
    default="topic",
    show_default=True,
    help="Source of the device's name: the topic dev/NAME/..., where a pack that names another "
    "device becomes a dead letter, or the payload alone, as for gateways.",
)


def _is_given(option: str) -> bool:
    """Return whether the user gave an option; False if it has its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _mapping(default: str) -> Callable[[Any], Any]:
    """Add --mapping, passed on as `mapping`."""
    return click.option(
        "--mapping",
        multiple=True,
        metavar="FILE",
        help="Mapping file that says how to read the messages of other fleets, or the name of a "
        "shipped one (see `flatmq pipeline map --list`). NAME=BASE prefixes its topics with BASE. "
        f"Repeatable; the first rule that matches is used.  [default: {default}]",
    )


@pipeline.command()
@click.argument("out")
@click.option(
    "--broker",
    help="Receive from this broker: HOST:PORT, tcp://HOST:PORT or ssl://HOST:PORT.  [default: "
    "read OUT/raw, to which `flatmq pipeline ingest` writes]",
)
@common_options.tls
@common_options.filters("dev/#")
@common_options.pairs(
    "--option", "options", 'Option of format("mqtt"), such as username; repeatable.'
)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    type=click.Choice(["measurements", "windows", "health"]),
    help="Run only this job; repeatable.  [default: all]",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Local folder for the log, the checkpoints and the progress if OUT is a URL.",
)
@click.option(
    "--trigger",
    type=click.FloatRange(0.0),
    default=1.0,
    show_default=True,
    help="Seconds between two batches.",
)
@click.option(
    "--health-every",
    type=click.FloatRange(1.0),
    default=60.0,
    show_default=True,
    help="Seconds between two refreshes of the tables health, devices and gaps.",
)
@_IDENTITY
@_mapping("SenML on dev/+/telemetry")
@_AHEAD
@_BEHIND
@click.option(
    "--keep",
    type=Duration(),
    help="How long to keep each day of the tables after its end; at least 1d.  "
    "[default: for ever]",
)
@common_options.seconds(click.FloatRange(0.0))
@_metrics_port
@common_options.master("SPARK_MASTER")
@common_options.pairs("--conf", "conf", "Spark configuration property; repeatable.")
def run(
    out: str,
    broker: str | None,
    trust: Trust | None,
    filters: tuple[str, ...],
    options: dict[str, str],
    jobs: tuple[str, ...],
    state: Path | None,
    trigger: float,
    health_every: float,
    identity: str,
    mapping: tuple[str, ...],
    ahead: float,
    behind: float,
    keep: float | None,
    seconds: float | None,
    metrics_port: tuple[str, int] | None,
    master: str,
    conf: dict[str, str],
) -> None:
    """Turn what a broker sends into tables in OUT.

    They are Delta tables, and each message is in them once, even after kills. OUT is a folder,
    shared with the executors if they run on other machines, or with --state a URL that deltalake
    supports: s3://, gs://, abfs:// or hdfs://.

    The password for `--option username=...` is read from FLATMQ_PASSWORD in the environment.
    Under spark-submit, give --master "".
    """
    import json

    from . import run as command
    from .java import JavaError
    from .jobs.measurements import Bounds
    from .mapping.files import MappingError, load
    from .options import of_trust, with_defaults

    if mapping:
        try:  # before Spark is started, which takes seconds
            found = load(mapping, () if _is_given("filters") else filters)
        except MappingError as error:
            raise click.ClickException(str(error)) from error
        if not _is_given("filters"):
            filters = tuple(found.filters)
    source: dict[str, str] = {}
    if broker is not None:
        given = {"brokerUrl": broker, "filters": json.dumps(filters), **of_trust(trust)}
        source = with_defaults(options, given)
        if PASSWORD in os.environ and "username" in options:
            source.setdefault("password", os.environ[PASSWORD])
    elif options or trust is not None or (_is_given("filters") and filters):
        raise click.UsageError("options of the connection need --broker")
    if keep is not None and keep < 86_400:
        raise click.BadParameter(f"--keep must be at least 1d, not {keep:g}s")
    url = out if "://" in out else None
    if url is None and Path(out).is_file():
        raise click.BadParameter(f"OUT must be a folder, not the file {out}")
    if url is None and state is not None:
        raise click.UsageError("--state needs an OUT that is a URL; a folder holds its own state")
    if url is not None and state is None:
        raise click.UsageError(
            f"OUT {url} needs --state: a local folder for the log, the checkpoints and the "
            "progress"
        )
    plan = command.Plan(
        state or Path(out), source, jobs or command.JOBS, trigger,
        health_every, identity=identity, mapping=mapping, bounds=Bounds(ahead, behind), url=url,
        keep=keep,
    )  # fmt: skip
    end(
        lambda: command.main(
            plan, master=master or None, conf=conf, seconds=seconds, metrics_port=metrics_port
        ),
        command.RunError,
        JavaError,
    )


@pipeline.command("map")
@click.option("--list", "listed", is_flag=True, help="List the shipped mappings.")
@click.option(
    "--show", metavar="NAME", help="Print a shipped mapping, to start one of your own from."
)
@click.option(
    "--try",
    "tried",
    nargs=2,
    metavar="TOPIC PAYLOAD",
    help="Show how a message is read. PAYLOAD is text, @FILE or hex:0A1B...",
)
@_mapping("all shipped mappings with a base topic of their own")
def map_(
    listed: bool, show: str | None, tried: tuple[str, str] | None, mapping: tuple[str, ...]
) -> None:
    """Show how mapping files read messages.

    It needs neither a broker nor Spark. With --mapping alone, only check the files.
    """
    from .mapping import command

    if not (listed or show or tried or mapping):
        raise click.UsageError("give one of --list, --show, --try and --mapping")
    end(lambda: command.main(listed, show, tried, mapping), command.MappingError)


@pipeline.command("export")
@click.argument("out")
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--table",
    "names",
    multiple=True,
    metavar="NAME",
    help="Export only this table; repeatable.  [default: all]",
)
def export_(out: str, target: Path, names: tuple[str, ...]) -> None:
    """Write the tables in OUT as plain Parquet to the folder TARGET.

    For tools that read no Delta. OUT is the folder or URL of a run, which may go on meanwhile.
    """
    from . import export as command
    from .tables import BY_DAY, SNAPSHOTS

    end(lambda: command.main(out, target, names or (*BY_DAY, *SNAPSHOTS)), command.ExportError)


_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@pipeline.command()
@click.argument("device")
@click.argument("out")
@click.option(
    "--topic",
    "filters",
    multiple=True,
    metavar="FILTER",
    help="Topic filter of the device's messages; repeatable.  [default: dev/DEVICE/#]",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=_FOLDER,
    help="Folder on a local disk in which messages wait to be landed.",
)
def forget(device: str, out: str, filters: tuple[str, ...], logs: tuple[Path, ...]) -> None:
    """Remove everything that is known of DEVICE from OUT.

    OUT is the folder of a run. The tables, the state and the logs lose its rows and messages;
    those of others stay. End the run and the ingest first. After a kill,
    repeat the command. The exit status is 1 if DEVICE is nowhere.
    """
    from . import forget as command
    from .forget_rows import check

    if "://" in out:
        raise click.BadParameter(
            f"OUT must be a local folder, not the URL {out}: rows there must be deleted and "
            "vacuumed with a Delta engine"
        )
    try:
        check(device, filters)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    end(lambda: command.main(device, Path(out), filters, logs), *command.ERRORS)


@pipeline.command()
@click.argument("table", type=click.Choice(["measurements", "windows", "health"]))
@click.argument("out")
@click.option(
    "--state",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Local folder for the log, the checkpoints and the progress if OUT is a URL.",
)
def rebuild(table: str, out: str, state: Path | None) -> None:
    """Have the next run make TABLE again.

    OUT is the folder or URL of a run, which must have ended. measurements are made of raw, with
    out_of_time, dead_letters and windows; windows of measurements; health, devices and gaps of
    raw.
    """
    from . import rebuild as command
    from .editions import EditionError
    from .in_use import InUseError

    if ("://" in out) == (state is None):
        raise click.UsageError("OUT must be a folder, or a URL with --state")
    if state is None and not Path(out).is_dir():
        raise click.BadParameter(f"OUT must be the folder of a run: {out}: no such folder")
    end(lambda: command.main(table, out, state or Path(out)), EditionError, InUseError)


def _local(_: click.Context, __: click.Parameter, given: str) -> Path:
    """Return the path of an existing local folder."""
    if "://" in given:
        raise click.BadParameter(
            f"must be a local folder, not the URL {given}: mount it, or copy its state/ and "
            "progress.jsonl"
        )
    if not Path(given).is_dir():
        raise click.BadParameter(f"{given}: no such folder")
    return Path(given)


@pipeline.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--tables",
    required=True,
    metavar="FOLDER",
    callback=_local,
    help="Folder that `flatmq pipeline run` writes to.",
)
@click.option(
    "--since",
    type=Moment(),
    metavar="WHEN",
    help="Report what came from then on: a date (2026-11-01), a time (2026-11-01T12:30) in UTC "
    "unless it names a zone, or how long before the newest message (7d).  [default: all]",
)
@click.option(
    "--until",
    type=Moment(),
    metavar="WHEN",
    help="Report what came before then; forms as for --since.  [default: all]",
)
@click.option(
    "--from-raw",
    is_flag=True,
    help="Read the table raw with Spark, even if the state of a run is there.",
)
@_IDENTITY
@_mapping("SenML on dev/+/telemetry")
@common_options.master()
def report(
    out: Path,
    tables: Path,
    since: When | None,
    until: When | None,
    from_raw: bool,
    identity: str,
    mapping: tuple[str, ...],
    master: str,
) -> None:
    """Write OUT/report.html, a report of what the fleet sent.

    Prints the figures too. OUT may also name a file ending in .html. The figures are those
    that `flatmq pipeline run` keeps in FOLDER/state; without them, Spark reads FOLDER/raw, with
    --identity and --mapping. Measured values are those of FOLDER/measurements.
    """
    from .report import command
    from .report.period import Period

    end(
        lambda: command.main(
            out,
            tables,
            master,
            identity=identity,
            mapping=mapping,
            period=Period(since, until),
            from_raw=from_raw,
        ),
        *command.ERRORS,
    )


@pipeline.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@common_options.devices(200)
@click.option(
    "--real",
    type=click.IntRange(0, 20),
    default=1,
    show_default=True,
    help="Number of further boards that run in a real MicroPython.",
)
@click.option(
    "--ingests",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Number of ingest processes, which share the messages through $share.",
)
@common_options.seconds(click.FloatRange(3), 30.0)
@common_options.seed(1)
@common_options.USER
def demo(
    out: Path,
    devices: int,
    real: int,
    ingests: int,
    seconds: float,
    seed: int,
    user: str | None,
) -> None:
    """Run the whole pipeline on a simulated fleet.

    Checks the tables in OUT against the record of the fleet. Starts a broker and Spark. To use
    running ones, set BROKER and SPARK_MASTER in the environment.
    """
    from ..bytecode import CompileError
    from ..fleet import ERRORS
    from . import demo as command

    end(
        lambda: command.main(out, devices, real, ingests, seconds, seed, user),
        command.DemoError,
        CompileError,
        *ERRORS,
    )
