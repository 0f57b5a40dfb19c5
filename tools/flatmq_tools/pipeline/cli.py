"""The command line of `flatmq pipeline`."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from .. import common_options as common
from .. import extras
from ..durations import DURATION, duration
from ..password import PASSWORD
from ..typed import Reading, command
from . import arrow
from .report.period import Period, When, when

_WITHOUT_SPARK = ("ingest", "export", "forget", "report")


class _Command(click.Command):
    """A command of the pipeline. Its help needs no extra."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it.

        Raises click.ClickException if the pipeline is not installed, and for errors of the
        libraries that read and write tables.
        """
        if sys.version_info < (3, 11) or importlib.util.find_spec("pyarrow") is None:
            raise click.ClickException(
                "the pipeline needs Python 3.11 or later, and: pip install 'flatmq[pipeline]'"
            )
        if self.name in _WITHOUT_SPARK:
            arrow.load()
        try:
            return super().invoke(ctx)
        except (click.ClickException, BrokenPipeError):
            raise
        except Exception as error:
            import pyarrow as pa
            from deltalake.exceptions import DeltaError

            from .tables import reason

            if not isinstance(error, (OSError, pa.ArrowException, DeltaError)):
                raise
            raise click.ClickException(reason(error)) from error


class _Group(extras.Group):
    command_class = _Command


@click.group(cls=_Group, default="pipeline", extras={"demo": "demo,pipeline"})
def pipeline() -> None:
    """Turn what a broker sends into tables and a report, with Spark."""


def _address(text: str) -> tuple[str, int]:
    from .metrics import address

    return address(text)


def _tables(folder: str) -> Path:
    """Return the path of an existing local folder."""
    if "://" in folder:
        raise ValueError(
            f"must be a local folder, not the URL {folder}: mount it, or copy its state/ and "
            "progress.jsonl"
        )
    if not Path(folder).is_dir():
        raise ValueError(f"{folder}: no such folder")
    return Path(folder)


def _metrics_topic(text: str) -> str:
    """Return the topic of a device whose name can begin a pack."""
    from flatmq.rare import checks
    from flatmq.senml import Pack

    try:
        checks.name(text)
        Pack(text.rpartition("/")[2], 1, 512)
    except ValueError:
        raise ValueError(
            "must be a topic name whose last level has only letters, digits and - : . _, begun "
            f"by a letter or digit, not {text!r}"
        ) from None
    return text


_MetricsPort = Annotated[
    tuple[str, int] | None,
    Reading("address", _address),
    {"metavar": "[ADDRESS:]PORT"},
    "Serve Prometheus metrics at http://ADDRESS:PORT/metrics. Without an ADDRESS only this "
    "machine can read them.  [default: serve none]",
]
_Identity = Annotated[
    Literal["topic", "payload"],
    "Source of the device's name: the topic dev/NAME/..., where a pack that names another "
    "device becomes a dead letter, or the payload alone, as for gateways.",
]
_MAPPING = (
    "Mapping file that says how to read the messages of other fleets, or the name of a "
    "shipped one (see `flatmq pipeline map --list`). NAME=BASE prefixes its topics with BASE. "
    "Repeatable; the first rule that matches is used.  [default: {}]"
)
_Mapping = Annotated[
    tuple[str, ...], {"metavar": "FILE"}, _MAPPING.format("SenML on dev/+/telemetry")
]
_Moment = Annotated[When | None, Reading("date, time or duration", when), {"metavar": "WHEN"}]
_LOG = "Folder on a local disk in which messages wait to be landed."
_STATE = "Local folder for the log, the checkpoints and the progress if OUT is a URL."


@command(pipeline)
def ingest(
    broker: common.Broker,
    target: str,
    *,
    filters: common.Filters = ("#",),
    log: Annotated[Path, common.FOLDER, _LOG] = Path("flatmq-log"),
    client_id: Annotated[
        str, "Client identifier, which names the session.  [default: derived from the log]"
    ] = "",
    qos: Annotated[int, click.IntRange(0, 2), "QoS of the subscriptions."] = 1,
    user: common.User = None,
    trust: common.Tls,
    every: Annotated[
        float, duration(0.1, 86_400), "Time between two commits to the table."
    ] = 10.0,
    limit: Annotated[
        int,
        click.IntRange(1),
        "MiB that may wait in the log. When it is full, the broker keeps what follows.",
    ] = 1024,
    keepalive: Annotated[int, duration(0, 65_535, whole=True), "Keep Alive; 0 turns it off."] = 60,
    mqtt_version: Annotated[
        Literal["3.1", "3.1.1", "5"],
        "MQTT version. With 5, the properties of messages are landed too.",
    ] = "3.1.1",
    session_expiry: Annotated[
        int | None,
        duration(0, 0xFFFFFFFF, whole=True),
        "Time for which the broker keeps messages while the ingest is away; needs "
        "--mqtt-version 5.  [default: forever]",
    ] = None,
    metrics: Annotated[
        str | None,
        Reading("topic", _metrics_topic),
        {"metavar": "TOPIC"},
        "Publish counters to TOPIC/telemetry and the state to TOPIC/status, like a board.",
    ] = None,
    metrics_every: Annotated[
        float, duration(1, 86_400), "Time between two publications of --metrics."
    ] = 10.0,
    metrics_port: _MetricsPort = None,
    seconds: common.Until = None,
) -> None:
    """Write what the broker at HOST sends to the Delta table TARGET/raw.

    TARGET is the OUT of a `flatmq pipeline run`: a folder, or a URL that deltalake supports, such
    as s3://... A message is acknowledged once it is synced to the log, and is in the table once.
    Several ingests may write to one TARGET. SIGTERM and Ctrl-C end it cleanly. After SIGKILL, just
    start it again.
    """
    from ..address import address
    from . import landing
    from .ingest import Ingest
    from .log import MIB, Writer
    from .options import VERSIONS

    if session_expiry is not None and mqtt_version != "5":
        raise click.UsageError("--session-expiry needs --mqtt-version 5")
    try:
        where = address(broker, trust is not None)
        with Writer(log, limit * MIB) as writer:
            worker = Ingest(
                writer, where, filters, qos, client_id, user=user,
                password=os.environ.get(PASSWORD) if user else None, keepalive=keepalive,
                tls=trust, version=VERSIONS[mqtt_version], session_expiry=session_expiry,
            )  # fmt: skip
            landing.main(
                worker, target, seconds, metrics_port, every_s=every, metrics=metrics,
                metrics_s=metrics_every,
            )  # fmt: skip
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        place = error.filename or log
        raise click.ClickException(f"{place}: {error.strerror or error}") from error


@command(pipeline)
def run(
    out: str,
    *,
    broker: Annotated[
        str | None,
        "Receive from this broker: HOST:PORT, tcp://HOST:PORT or ssl://HOST:PORT.  [default: "
        "read OUT/raw, to which `flatmq pipeline ingest` writes]",
    ] = None,
    trust: common.Tls,
    filters: Annotated[
        common.Filters, "Topic filter to subscribe to; repeatable.  [default: dev/#]"
    ] = (),
    option: Annotated[common.Pairs, 'Option of format("mqtt"), such as username; repeatable.'],
    job: Annotated[
        tuple[Literal["measurements", "windows", "health"], ...],
        "Run only this job; repeatable.  [default: all]",
    ] = (),
    state: Annotated[Path | None, common.FOLDER, _STATE] = None,
    trigger: Annotated[float, DURATION, "Time between two batches."] = 1.0,
    health_every: Annotated[
        float,
        duration(1),
        "Time between two refreshes of the tables health, devices and gaps.",
    ] = 60.0,
    identity: _Identity = "topic",
    mapping: _Mapping = (),
    ahead: Annotated[
        float,
        DURATION,
        "How much later than its arrival the time of a reading may be. Readings outside --ahead "
        "and --behind go to the table out_of_time.",
        {"default": "1h"},
    ],
    behind: Annotated[
        float,
        DURATION,
        "How much earlier than its arrival the time of a reading may be.",
        {"default": "366d"},
    ],
    keep: Annotated[
        float | None,
        duration(86_400),
        "How long to keep each day of the tables after its end; at least 1d.  [default: for ever]",
    ] = None,
    seconds: common.Until = None,
    metrics_port: _MetricsPort = None,
    master: Annotated[common.Master, {"envvar": "SPARK_MASTER"}] = "local[2]",
    conf: Annotated[common.Pairs, "Spark configuration property; repeatable."],
) -> int:
    """Turn what a broker sends into tables in OUT.

    They are Delta tables, and each message is in them once, even after kills. OUT is a folder,
    shared with the executors if they run on other machines, or with --state a URL that deltalake
    supports: s3://, gs://, abfs:// or hdfs://.

    The password for `--option username=...` is read from FLATMQ_PASSWORD in the environment.
    Under spark-submit, give --master "".
    """
    from . import run as runs
    from .jobs.limits import Bounds
    from .mapping.files import load
    from .options import of_trust, parse, with_defaults

    if broker is None and (option or trust is not None or filters):
        raise click.UsageError("options of the connection need --broker")
    # Before Spark is started, which takes seconds.
    found = load(mapping, () if filters else ("dev/#",))
    source: dict[str, str] = {}
    if broker is not None:
        received = json.dumps(filters or found.filters)
        given = {"brokerUrl": broker, "filters": received, **of_trust(trust)}
        source = with_defaults(option, given)
        if PASSWORD in os.environ and "username" in option:
            source.setdefault("password", os.environ[PASSWORD])
        parse(with_defaults(source, {"localStorage": str(state or out)}))
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
    plan = runs.Plan(
        state or Path(out), source, job or runs.JOBS, trigger, health_every, identity=identity,
        mapping=mapping, bounds=Bounds(ahead, behind), url=url, keep=keep,
    )  # fmt: skip
    return runs.main(
        plan, master=master or None, conf=conf, seconds=seconds, metrics_port=metrics_port
    )


@command(pipeline, "map")
def map_(
    *,
    listed: Annotated[bool, "--list", "List the shipped mappings."] = False,
    show: Annotated[
        str | None, {"metavar": "NAME"}, "Print a shipped mapping, to start one of your own from."
    ] = None,
    tried: Annotated[
        tuple[str, str] | None,
        "--try",
        {"metavar": "TOPIC PAYLOAD"},
        "Show how a message is read. PAYLOAD is text, @FILE or hex:0A1B...",
    ] = None,
    mapping: Annotated[
        _Mapping, _MAPPING.format("all shipped mappings with a base topic of their own")
    ] = (),
) -> int:
    """Show how mapping files read messages.

    It needs neither a broker nor Spark. With --mapping alone, only check the files.
    """
    from .mapping import command as maps

    if not (listed or show or tried or mapping):
        raise click.UsageError("give one of --list, --show, --try and --mapping")
    return maps.main(listed, show, tried, mapping)


@command(pipeline)
def export(
    out: str,
    target: Annotated[Path, common.FOLDER],
    *,
    table: Annotated[
        tuple[str, ...],
        {"metavar": "NAME"},
        "Export only this table; repeatable.  [default: all]",
    ] = (),
) -> int:
    """Write the tables in OUT as plain Parquet to the folder TARGET.

    For tools that read no Delta. OUT is the folder or URL of a run, which may go on meanwhile.
    """
    from . import export as exports
    from .tables import BY_DAY, SNAPSHOTS

    return exports.main(out, target, table or (*BY_DAY, *SNAPSHOTS))


@command(pipeline)
def forget(
    device: str,
    out: str,
    *,
    topic: Annotated[
        tuple[str, ...],
        {"metavar": "FILTER"},
        "Topic filter of the device's messages; repeatable.  [default: dev/DEVICE/#]",
    ] = (),
    log: Annotated[tuple[Path, ...], common.THERE, _LOG] = (),
) -> int:
    """Remove everything that is known of DEVICE from OUT.

    OUT is the folder of a run. The tables, the state and the logs lose its rows and messages;
    those of others stay. End the run and the ingest first. After a kill,
    repeat the command. The exit status is 1 if DEVICE is nowhere.
    """
    from . import forget as forgetting

    if "://" in out:
        raise click.BadParameter(
            f"OUT must be a local folder, not the URL {out}: rows there must be deleted and "
            "vacuumed with a Delta engine"
        )
    try:
        forgetting.check(device, topic)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return forgetting.main(device, Path(out), topic, log)


@command(pipeline)
def rebuild(
    table: Literal["measurements", "windows", "health"],
    out: str,
    *,
    state: Annotated[Path | None, common.THERE, _STATE] = None,
) -> int:
    """Have the next run make TABLE again.

    OUT is the folder or URL of a run, which must have ended. measurements are made of raw, with
    out_of_time, dead_letters and windows; windows of measurements; health, devices and gaps of
    raw.
    """
    from . import rebuild as rebuilding

    if ("://" in out) == (state is None):
        raise click.UsageError("OUT must be a folder, or a URL with --state")
    if state is None and not Path(out).is_dir():
        raise click.BadParameter(f"OUT must be the folder of a run: {out}: no such folder")
    return rebuilding.main(table, out, state or Path(out))


@command(pipeline)
def report(
    out: Annotated[Path, click.Path(path_type=Path)],
    *,
    tables: Annotated[
        Path,
        Reading("folder", _tables),
        {"metavar": "FOLDER"},
        "Folder that `flatmq pipeline run` writes to.",
    ],
    since: Annotated[
        _Moment,
        "Report what came from then on: a date (2026-11-01), a time (2026-11-01T12:30) in UTC "
        "unless it names a zone, or how long before the newest message (7d).  [default: all]",
    ] = None,
    until: Annotated[
        _Moment, "Report what came before then; forms as for --since.  [default: all]"
    ] = None,
    from_raw: Annotated[bool, "Read the table raw, even if the state of a run is there."] = False,
    identity: _Identity = "topic",
    mapping: _Mapping = (),
) -> int:
    """Write OUT/report.html, a report of what the fleet sent.

    Prints the figures too. OUT may also name a file ending in .html. The figures are those
    that `flatmq pipeline run` keeps in FOLDER/state; without them, FOLDER/raw is read, with
    --identity and --mapping.
    """
    from .report import command as reports

    return reports.main(
        out,
        tables,
        identity=identity,
        mapping=mapping,
        period=Period(since, until),
        is_of_raw=from_raw,
    )


@command(pipeline)
def demo(
    out: Annotated[Path, common.FOLDER],
    *,
    devices: common.Devices = 200,
    real: Annotated[
        int,
        click.IntRange(0, 20),
        "Number of further boards that run in a real MicroPython.",
    ] = 1,
    ingests: Annotated[
        int,
        click.IntRange(1, 100),
        "Number of ingest processes, which share the messages through $share.",
    ] = 1,
    seconds: Annotated[common.Seconds, duration(3)] = 30.0,
    seed: common.Seed = 1,
    user: common.User = None,
) -> int:
    """Run the whole pipeline on a simulated fleet.

    Checks the tables in OUT against the record of the fleet. Starts a broker and Spark. To use
    running ones, set BROKER and SPARK_MASTER in the environment.
    """
    from . import demo as demos

    return demos.main(demos.Demo(out, devices, real, ingests, seconds, seed, user))
