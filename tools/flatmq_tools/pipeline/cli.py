"""The commands of `flatmq pipeline`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import common_options
from ..durations import Duration
from ..ending import end
from ..password import PASSWORD

if TYPE_CHECKING:
    from ..trust import Trust


def _port(_: click.Context, __: click.Parameter, given: str | None) -> tuple[str, int] | None:
    """The address and port of --metrics-port."""
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
    help="Serve metrics for Prometheus at http://ADDRESS:PORT/metrics. Without an ADDRESS only "
    "this machine can read them.  [default: none are served]",
)


@click.group()
def pipeline() -> None:
    """From the broker to tables and a picture, on Spark."""
    if sys.version_info < (3, 11) or importlib.util.find_spec("pyarrow") is None:
        raise click.ClickException(
            "the pipeline needs Python 3.11 or later, and: pip install 'flatmq[pipeline]'"
        )


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
    help="The folder, on a disk of this machine, in which messages wait for landing.",
)
@click.option("--client-id", default="", help="The session's name; made of the log if not given.")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True)
@common_options.USER
@common_options.tls
@click.option(
    "--every",
    type=click.FloatRange(0.1, 86_400),
    default=10.0,
    show_default=True,
    help="Seconds between two files.",
)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="MiB that may wait for landing; then the broker has to wait.",
)
@click.option(
    "--segment",
    type=click.IntRange(1, 2048),
    default=64,
    show_default=True,
    help="MiB of messages in a file, at the most.",
)
@click.option("--keepalive", type=click.IntRange(0, 65_535), default=60, show_default=True)
@click.option(
    "--mqtt-version",
    "version",
    type=click.Choice(["3.1", "3.1.1", "5"]),
    default="3.1.1",
    show_default=True,
    help="The version of MQTT. With 5 the properties of messages land too.",
)
@click.option(
    "--session-expiry",
    "expiry",
    type=click.IntRange(0, 0xFFFFFFFF),
    metavar="SECONDS",
    help="How long the broker keeps messages while the ingest is away; with --mqtt-version 5.  "
    "[default: forever]",
)
@click.option(
    "--metrics",
    metavar="TOPIC",
    help="Publish counters to TOPIC/telemetry, and TOPIC/status, as a board.",
)
@click.option("--metrics-every", type=click.FloatRange(1, 86_400), default=10.0, show_default=True)
@_metrics_port
@click.option("--seconds", type=click.FloatRange(0), help="End after so long.")
def ingest(
    broker: str, target: str, filters: tuple[str, ...], folder: Path, client_id: str, qos: int,
    user: str | None, trust: Trust | None, every: float, limit: int, segment: int,
    keepalive: int, version: str, expiry: int | None, metrics: str | None, metrics_every: float,
    metrics_port: tuple[str, int] | None, seconds: float | None,
) -> None:  # fmt: skip
    """Land what the broker at HOST has for us as Parquet files in TARGET.

    TARGET is a folder, or any URL that fsspec knows (s3://..., with s3fs installed). A message is
    acknowledged once it is synced to the log; a file appears in TARGET when it is whole. Ends
    with SIGTERM or Ctrl-C, in good order; after SIGKILL starting again is all there is to do.
    """
    from ..address import address
    from . import landing as command
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
    except (IngestError, LogError, command.LandingError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        place = error.filename or folder
        raise click.ClickException(f"{place}: {error.strerror or error}") from error


_AHEAD = click.option(
    "--ahead",
    type=Duration(),
    default="1h",
    show_default=True,
    help="How far after its arrival the time of a reading may be. Readings outside of --ahead and "
    "--behind go to the table out_of_time.",
)
_BEHIND = click.option(
    "--behind",
    type=Duration(),
    default="366d",
    show_default=True,
    help="How far before its arrival the time of a reading may be.",
)
_IDENTITY = click.option(
    "--identity",
    type=click.Choice(["topic", "payload"]),
    default="topic",
    show_default=True,
    help="What names the device of a pack on a topic dev/NAME/...: NAME, and a pack of another "
    "device is a dead letter; or the pack alone, as for gateways.",
)


def _is_given(option: str) -> bool:
    """Whether the user gave an option, rather than its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _mapping(default: str) -> Callable[[Any], Any]:
    """--mapping, as `mapping`."""
    return click.option(
        "--mapping",
        multiple=True,
        metavar="FILE",
        help="A mapping file, which says how the messages of other fleets are read, or the name "
        "of a shipped mapping: see `flatmq pipeline map --list`. NAME=BASE puts the topic BASE in "
        f"front of its topics. Repeatable; the first rule that matches is used.  [default: "
        f"{default}]",
    )


@pipeline.command()
@click.argument("out")
@click.option(
    "--broker",
    default="127.0.0.1:1883",
    show_default=True,
    envvar="BROKER",
    help="host:port, or tcp://... or ssl://...",
)
@common_options.tls
@common_options.filters("dev/#")
@common_options.pairs(
    "--option", "options", 'Option of format("mqtt"), such as username; repeatable.'
)
@click.option(
    "--landed",
    metavar="FOLDER",
    help="Take the files that `flatmq pipeline ingest` lands, not the broker.",
)
@click.option("--clean", is_flag=True, help="Remove landed files once they are in the table raw.")
@click.option(
    "--job",
    "jobs",
    multiple=True,
    type=click.Choice(["raw", "measurements", "windows", "health"]),
    help="Do this one; repeatable. All, if not given.",
)
@click.option(
    "--delta", is_flag=True, help="Write Delta tables too; Delta tables alone if OUT is a URL."
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of this machine for the log, the checkpoints and the progress, if OUT is a URL.",
)
@click.option(
    "--iceberg",
    metavar="NAMESPACE",
    help="Write the tables that grow as Iceberg tables in this namespace, too.",
)
@common_options.pairs(
    "--catalog",
    "catalog",
    "Property of the Iceberg catalog, such as type, uri or warehouse; repeatable.  "
    "[default: an SQLite catalog in OUT/iceberg]",
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
@click.option("--seconds", type=click.FloatRange(0.0), help="End after that; else with Ctrl-C.")
@_metrics_port
@common_options.master('As for spark-submit; "" under spark-submit itself.', "SPARK_MASTER")
@common_options.pairs("--conf", "conf", "Configuration of Spark; repeatable.")
def run(
    out: str,
    broker: str,
    trust: Trust | None,
    filters: tuple[str, ...],
    options: dict[str, str],
    landed: str | None,
    clean: bool,
    jobs: tuple[str, ...],
    delta: bool,
    iceberg: str | None,
    catalog: dict[str, str],
    state: Path | None,
    trigger: float,
    health_every: float,
    identity: str,
    mapping: tuple[str, ...],
    ahead: float,
    behind: float,
    seconds: float | None,
    metrics_port: tuple[str, int] | None,
    master: str,
    conf: dict[str, str],
) -> None:
    """Make tables in OUT of what a broker sends: each message once, also after kills.

    OUT is a folder, which the executors share if they are on other machines, or with --delta and
    --state a URL that deltalake knows: s3://, gs://, abfs://, hdfs://.

    The password for `--option username=...` is taken from FLATMQ_PASSWORD in the environment.
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
    source = with_defaults(
        options,
        {"brokerUrl": broker, "filters": json.dumps(filters), **of_trust(trust)},
    )
    if PASSWORD in os.environ and "username" in options:
        source.setdefault("password", os.environ[PASSWORD])
    if clean and landed is None:
        raise click.UsageError("--clean is for what --landed names")
    if catalog and iceberg is None:
        raise click.UsageError("--catalog needs --iceberg")
    if iceberg is not None and importlib.util.find_spec("pyiceberg") is None:
        raise click.ClickException("--iceberg needs: pip install 'flatmq[iceberg]'")
    url = out if "://" in out else None
    if url is None and Path(out).is_file():
        raise click.BadParameter(f"OUT must be a folder, and {out} is a file")
    if url is None and state is not None:
        raise click.UsageError("--state is for an OUT that is a URL; a folder has it all")
    if url is not None and not delta:
        raise click.UsageError(
            f"OUT must be a folder unless --delta is given, not {url}: plain Parquet is there "
            "once because a folder is renamed in one step, which an object store cannot do"
        )
    if url is not None and state is None:
        raise click.UsageError(
            f"OUT {url} needs --state: a folder of this machine for the log, the checkpoints and "
            "the progress"
        )
    plan = command.Plan(
        state or Path(out), source, landed, clean, jobs or command.JOBS, delta, trigger,
        health_every, identity=identity, mapping=mapping, bounds=Bounds(ahead, behind), url=url,
        iceberg=iceberg, catalog=catalog,
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
    "--show", metavar="NAME", help="Print a shipped mapping: the beginning of one of your own."
)
@click.option(
    "--try",
    "tried",
    nargs=2,
    metavar="TOPIC PAYLOAD",
    help="Show what becomes of a message. PAYLOAD is a text, @FILE, or hex:0A1B...",
)
@_mapping("all shipped mappings with a base topic of their own")
def map_(
    listed: bool, show: str | None, tried: tuple[str, str] | None, mapping: tuple[str, ...]
) -> None:
    """Show how mapping files read messages, without a broker and without Spark.

    With --mapping alone, the files are checked.
    """
    from .mapping import command

    if not (listed or show or tried or mapping):
        raise click.UsageError("one of --list, --show, --try and --mapping is needed")
    end(lambda: command.main(listed, show, tried, mapping), command.MappingError)


@pipeline.command()
@click.argument("tables")
@click.option(
    "--keep",
    type=click.IntRange(1, 8760),
    default=168,
    show_default=True,
    help="Hours that old files stay, for those who read them now.",
)
@click.option(
    "--target", type=click.IntRange(1, 4096), default=256, show_default=True, help="MiB of a file."
)
def compact(tables: str, keep: int, target: int) -> None:
    """Make few files of the many that a Delta table has, and remove files of no table.

    TABLES is OUT/delta of a run, or OUT if that is a URL. Readers and the run go on meanwhile.
    """
    from . import compact as command

    if "://" not in tables and not Path(tables).is_dir():
        raise click.BadParameter(f"TABLES must be a folder or a URL: {tables}: no such folder")
    end(lambda: command.main(tables, keep, target), command.CompactError)


def _local(_: click.Context, __: click.Parameter, given: str) -> Path:
    """A folder of this machine."""
    if "://" in given:
        raise click.BadParameter(
            f"{given} is a URL, and the report reads folders of this machine: mount it, or copy "
            "raw/ and progress.jsonl of it"
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
    help="The folder that `flatmq pipeline run` writes to.",
)
@_IDENTITY
@_mapping("SenML on dev/+/telemetry")
@common_options.master("As for spark-submit.")
def report(out: Path, tables: Path, identity: str, mapping: tuple[str, ...], master: str) -> None:
    """Write OUT/report.html, with pictures of what the fleet sent, and print its numbers.

    The pictures are in the page, and beside it as PNG. OUT may be a file that ends in .html.
    """
    from .report import command

    end(
        lambda: command.main(out, tables, master, identity=identity, mapping=mapping),
        *command.ERRORS,
    )


@pipeline.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--devices", type=click.IntRange(1, 60_000), default=200, show_default=True)
@click.option(
    "--real",
    type=click.IntRange(0, 20),
    default=1,
    show_default=True,
    help="Boards in a real MicroPython.",
)
@click.option(
    "--ingests",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    help="Processes that share the messages by $share.",
)
@click.option("--seconds", type=click.FloatRange(3), default=30.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Of what goes wrong.")
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
    """Have boards publish, run everything up to the report, and hold OUT's tables against what
    the boards did.

    A broker and Spark are started here; BROKER and SPARK_MASTER name others.
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
