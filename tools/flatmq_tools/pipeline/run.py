"""Turn messages into tables in one folder until a signal ends it: `flatmq pipeline run`.

    OUT/raw  measurements  dead_letters  windows      grow by a folder `day=DAY/batch=N` per batch,
                                                      whose small files are merged after a while
    OUT/out_of_time                                   as these, for batches that have such readings
    OUT/health  devices  gaps                         are written again every minute, from state
    OUT/delta/...                                     the same as Delta tables, with --delta
    OUT/iceberg/...                                   those that grow, as Iceberg, with --iceberg
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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from prometheus_client.metrics_core import Metric
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from rich.console import Console

from . import options, room, service, sinks
from .in_use import InUse, InUseError
from .jobs import columns, measurements, raw
from .mapping.births import Births
from .measured import RunNumbers
from .merging import Merging
from .metrics import MetricsError, served
from .missing import NOTICE, Missing
from .notices import Notices
from .open_windows import open_windows
from .progress import Progress
from .rare import Rare
from .session import SessionError, session
from .state.known import Known
from .state.once import Once
from .state.store import StateError
from .tables import Tables, TablesError, check

JOBS = ("raw", "measurements", "windows", "health")
_TABLES = {
    "raw": ("raw",),
    "measurements": ("measurements", "out_of_time", "dead_letters"),
    "windows": ("windows",),
}
"""The tables that a query writes."""
_LOOK = 0.25  # s between two looks at the queries
_DRAIN = 60.0  # s, without a signal
_SOON = 1.0  # s: after a signal no longer interval between two batches is waited for
_OWN = re.compile(r"flatmq_tools\.[\w.]+: ")  # an error of ours, in a trace
# Spark gives the process of a source 10 s to start, and has no setting for that: on a busy machine
# it is too short. It has done nothing by then.
_SLOW = "Python worker failed to connect back"
_RETRY = 5.0  # s from an error of a full disk to the first try to go on,
_RETRY_MOST = 60.0  # and at most, as it is doubled if a try fails
_OUT_OF_TIME = (
    "readings have a time too far from their arrival: they are in the table out_of_time, and not "
    "in measurements; --ahead and --behind set how far is too far"
)
_TOO_LATE = (
    "values are more than ten minutes older than the newest of their device, or came after it had "
    "been silent for an hour: they are in measurements, and in no window"
)
_UNSURE = (
    "packs may be copies and are in measurements: their boots lost numbers in more than a "
    "thousand places, or number their packs at random"
)
_CAUSED = "Caused by: "  # a line of a trace of Java
_TRACE = "Traceback (most recent call last):"
# Maximum of a batch of raw: what has come while Spark was away is worked off in several, as a
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
    """The settings of a run."""

    out: Path
    """The folder of all tables; with `url`, of all but them: the log, the checkpoints."""
    source: dict[str, str] = field(default_factory=dict)
    """Options of format("mqtt"); localStorage is OUT/log unless it says otherwise."""
    landed: str | None = None
    """Instead of the broker: the folder or URL where an ingest lands files."""
    clean: bool = False
    """Remove landed files once they are in the table raw."""
    jobs: Sequence[str] = JOBS
    delta: bool = False
    """Delta tables beside those of Parquet."""
    trigger: float = 1.0
    """s between two batches"""
    health_every: float = 60.0
    """s between two refreshes of the health tables, and more if one takes more than a tenth of
    that; they are refreshed at the end in any case."""
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
    keep: float | None = None
    """s after their end for which days are kept; None: for ever."""


class Run:
    """The queries of a plan, running in a session."""

    def __init__(
        self, spark: SparkSession, plan: Plan, say: Callable[[str], None] = lambda text: None
    ) -> None:
        """`say` takes a line for people."""
        unknown = set(plan.jobs) - set(JOBS)
        if unknown:
            raise RunError(
                f"{', '.join(sorted(unknown))}: no such job; there are {', '.join(JOBS)}"
            )
        self._spark = spark
        self._plan = plan
        self._mapping = measurements.mapped(plan.mapping, plan.identity)
        self._births = Births(plan.out / "state" / "births.json")
        self.say = say
        self.where = f"{plan.url or plan.out}/raw"
        """Where the table raw is."""
        self._seen: dict[str, int] = {}  # the last batch of each query that was noted
        self.notices = Notices()
        """What people are to know while it runs."""
        self.numbers = RunNumbers()
        """What the metrics are made of."""
        self.paused: str = ""
        """Why nothing is written at the moment: the error of a disk that is full; else empty."""
        plan.out.mkdir(parents=True, exist_ok=True)
        self._progress = Progress(plan.out)
        self._tables = Tables(spark, plan.out, plan.url, plan.delta, plan.iceberg, plan.catalog)
        ways = {"raw": self._raw, "measurements": self._measurements, "windows": self._windows}
        self._ways = {job: start for job, start in ways.items() if job in plan.jobs}
        if "health" in plan.jobs and "measurements" not in plan.jobs:
            self._ways["health"] = self._packs
        self._known = self._fleet()
        self._merging = Merging(
            self._tables, say, keep=plan.keep, checkpoints=plan.out / "checkpoints"
        )
        self._gates = {job: service.Gate() for job in self._ways}
        self._waiting: dict[str, float] = {}  # queries that ended on a full disk: the next try,
        self._tried: dict[str, float] = {}  # those of them that were started again, when,
        self._retry = _RETRY  # and s between two tries
        self._slow: dict[str, float] = {}  # queries whose worker did not start in time, since when
        self._queries = {job: start() for job, start in self._ways.items()}

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
        write = sinks.into(
            (self._in_time, self._measured()),
            (self._out_of_time, self._rare("out_of_time")),
            (measurements.dead, self._sinks("dead_letters")),
            checkpoint=self._checkpoint("measurements"),
        )
        return self._start("measurements", frame, self._without_copies("measurements", write))

    def _packs(self) -> StreamingQuery:
        """Start the query for the health tables without the table measurements."""
        write = self._without_copies("health", lambda packs, batch: None)
        return self._start("health", self._follow("raw", _MESSAGE), write)

    def _fleet(self) -> Known:
        plan = self._plan
        name = "measurements" if "measurements" in plan.jobs else "health"
        return Known(
            plan.out / "state" / f"{name}.sqlite", plan.out, self._tables.delta,
            plan.health_every, unsure=lambda count: self.notices.add(_UNSURE, count),
            bounds=plan.bounds,
        )  # fmt: skip

    def _without_copies(self, name: str, write: sinks.Write) -> Once:
        """Return a writer that writes the packs of messages, each once."""
        parse = partial(
            measurements.packs, identity=self._plan.identity, mapping=self._mapping,
            births=self._births,
        )  # fmt: skip
        table = self._tables.of("raw")
        return self._known.once(table, self._checkpoint(name), parse, write)

    def _in_time(self, packs: DataFrame) -> DataFrame:
        return measurements.in_time(measurements.values(packs), self._plan.bounds)

    def _out_of_time(self, packs: DataFrame) -> DataFrame:
        return measurements.out_of_time(measurements.values(packs), self._plan.bounds)

    def _measured(self) -> list[sinks.Sink]:
        first, *more = self._sinks("measurements")
        return [Missing(first, partial(self.notices.add, NOTICE)), *more]

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
            .foreachBatch(self._gates[name].through(write))
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
        """Note the progress of the queries, and make the health tables when they are due.

        A query that ended because a disk is full is started again once there is room.
        Raises RunError when a query has ended for another reason.
        """
        for job, query in self._queries.items():
            if job in self._waiting:
                continue
            self._note(query)
            if not query.isActive:
                self._ended(job, query)
        self._resume()
        if "health" in self._plan.jobs and not self.paused:
            self._on_a_full_disk(self._known.look)
        self._on_a_full_disk(lambda: self._merging.look(bool(self.paused)))

    def _ended(self, job: str, query: StreamingQuery) -> None:
        """Handle a query that has ended: start it again, now or later, or raise RunError."""
        error = query.exception()
        told = "it was stopped" if error is None else reason(error)
        if error is not None and room.is_full(_everything(error)):
            self._pause(error)
            self._waiting[job] = time.monotonic() + self._retry
            if self._tried.pop(job, None) is not None:  # there was room, but not enough
                self._retry = min(2 * self._retry, _RETRY_MOST)
        elif _SLOW in told and self._slow_for(job) < service.START:
            self.say(f"the query {job} did not start within 10 s, and is started again")
            self._queries[job] = self._ways[job]()
        else:
            raise RunError(f"the query {job} has ended: {told}")

    def _slow_for(self, job: str) -> float:
        """Return for how many seconds a query has not started; 0 the first time."""
        now = time.monotonic()
        return now - self._slow.setdefault(job, now)

    def _pause(self, error: BaseException) -> None:
        if not self.paused:
            self.paused = _full(error)
            self.say(f"paused, as a disk is full: {self.paused}")

    def _resume(self) -> None:
        """Start again what ended on a full disk, if it is time and there is room.

        End the pause once all of that is at work.
        """
        now = time.monotonic()
        due = [job for job, at in self._waiting.items() if now >= at]
        if due and room.has_room(self._folders()):
            for job in due:
                del self._waiting[job]
                self._tried[job] = now
                self._queries[job] = self._ways[job]()
        elif due:
            self._waiting.update(dict.fromkeys(due, now + self._retry))
        for some in (self._tried, self._slow):
            for job in [job for job in some if self._works(job)]:
                del some[job]
        idle = not self._waiting and not self._tried
        if self.paused and idle and room.has_room(self._folders()):
            self.paused = ""
            self._retry = _RETRY
            self.say("the disk has room again: going on")

    def _works(self, job: str) -> bool:
        """Return whether a query has done a batch since its start, or found nothing to do."""
        query = self._queries[job]
        if not query.isActive:
            return False
        done = any("addBatch" in json.loads(p.json)["durationMs"] for p in query.recentProgress)
        return done or str(query.status["message"]).startswith("Waiting for")

    def _folders(self) -> list[Path]:
        """The folders that must take something before a query is started again."""
        return [self._plan.out, Path(tempfile.gettempdir())]

    def up(self) -> bool:
        """Return whether all queries have started."""
        return all(
            query.isActive and "nitializing" not in str(query.status["message"])
            for query in self._queries.values()
        )

    def _note(self, query: StreamingQuery) -> None:
        known = None
        for progress in query.recentProgress:
            known = json.loads(progress.json)
            # A new query reports its next batch before there is one.
            begun = "addBatch" in known["durationMs"]
            if begun and known["batchId"] > self._seen.get(known["name"], -1):
                known["triggerMs"] = round(self._plan.trigger * 1000)
                try:
                    self._progress.write(json.dumps(known))
                except OSError as error:
                    if not room.is_full(error):
                        raise
                    self._pause(error)
                    return  # Spark keeps the last hundred: it is noted when there is room
                self._seen[known["name"]] = known["batchId"]
                self.numbers.batch(known)
                for table in _TABLES.get(known["name"], ()):
                    self.numbers.rows[table] = self._tables.rows(table)
        if known is not None and known["name"] == "raw":
            self.numbers.look(known)

    def health(self) -> None:
        """Write the tables health, devices and gaps as they are now."""
        if "health" in self._plan.jobs:
            self._on_a_full_disk(self._known.refresh)

    def _on_a_full_disk(self, write: Callable[[], None]) -> None:
        """Write what is beside the queries; pause if the disk is full."""
        try:
            write()
        except StateError as error:
            raise RunError(str(error)) from error
        except OSError as error:
            if not room.is_full(error):
                raise
            self._pause(error)

    def metrics(self) -> Iterator[Metric]:
        """Return the numbers of this run, as Prometheus asks for them."""
        log = Path(self._plan.source.get("localStorage", self._plan.out / "log"))
        self.numbers.devices(self._plan.out / "devices")
        late = {"windows": self.notices.total[_TOO_LATE]}
        return self.numbers.of_run(late, log, bool(self.paused))

    def finish(self, past: Callable[[float], bool] = lambda seconds: False) -> None:
        """Work off what is there: what comes from the broker, then what is made of it.

        The broker gets at most `_DRAIN` s, as it may send on.

        past  says whether so many seconds have passed since a signal; what takes longer than
              service.DRAIN, FOLLOW, STOP and HEALTH is then left to the next run
        """
        end = time.monotonic() + _DRAIN
        for job in self._queries:
            if job == "raw":
                idle = 0
                while idle < 2 and time.monotonic() < end and not past(service.DRAIN):
                    self.look()
                    told = self._queries[job].status
                    busy = told["isDataAvailable"] or told["isTriggerActive"]
                    idle = 0 if busy else idle + 1
                    trigger = min(self._plan.trigger, _SOON) if past(0) else self._plan.trigger
                    time.sleep(_LOOK + (0 if busy else trigger))
                self.look()
                self._halt(job, lambda: past(service.FOLLOW))
            else:
                query = self._queries[job]
                try:
                    service.within(query.processAllAvailable, lambda: past(service.FOLLOW))
                except PySparkException as error:
                    if _SLOW not in reason(error) and not room.is_full(_everything(error)):
                        raise
                self._note(query)
        if not past(service.STOP):
            service.within(self.health, lambda: past(service.HEALTH))

    def _halt(self, job: str, over: Callable[[], bool]) -> None:
        """Stop a query after the batch that it is writing, or within it if that takes too long."""
        self._gates[job].close(over)
        self._note(self._queries[job])
        self._queries[job].stop()

    def stop(self) -> None:
        """Stop the queries; a batch that is under way is done again by the next run."""
        for query in self._queries.values():
            query.stop()
        self._merging.close()
        self._known.close()
        self._progress.close()

    def halt(self, past: Callable[[float], bool]) -> None:
        """Stop as `stop` does, but let a batch finish first.

        It may take until service.STOP s after a signal.
        """
        for gate in self._gates.values():
            gate.close(lambda: past(service.STOP))
        self.stop()


def main(
    plan: Plan,
    *,
    master: str | None,
    conf: dict[str, str],
    seconds: float | None,
    metrics_port: tuple[str, int] | None = None,
) -> int:
    """Run the plan for so many seconds, or until SIGTERM or SIGINT, and say how it goes.

    At the end what came is worked off; after a signal for as long as it ends within
    service.LIMIT s; with a second signal it is left to the next run. `metrics_port` is the address
    and port of metrics for Prometheus, if they are served. RunError if a query fails or Java dies:
    what was not finished is done by the next run.
    """
    console = Console(stderr=True)

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    _check(plan)
    service.quiet()
    begun = time.monotonic()
    found: list[Run] = []
    try:
        with (
            InUse(plan.out),
            served(metrics_port, lambda: found[0].metrics() if found else ()),
            service.Ending(say) as ending,
            console.status("starting Spark ...") as status,
        ):
            say(f"starting Spark; on a busy machine that takes up to {service.START:,.0f} s")
            # What Java would log is in the errors that are raised here.
            spark = session(master, "flatmq pipeline", **{"spark.log.level": "OFF", **conf})
            ending.listen()
            java = service.Java()
            try:
                running = Run(spark, plan, say)
                found.append(running)
                ending.started()
                _watch(running, java, ending, begun, seconds, status.update)
                status.update("working off what is there ...")
                if ending.asked.is_set():
                    say(f"ending, within {service.LIMIT:,.0f} s; the next run does the rest")
                if not running.paused:
                    running.finish(ending.past)
                running.halt(ending.past)
            except (PySparkException, Py4JError, OSError) as error:
                java.explain()
                if not isinstance(error, PySparkException):
                    raise
                raise RunError(reason(error)) from error
            except RunError:
                java.explain()
                raise
            except KeyboardInterrupt:
                say("ended at once: what was not finished is done by the next run")
                return 130
            finally:
                if java.ended() is None:
                    spark.stop()
    except (InUseError, service.ServiceError, MetricsError, SessionError) as error:
        raise RunError(str(error)) from error
    say(f"{running.rows:,} messages more in {running.where}")
    for text, count in running.notices.total.items():
        say(f"in all {count:,} {text}")
    return 0


def _watch(
    running: Run,
    java: service.Java,
    ending: service.Ending,
    begun: float,
    seconds: float | None,
    show: Callable[[str], None],
) -> None:
    """Watch over a run for a number of seconds, or until a signal.

    `begun` is when it was started, and `show` receives the status.
    """
    up = False
    since = time.monotonic()
    while not ending.asked.is_set():
        passed = time.monotonic() - since
        if seconds is not None and passed > seconds:
            return
        java.check()
        running.look()
        for line in running.notices.lines():
            running.say(line)
        if not up and running.up():
            up = True
            running.say(f"started after {time.monotonic() - begun:,.0f} s")
        rows = f"{running.rows:,} messages in {running.where} after {passed:,.0f} s"
        show(running.paused or rows)
        ending.asked.wait(_LOOK)


def _check(plan: Plan) -> None:
    """Raise RunError if a folder of the plan cannot be used, before Spark is started for it."""
    folder = plan.out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if not room.is_full(error):
            raise RunError(f"OUT must be a folder to write to: {folder}: {error.strerror}") from (
                error
            )
    if plan.url is not None:
        try:
            check(plan.url)
        except TablesError as error:
            raise RunError(str(error)) from error
    if plan.landed is not None and "://" not in plan.landed and not Path(plan.landed).is_dir():
        raise RunError(f"--landed must be the folder of an ingest: {plan.landed}: no such folder")


def _full(error: BaseException) -> str:
    """The line of an error that says which disk is full."""
    lines = [line.strip() for line in _everything(error).splitlines()]
    return next(line for line in lines if room.is_full(line)) if lines else str(error)


def _everything(error: BaseException) -> str:
    """Return the texts of an error and of everything that has caused it."""
    if isinstance(error, OSError) and error.errno is not None:
        return str(error)
    return "\n".join(_texts(error))


def reason(error: PySparkException) -> str:
    """Return what a Spark error says, without the traces of Python and of Java.

    A last line has what caused it, innermost.
    """
    lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    known = [line for line in lines if _OWN.match(line)]
    if known:
        return known[-1]
    said = "\n".join(lines[:3])
    cause = _cause(error)
    return said if cause in said else f"{said}\ncaused by {cause}"


def _cause(error: BaseException) -> str:
    """Return the innermost cause in one line; empty if the error has none."""
    lines = [line for text in _texts(error) for line in text.splitlines() if line]
    found = [n for n, line in enumerate(lines) if line.startswith(_CAUSED)]
    if not found:
        return ""
    cause = lines[found[-1]].removeprefix(_CAUSED)
    if cause.endswith(_TRACE):  # of Python, whose error is in the line that ends its trace
        rest = lines[found[-1] + 1 :]
        cause = next((line for line in rest if not line[0].isspace()), cause)
    return cause


def _texts(error: BaseException) -> list[str]:
    """The texts and traces of an error, and of each that has caused it."""
    texts: list[str] = []
    at: BaseException | None = error
    while at is not None:
        trace = getattr(at, "_stackTrace", "")  # PySpark offers no other way
        texts += [str(at), str(trace)]
        at = getattr(at, "_cause", None)  # PySpark offers no other way
    return texts
