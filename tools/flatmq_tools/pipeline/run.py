"""`flatmq pipeline run`: messages become tables, in one folder, until it is told to end.

    OUT/raw  measurements  dead_letters  windows      grow by a folder `batch=N` a batch
    OUT/out_of_time                                   as these, for batches that have such readings
    OUT/health  devices  gaps                         are written anew now and then, from raw
    OUT/delta/...                                     the same as Delta tables, if wanted
    OUT/iceberg/...                                   those that grow as Iceberg tables, likewise
    OUT/log                                           what was received and is not in raw yet
    OUT/checkpoints  state  progress.jsonl            where each query is, and how it does

OUT may be a URL, such as that of an object store: the tables are there then, of Delta alone, and
the rest is in a folder of this machine.

The table raw is fed by the broker, or by the files that `flatmq pipeline ingest` lands; the others
by the batches of raw and of measurements. So each of them can be removed, with its checkpoint and
its state, and is made again from what it is made of.
"""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from rich.console import Console

from . import options, sinks
from .jobs import columns, health, measurements, raw
from .notices import Notices
from .open_windows import open_windows
from .progress import Progress
from .rare import Rare
from .session import session
from .tables import Tables, TablesError, check

JOBS = ("raw", "measurements", "windows", "health")
_LOOK = 0.25  # s between two looks at the queries
_DRAIN = 60.0  # s
_HEALTH_SHARE = 10  # times what a snapshot of the health tables took pass before the next one
_OWN = re.compile(r"flatmq_tools\.[\w.]+: ")  # an error of ours, in a trace
# Spark gives the process of a source 10 s to start: on a busy machine that is too short. It has
# done nothing by then.
_SLOW = "Python worker failed to connect back"
_STARTS = 5  # of a query, until it is given up
_LATE_FOR = {
    "measurements": "packs came through an ingest that was ten minutes behind another: they are "
    "in raw, and not in measurements",
}
_OUT_OF_TIME = (
    "readings have a time too far from their arrival: they are in the table out_of_time, and not "
    "in measurements; --ahead and --behind set how far is too far"
)
_TOO_LATE = (
    "values are more than ten minutes older than the newest of their device, or came after it had "
    "been silent for an hour: they are in measurements, and in no window"
)
_CAUSED = "Caused by: "  # a line of a trace of Java
_TRACE = "Traceback (most recent call last):"
# Of a batch of raw, at the most: what has come while Spark was away is worked off in several, as a
# batch passes through the driver's memory on its way to a Delta table.
_ROWS = 1_000_000
_BYTES = 64 << 20  # of landed files, at 30 B a message or so; one file in any case
_FOREVER = "36500d"  # a file that is older than others is a batch like any other
_REMOVED = "30d"  # for which the name of a file is known, where they are removed

_MESSAGE = ", ".join(f"`{name}` {kind}" for name, kind in columns.MESSAGE.items())
_LANDED = ", ".join(
    f"`{name}` {kind}" for name, kind in {**columns.MESSAGE, **columns.CARRIED}.items()
)


class RunError(RuntimeError):
    """A query has failed, or cannot be started; the text says which, and why."""


@dataclass
class Plan:
    """What is to be run."""

    out: Path
    """The folder of all tables; with `url`, of all but them: the log, the checkpoints."""
    source: dict[str, str] = field(default_factory=dict)
    """Options of format("mqtt"); localStorage is OUT/log unless it says otherwise."""
    landed: str | None = None
    """In place of the broker: the folder or URL where an ingest lands files."""
    clean: bool = False
    """Remove landed files once they are in the table raw."""
    jobs: Sequence[str] = JOBS
    delta: bool = False
    """Delta tables beside those of Parquet."""
    trigger: float = 1.0
    """s between two batches"""
    health_every: float = 60.0
    """s between two snapshots of the health tables, and more where one takes more than a tenth of
    that; one is made at the end in any case."""
    identity: str = "topic"
    """What names the device of a pack: see `measurements.packs`."""
    mapping: Sequence[str] = ()
    """Mapping files and shipped mappings, in their order: see `measurements.mapped`."""
    bounds: measurements.Bounds = field(default_factory=measurements.Bounds)
    """How far the time of a reading may be from its arrival."""
    iceberg: str | None = None
    """The namespace of Iceberg tables beside those of Parquet: those that grow."""
    catalog: dict[str, str] = field(default_factory=dict)
    """Properties of their catalog; without any, it is an SQLite database in OUT/iceberg."""
    url: str | None = None
    """Where the tables are, of Delta alone, instead of in a folder: that of an object store."""


class Run:
    """The queries of a plan, running in a session."""

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        unknown = set(plan.jobs) - set(JOBS)
        if unknown:
            raise RunError(
                f"{', '.join(sorted(unknown))}: no such job; there are {', '.join(JOBS)}"
            )
        self._spark = spark
        self._plan = plan
        self._mapping = measurements.mapped(plan.mapping, plan.identity)
        self._seen: dict[str, int] = {}  # the last batch of each query that was noted
        self._due = time.monotonic() + plan.health_every
        self.late: Counter[str] = Counter()
        """Rows that came too late for a table, by its name, since the start."""
        self.notices = Notices()
        """What people are to know while it runs."""
        plan.out.mkdir(parents=True, exist_ok=True)
        self._progress = Progress(plan.out)
        self._tables = Tables(spark, plan.out, plan.url, plan.delta, plan.iceberg, plan.catalog)
        ways = {"raw": self._raw, "measurements": self._measurements, "windows": self._windows}
        self._ways = {job: start for job, start in ways.items() if job in plan.jobs}
        self._queries = {job: start() for job, start in self._ways.items()}
        self._starts = dict.fromkeys(self._ways, 1)

    @property
    def rows(self) -> int:
        """Messages that were written to the table raw since the start."""
        return self._tables.rows("raw")

    # The queries

    def _raw(self) -> StreamingQuery:
        plan = self._plan
        if plan.landed is not None:
            frame = self._files(plan.landed)
        else:
            ours = {"localStorage": str(plan.out / "log"), "maxOffsetsPerTrigger": str(_ROWS)}
            told = options.with_defaults(plan.source, ours)
            frame = self._spark.readStream.format("mqtt").options(**told).load()
        write = sinks.into((raw.raw, self._sinks("raw")), checkpoint=self._checkpoint("raw"))
        return self._start("raw", frame, write)

    def _measurements(self) -> StreamingQuery:
        frame = self._follow("raw", _MESSAGE)
        packs = measurements.once(
            measurements.packs(frame, identity=self._plan.identity, mapping=self._mapping)
        )
        write = sinks.into(
            (self._in_time, self._sinks("measurements")),
            (self._out_of_time, self._rare("out_of_time")),
            (measurements.dead, self._sinks("dead_letters")),
            checkpoint=self._checkpoint("measurements"),
        )
        return self._start("measurements", packs, write)

    def _in_time(self, packs: DataFrame) -> DataFrame:
        return measurements.in_time(measurements.values(packs), self._plan.bounds)

    def _out_of_time(self, packs: DataFrame) -> DataFrame:
        return measurements.out_of_time(measurements.values(packs), self._plan.bounds)

    def _rare(self, name: str) -> list[sinks.Sink]:
        """The sinks of a table that seldom gets a row; the first one reports them."""

        def notice(count: int, row: dict[str, object]) -> None:
            example = f"such as {row['device']}: {row['time']}, received {row['received']}"
            self.notices.add(_OUT_OF_TIME, count, example)

        first, *more = self._sinks(name)
        return [Rare(first, notice), *(Rare(sink, lambda *_: None) for sink in more)]

    def _windows(self) -> StreamingQuery:
        # Of no message there is the schema, too.
        none = self._spark.createDataFrame([], _MESSAGE)
        schema = measurements.measurements(none).schema
        values = self._follow("measurements", schema)
        write = open_windows(
            self._plan.out / "state" / "windows", self._sinks("windows"),
            too_late=lambda count, device: self.notices.add(_TOO_LATE, count, f"such as {device}"),
            checkpoint=self._checkpoint("windows"),
        )  # fmt: skip
        return self._start("windows", values, write)

    def _start(
        self, name: str, frame: DataFrame, write: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        return (
            frame.writeStream.queryName(name)
            .foreachBatch(write)
            .option("checkpointLocation", str(self._checkpoint(name)))
            .trigger(processingTime=f"{round(self._plan.trigger * 1000)} milliseconds")
            .start()
        )

    def _checkpoint(self, name: str) -> Path:
        return self._plan.out / "checkpoints" / name

    def _files(self, folder: str) -> DataFrame:
        clean = self._plan.clean
        reader = (
            self._spark.readStream.schema(_LANDED)
            .option("maxBytesPerTrigger", _BYTES)
            .option("maxFileAge", _REMOVED if clean else _FOREVER)
            .option("cleanSource", "delete" if clean else "off")
        )
        return reader.parquet(folder)

    def _follow(self, name: str, schema: str | StructType) -> DataFrame:
        return self._tables.follow(name, schema)

    def _sinks(self, name: str) -> list[sinks.Sink]:
        return self._tables.sinks(name)

    # While they run

    def look(self) -> None:
        """Notes the progress of the queries, and makes the health tables when they are due.
        RunError when a query has ended."""
        for job, query in self._queries.items():
            self._note(query)
            if not query.isActive:
                error = query.exception()
                told = "it was stopped" if error is None else reason(error)
                if _SLOW not in told or self._starts[job] >= _STARTS:
                    raise RunError(f"the query {job} has ended: {told}")
                self._queries[job] = self._ways[job]()
                self._starts[job] += 1
        begun = time.monotonic()
        if begun > self._due:
            self.health()
            took = time.monotonic() - begun
            self._due = begun + max(self._plan.health_every, _HEALTH_SHARE * took)

    def _note(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            known = json.loads(progress.json)
            # A query that begins tells of its next batch before there is one.
            begun = "addBatch" in known["durationMs"]
            if begun and known["batchId"] > self._seen.get(known["name"], -1):
                self._seen[known["name"]] = known["batchId"]
                known["triggerMs"] = round(self._plan.trigger * 1000)
                self._progress.write(json.dumps(known))
                for state in known["stateOperators"]:
                    self.late[known["name"]] += state["numRowsDroppedByWatermark"]

    def health(self) -> None:
        """Makes the tables health, devices and gaps anew, from what is in raw."""
        if "health" not in self._plan.jobs:
            return
        frame = self._tables.now("raw", _MESSAGE)
        if frame is None:
            return
        with health.Health(frame, identity=self._plan.identity, mapping=self._mapping) as known:
            for name, table in (
                ("health", known.boots),
                ("devices", known.devices),
                ("gaps", known.gaps),
            ):
                self._tables.replace(name, table())

    def finish(self) -> None:
        """Works off what is there: first what came from the broker, for `_DRAIN` s at the most as
        it may send on, then what is made of it."""
        end = time.monotonic() + _DRAIN
        for job in self._queries:
            if job == "raw":
                idle = 0
                while idle < 2 and time.monotonic() < end:
                    self.look()
                    told = self._queries[job].status
                    busy = told["isDataAvailable"] or told["isTriggerActive"]
                    idle = 0 if busy else idle + 1
                    time.sleep(_LOOK + (0 if busy else self._plan.trigger))
                self.look()
                self._queries[job].stop()
            else:
                self._queries[job].processAllAvailable()
                self._note(self._queries[job])
        self.health()

    def stop(self) -> None:
        """Stops the queries; a batch that is under way is done again by the next run."""
        for query in self._queries.values():
            query.stop()
        self._progress.close()


class _Ending:
    """Whether a signal has asked for the end; a second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.listen()

    def listen(self) -> None:
        """Spark has a handler of its own for SIGINT, from its start on: call this again then."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told)

    def _told(self, *_: object) -> None:
        if self.asked.is_set():
            raise KeyboardInterrupt
        self.asked.set()


def main(plan: Plan, *, master: str | None, conf: dict[str, str], seconds: float | None) -> int:
    """Runs the plan for so many seconds, or until SIGTERM or SIGINT, and says how it goes.

    At the end what came is worked off, or with a second signal left to the next run. RunError when
    a query fails: what it had not finished is done by the next run.
    """
    where = f"{plan.url or plan.out}/raw"
    if plan.url is not None:
        try:
            check(plan.url)
        except TablesError as error:
            raise RunError(str(error)) from error
    ending = _Ending()
    console = Console(stderr=True)
    with console.status("starting Spark ...") as status:
        spark = session(master, "flatmq pipeline", **conf)
        ending.listen()
        try:
            running = Run(spark, plan)
            status.update("waiting for messages ...")
            since = time.monotonic()
            while not ending.asked.is_set():
                passed = time.monotonic() - since
                if seconds is not None and passed > seconds:
                    break
                running.look()
                for line in running.notices.lines():
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
                status.update(f"{running.rows:,} messages in {where} after {passed:,.0f} s")
                ending.asked.wait(_LOOK)
            status.update("working off what is there ...")
            running.finish()
            running.stop()
        except PySparkException as error:
            raise RunError(reason(error)) from error
        except KeyboardInterrupt:
            console.print("ended at once: what was not finished is done by the next run")
            return 130
        finally:
            spark.stop()
    console.print(f"{running.rows:,} messages more in {where}")
    for text, count in running.notices.total.items():
        console.print(f"in all {count:,} {text}", markup=False, highlight=False, soft_wrap=True)
    for table, told in _LATE_FOR.items():
        if running.late[table]:
            console.print(f"{running.late[table]:,} {told}", highlight=False)
    return 0


def reason(error: PySparkException) -> str:
    """What a Spark error says, without the traces of Python and of Java; in a last line what
    caused it, innermost."""
    lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    known = [line for line in lines if _OWN.match(line)]
    if known:
        return known[-1]
    said = "\n".join(lines[:3])
    cause = _cause(error)
    return said if cause in said else f"{said}\ncaused by {cause}"


def _cause(error: BaseException) -> str:
    """The innermost cause in a line; empty where none is told."""
    texts: list[str] = []
    at: BaseException | None = error
    while at is not None:
        trace = getattr(at, "_stackTrace", "")  # private access: PySpark offers no other way
        texts += [str(at), str(trace)]
        at = getattr(at, "_cause", None)  # private access: PySpark offers no other way
    lines = [line for text in texts for line in text.splitlines() if line]
    found = [n for n, line in enumerate(lines) if line.startswith(_CAUSED)]
    if not found:
        return ""
    cause = lines[found[-1]].removeprefix(_CAUSED)
    if cause.endswith(_TRACE):  # of Python, whose error is in the line that ends its trace
        rest = lines[found[-1] + 1 :]
        cause = next((line for line in rest if not line[0].isspace()), cause)
    return cause
