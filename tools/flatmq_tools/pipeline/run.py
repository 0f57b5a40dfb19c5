"""Turn messages into tables in one folder until a signal ends it: `flatmq pipeline run`.

    OUT/raw  measurements  dead_letters  windows      Delta tables that grow with each batch
    OUT/out_of_time                                   one for readings whose time is far off
    OUT/health  devices  gaps                         Delta tables that are written again every
                                                      minute, from state
    OUT/log                                           what was received and is not in raw yet
    OUT/checkpoints  state  progress.jsonl            where each query is, and how it does

OUT may be a URL, such as that of an object store: the tables are there then, and the rest is in a
folder of this machine.

The table raw is written by the ingest: the one inside a run that has a broker, or any number of
`flatmq pipeline ingest`. The others are made of raw and of measurements. So each of them can be
removed, with its checkpoint and its state, and is made again from what it is made of.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from prometheus_client.metrics_core import Metric
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.text import Text

from ..plain import PlainConsole
from . import checkpoints, delta_batches, landing, progress, room, service, tables
from .delta import Delta
from .in_use import lock
from .jobs.limits import Bounds
from .jobs.parsing import Reads, mapped
from .maintenance import Maintenance
from .mapping.births import Births
from .metrics import RunNumbers, of_ingest, served
from .notices import Notices, say
from .open_windows import numbers_of, open_windows
from .session import session
from .state.once import Once
from .state.snapshots import Known

JOBS = ("measurements", "windows", "health")
_LOOK = 0.25  # s between two looks at the queries
_DRAIN = 60.0  # s, without a signal
_OFTEN = 0.1  # s between two commits of raw, at least
_SOON = 1.0  # s: after a signal no longer interval between two batches is waited for
_LONG = 600.0  # s in one batch, after which it is reported, and after twice as long again
_OWN = re.compile(r"flatmq_tools\.[\w.]+: ")  # an error of ours, in a trace
_PAUSE = 5.0  # s before a job that has ended is started again,
_PAUSE_MOST = 600.0  # and at most, as it is doubled each time;
_FULL_MOST = 60.0  # at most, if a disk was full
_TOO_LATE = (
    "values are more than ten minutes older than the newest of their device, or came after it had "
    "been silent for an hour: they are in measurements, and in no window"
)
_CAUSED = "Caused by: "  # a line of a trace of Java
_TRACE = "Traceback (most recent call last):"


class RunError(RuntimeError):
    """A query has failed, or cannot be started; the text says which, and why."""


@dataclass
class Plan:
    """The settings of a run."""

    out: Path
    """The folder of all tables; with `url`, of all but them: the log, the checkpoints."""
    source: dict[str, str] = field(default_factory=dict)
    """Options of format("mqtt") to receive from a broker; localStorage is OUT/log unless it says
    otherwise. Empty: others write the table raw."""
    jobs: Sequence[str] = JOBS
    trigger: float = 1.0
    """s between two batches"""
    health_every: float = 60.0
    """s between two refreshes of the health tables, and more if one takes more than a tenth of
    that; they are refreshed at the end in any case."""
    identity: str = "topic"
    """What names the device of a pack: see `parsing.Reads`."""
    mapping: Sequence[str] = ()
    """Mapping files and shipped mappings, in their order: see `parsing.mapped`."""
    bounds: Bounds = field(default_factory=Bounds)
    """How far the time of a reading may be from its arrival."""
    url: str | None = None
    """Where the tables are, instead of in `out`: the URL of a folder in an object store."""
    keep: float | None = None
    """s after their end for which days are kept; None: for ever."""


class _Job:
    """A job of a run: its query, and how that does. `start` begins one."""

    def __init__(self, name: str, start: Callable[[_Job], StreamingQuery]) -> None:
        self.name = name
        self._start = start
        self.inside = threading.Lock()
        """Held while a batch is written."""
        self.closed = False
        """No batch may begin any more: a query is stopped between two of them."""
        self.query: StreamingQuery
        """There is none until it could be started once."""
        self.due: float | None = None  # it has ended, or did not start, and is started then
        self.error = ""  # why it has failed, until it works again,
        self.full = False  # or whether a disk was full
        self.pause = _PAUSE  # s before the next try
        self._last: int | None = None  # the batch that it has done last,
        self._since = 0.0  # since when it is that one, or nothing is to be done,
        self._patience = _LONG  # and s until that is reported

    def begin(self) -> None:
        """Start the query, also again."""
        self.due = None
        self._since, self._patience = time.monotonic(), _LONG
        self.query = self._start(self)

    def works(self) -> bool:
        """Return whether it has done a batch since its start, or found nothing to do."""
        if self.due is not None or not self.query.isActive:
            return False
        done = any(
            "addBatch" in json.loads(p.json)["durationMs"] for p in self.query.recentProgress
        )
        return done or str(self.query.status["message"]).startswith("Waiting for")

    def hangs(self, last: int | None) -> str:
        """Return a line if it has been at one batch for long; empty if not, or if it was said.

        last  the batch that it has done last
        """
        now = time.monotonic()
        if last != self._last or not self.query.status["isTriggerActive"]:
            self._last, self._since, self._patience = last, now, _LONG
        if now - self._since < self._patience:
            return ""
        self._patience *= 2
        return (
            f"the job {self.name} has been at one batch for {(now - self._since) / 60:,.0f} min, "
            "and its tables wait; if it does not end, start the run again, which does it again"
        )


class Run:
    """The queries of a plan, running in a session."""

    def __init__(
        self, spark: SparkSession, plan: Plan, say: Callable[[str], None] = lambda text: None
    ) -> None:
        """`say` takes a line for people."""
        self._spark = spark
        self._plan = plan
        self._mapping = mapped(plan.mapping, plan.identity)
        self._births = Births(plan.out / "state" / "births.json")
        self.say = say
        self._seen: dict[str, int] = {}  # the last batch of each query that was noted
        self._came: dict[tuple[str, int], int] = {}  # rows in batches that are not noted yet
        self.notices = Notices()
        """What people are to know while it runs."""
        self.numbers = RunNumbers()
        """What the metrics are made of."""
        self.paused: str = ""
        """Why nothing is written at the moment: the error of a disk that is full; else empty."""
        plan.out.mkdir(parents=True, exist_ok=True)
        self._out = plan.url or str(plan.out.absolute())
        self._sinks = {
            table: Delta(tables.of(self._out, table), by_day=tables.BY_DAY[table])
            for made in tables.MADE.values() for table in made
        }  # fmt: skip
        self.where = tables.of(self._out, "raw")
        """Where the table raw is."""
        reads_raw = "measurements" if "measurements" in plan.jobs else "health"
        self._jobs: list[_Job] = []
        if reads_raw in plan.jobs:
            self._jobs.append(_Job(reads_raw, self._packs))
        if "windows" in plan.jobs:
            self._jobs.append(_Job("windows", self._windows))
        file = plan.out / "state" / f"{reads_raw}.sqlite"
        self._known = Known(file, self._out, plan.health_every)
        self._maintenance = Maintenance(self._out, plan.out / "checkpoints", say, plan.keep)
        self._beside: dict[str, str] = {}  # what fails beside the queries, and why
        self._read = 0  # messages that were read from raw
        self._receiving: landing.Service | None = None
        if plan.source:
            self._receiving = landing.started(
                plan.source, plan.out / "log", self._out, max(plan.trigger, _OFTEN), say
            )
        try:
            for job in self._jobs:
                self._begin(job)
        except BaseException:
            if self._receiving is not None:
                self._receiving.close()
            raise

    @property
    def rows(self) -> int:
        """Messages that came since the start: written to the table raw, or read from it."""
        return self._read if self._receiving is None else self._receiving.landing.messages

    # The queries

    def _packs(self, job: _Job) -> StreamingQuery:
        """Start the query for a job that reads raw: measurements, or the health tables alone."""
        once = Once(
            self._known.file, self.where, self._checkpoint(job.name).absolute(),
            {table: self._sinks[table] for table in tables.MADE.get(job.name, ())},
            Reads(self._plan.identity, mapping=self._mapping), self._births, self._plan.bounds,
            say=self.notices.add,
        )  # fmt: skip
        return self._start(job, "raw", self._known.writes(once))

    def _windows(self, job: _Job) -> StreamingQuery:
        write = open_windows(
            self._plan.out / "state" / "windows.db", self._sinks["windows"],
            numbers_of(tables.of(self._out, "measurements")),
            lambda count, device: self.notices.add(_TOO_LATE, count, f"such as {device}"),
            self._checkpoint("windows"),
        )  # fmt: skip
        return self._start(job, "measurements", write)

    def _start(
        self, job: _Job, table: str, write: Callable[[DataFrame, int], int]
    ) -> StreamingQuery:
        def counted(batch: DataFrame, number: int) -> None:
            with job.inside:
                if job.closed:
                    raise RunError(f"batch {number} is left to the next run")
                self._came[job.name, number] = write(batch, number)

        checkpoint = self._checkpoint(job.name)
        checkpoints.mend(checkpoint)
        return (
            delta_batches.units(self._spark, tables.of(self._out, table))
            .writeStream.queryName(job.name)
            .foreachBatch(counted)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{round(self._plan.trigger * 1000)} milliseconds")
            .start()
        )

    def _checkpoint(self, name: str) -> Path:
        return self._plan.out / "checkpoints" / name

    # While they run

    def look(self) -> None:
        """Note the progress of the queries, and make the health tables when they are due.

        A query that ended because a disk is full is started again once there is room; one that
        has failed, after a pause. Raises what has ended the receiving.
        """
        if self._receiving is not None:
            self._receiving.check()
        for job in self._jobs:
            if job.due is None:
                self._note(job.query)
                if not job.query.isActive:
                    self._ended(job, job.query.exception())
                elif text := job.hangs(self._seen.get(job.name)):
                    self.say(text)
        self._resume()
        if "health" in self._plan.jobs and not self.paused:
            self._aside("health", self._known.look)
        self._aside("maintenance", lambda: self._maintenance.look(bool(self.paused)))

    def _ended(self, job: _Job, error: Exception | None) -> None:
        """Handle a query that has ended, or could not be started: start it again, now or later."""
        why = "it was stopped" if error is None else reason(error)
        full = "" if error is None else _full(error)
        job.full = bool(full)
        if full:
            self._pause(full)
        else:
            job.error = why
            self.say(
                f"the job {job.name} has failed, and is started again in {job.pause:,.0f} s; the "
                f"others go on: {why}"
            )
        job.due = time.monotonic() + job.pause
        job.pause = min(2 * job.pause, _FULL_MOST if job.full else _PAUSE_MOST)

    def _begin(self, job: _Job) -> None:
        try:
            job.begin()
        except Py4JNetworkError:  # Java has ended
            raise
        except Exception as error:  # whatever it is, the other jobs go on
            self._ended(job, error)

    def _pause(self, full: str) -> None:
        if not self.paused:
            self.paused = full
            self.say(f"paused, as a disk is full: {self.paused}")

    def _resume(self) -> None:
        """Start again what ended on a full disk, if it is time and there is room.

        End the pause once all of that is at work.
        """
        now = time.monotonic()
        due = [job for job in self._jobs if job.due is not None and now >= job.due]
        has_room = due and room.has_room(self._folders())
        for job in due:
            if has_room:
                self._begin(job)
            else:
                job.due = now + _PAUSE
        for job in self._jobs:
            if job.works():
                if job.error:
                    self.say(f"the job {job.name} works again")
                job.error, job.full, job.pause = "", False, _PAUSE
        idle = not any(job.full for job in self._jobs)
        if self.paused and idle and room.has_room(self._folders()):
            self.paused = ""
            self.say("the disk has room again: going on")

    def _folders(self) -> list[Path]:
        """The folders that must take something before a query is started again."""
        return [self._plan.out, Path(tempfile.gettempdir())]

    @property
    def failed(self) -> str:
        """The jobs that have failed since they last worked, and why; empty if there is none."""
        every = {job.name: job.error for job in self._jobs if job.error} | self._beside
        return "; ".join(f"the job {name} has failed: {why}" for name, why in every.items())

    def up(self) -> bool:
        """Return whether all queries have started, or failed."""
        return all(
            job.query.isActive and "nitializing" not in str(job.query.status["message"])
            for job in self._jobs
            if job.due is None and not job.error
        )

    def _note(self, query: StreamingQuery) -> None:
        for report in query.recentProgress:
            known = json.loads(report.json)
            # A new query reports its next batch before there is one.
            begun = "addBatch" in known["durationMs"]
            if begun and known["batchId"] > self._seen.get(known["name"], -1):
                known["triggerMs"] = round(self._plan.trigger * 1000)
                key = known["name"], known["batchId"]
                known["numInputRows"] = self._came.get(key, 0)  # Spark counts row groups
                line = partial(progress.write, self._plan.out, json.dumps(known))
                if not self._aside(progress.NAME, line):
                    return  # Spark keeps the last hundred: it is noted when that works again
                self._came.pop(key, None)
                self._seen[known["name"]] = known["batchId"]
                if known["name"] in tables.FOLLOWERS["raw"]:
                    self._read += known["numInputRows"]
                self.numbers.batch(known)
                for table in tables.MADE.get(known["name"], ()):
                    self.numbers.rows[table] = self._sinks[table].rows

    def health(self) -> None:
        """Write the tables health, devices and gaps as they are now."""
        if "health" in self._plan.jobs:
            self._aside("health", self._known.refresh)

    def _aside(self, name: str, write: Callable[[], object]) -> bool:
        """Write what is beside the queries, and return whether nothing was raised.

        Pause if the disk is full, and report other errors: until it is written. `write` returns
        False if that is still under way, or not due.
        """
        try:
            if write() is not False:
                self._beside.pop(name, None)
            return True
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of deltalake, too: the queries go on
            why = tables.reason(error)
            if full := _full(error):
                self._pause(full)
            elif self._beside.get(name) != why:
                self._beside[name] = why
                self.say(f"the job {name} has failed, and is tried again; others go on: {why}")
            return False

    def metrics(self) -> Iterator[Metric]:
        """Return the numbers of this run, as Prometheus asks for them."""
        if self._receiving is not None:
            yield from of_ingest(self._receiving)
            self.numbers.rows["raw"] = self._receiving.landing.messages
        self.numbers.devices(tables.of(self._out, "devices"))
        late = {"windows": self.notices.total[_TOO_LATE]}
        failed = sum(bool(job.error) for job in self._jobs) + len(self._beside)
        yield from self.numbers.of_run(late, bool(self.paused), failed)

    def finish(self, past: Callable[[float], bool] = lambda seconds: False) -> None:
        """Work off what is there: what comes from the broker, then what is made of it.

        The broker gets at most `_DRAIN` s, as it may send on.

        past  says whether so many seconds have passed since a signal; what takes longer than
              service.DRAIN, FOLLOW, STOP and HEALTH is then left to the next run
        """
        self._drain(past)
        for job in self._jobs:
            if job.due is not None:
                continue
            try:
                service.within(job.query.processAllAvailable, lambda: past(service.FOLLOW))
            except PySparkException as error:
                if not _full(error):
                    job.error = reason(error)
            self._note(job.query)
        if not past(service.STOP):
            service.within(self.health, lambda: past(service.HEALTH))

    def _drain(self, past: Callable[[float], bool]) -> None:
        """Receive until nothing more comes, and land it."""
        if self._receiving is None:
            return
        end, seen = time.monotonic() + _DRAIN, -1
        while time.monotonic() < end and not past(service.DRAIN):
            self.look()
            if seen == (seen := self._receiving.ingest.client.messages):
                break
            time.sleep(min(_SOON, _LOOK + self._plan.trigger))
        service.within(partial(self._receiving.close, None), lambda: past(service.FOLLOW))

    def stop(self) -> None:
        """Stop receiving and the queries; a batch that is under way is done by the next run."""
        if self._receiving is not None:
            self._receiving.close()
        for job in self._jobs:
            if job.due is None:
                job.query.stop()
        self._maintenance.close()
        self._known.close()

    def halt(self, past: Callable[[float], bool]) -> None:
        """Stop as `stop` does, but let a batch finish first.

        It may take until service.STOP s after a signal.
        """
        for job in self._jobs:
            job.closed = True
            while job.inside.locked() and not past(service.STOP):
                time.sleep(_LOOK)
        self.stop()


def main(
    plan: Plan,
    *,
    master: str | None,
    conf: Mapping[str, str],
    seconds: float | None,
    metrics_port: tuple[str, int] | None = None,
) -> int:
    """Run the plan for so many seconds, or until SIGTERM or SIGINT, and say how it goes.

    At the end what came is worked off, for at most service.REST s; after a signal for as long as
    it ends within service.LIMIT s; with a second signal it is left to the next run. `metrics_port`
    is the address and port of metrics for Prometheus, if they are served. RunError if a query
    fails or Java dies: what was not finished is done by the next run.
    """
    _check(plan)
    service.quiet()
    begun = time.monotonic()
    found: list[Run] = []
    with (
        lock(plan.out),
        served(metrics_port, lambda: found[0].metrics() if found else ()),
        service.Ending(say) as ending,
        PlainConsole(stderr=True).status("starting Spark ...") as status,
    ):
        raw = tables.of(plan.url or plan.out, "raw")
        if not plan.source and not DeltaTable.is_deltatable(raw):
            say(f"{raw} does not exist yet: waiting for `flatmq pipeline ingest` to write it")
        say(f"starting Spark; on a busy machine that takes up to {service.START:,.0f} s")
        # What Java would log is in the errors that are raised here.
        spark = session(master, "flatmq pipeline", **{"spark.log.level": "OFF", **conf})
        ending.listen()
        java = service.Java()
        try:
            running = Run(spark, plan, say)
            found.append(running)
            ending.started()
            _watch(running, java, ending, begun, seconds, lambda text: status.update(Text(text)))
            status.update("working off what is there ...")
            if ending.asked.is_set():
                say(f"ending, within {service.LIMIT:,.0f} s; the next run does the rest")
            ending.limit()
            if not running.paused:
                running.finish(ending.past)
            running.halt(ending.past)
        except (PySparkException, Py4JError, OSError) as error:
            java.check(service.DEATH)
            if not isinstance(error, PySparkException):
                raise
            raise RunError(reason(error)) from error
        except KeyboardInterrupt:
            say("ended at once: what was not finished is done by the next run")
            return 130
        finally:
            if java.ended() is None:
                spark.stop()
    say(f"{running.rows:,} messages more in {running.where}")
    for text, count in running.notices.total.items():
        say(f"in all {count:,} {text}")
    if running.failed:
        raise RunError(running.failed)
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
        tables.check(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if not room.is_full(error):
            raise RunError(f"OUT must be a folder to write to: {folder}: {error.strerror}") from (
                error
            )
    if plan.url is not None:
        tables.check(plan.url)


def _full(error: BaseException) -> str:
    """Return the line of an error or its cause that says which disk is full; empty if none."""
    lines = (line.strip() for text in _texts(error) for line in text.splitlines())
    return next(filter(room.is_full, lines), "")


def reason(error: Exception) -> str:
    """Return what a Spark error says, without the traces of Python and of Java.

    A last line has what caused it, innermost.
    """
    text = tables.flat(str(error))
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    known = [line for line in lines if _OWN.match(line)]
    if known:
        return known[-1]
    said = _of_python(lines) or "\n".join(lines[:3])
    cause = _cause(error)
    return said if cause in said else f"{said}\ncaused by {cause}"


def _of_python(lines: Sequence[str]) -> str:
    """Return the error of the innermost trace of Python in these lines; empty if there is none."""
    begin = max((n for n, line in enumerate(lines, 1) if line.endswith(_TRACE)), default=None)
    return "" if begin is None else next((line for line in lines[begin:] if line.strip()), "")


def _cause(error: BaseException) -> str:
    """Return the innermost cause in one line; empty if the error has none."""
    lines = [line for text in _texts(error) for line in text.splitlines() if line]
    found = [n for n, line in enumerate(lines) if line.startswith(_CAUSED)]
    if not found:
        return ""
    rest = [line for line in lines[found[-1] :] if not line[0].isspace()]
    return _of_python(rest) or rest[0].removeprefix(_CAUSED)


def _texts(error: BaseException) -> list[str]:
    """The texts and traces of an error, and of each that has caused it."""
    texts: list[str] = []
    at: BaseException | None = error
    while at is not None:
        trace = getattr(at, "_stackTrace", "")  # PySpark offers no other way
        texts += [tables.flat(str(at)), tables.flat(str(trace))]
        at = getattr(at, "_cause", None)  # PySpark offers no other way
    return texts
