"""Runs of the pipeline, and commands `flatmq pipeline ...`, in this process.

With the session that all tests share a command takes a fifth of the CPU time of one of its own.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame, SparkSession

from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import run, service
from flatmq_tools.pipeline.cli import pipeline
from flatmq_tools.pipeline.run import Plan, Run
from flatmq_tools.pipeline.sinks import Delta, into
from pipeline.mqtt import PATIENCE, until


class Panic(BaseException):
    """As of a library in Rust: its panics are no Exception."""


@contextlib.contextmanager
def started(
    spark: SparkSession, plan: Plan, there: Broker | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Run]:  # fmt: skip
    """A run, which is stopped at the end; it has subscribed if it is of a broker."""
    if there is not None:
        plan.source = {"brokerUrl": there.address, "topic": "dev/#", **plan.source}
        plan.trigger = 0.3
    running = Run(spark, plan, say)
    try:
        subscribed = plan.out / "log" / "subscribed.json"
        until(lambda: there is None or running.look() or subscribed.exists())
        yield running
    finally:
        running.stop()


@contextlib.contextmanager
def shared(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str] | None = None
) -> Iterator[list[str | None]]:
    """Have commands use the session, and workers the environment; yield the masters they name."""
    masters: list[str | None] = []

    def session(master: str | None, *_: object, **__: object) -> SparkSession:
        masters.append(master)
        return spark

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with monkeypatch.context() as patch:
        patch.setattr(run, "session", session)
        patch.setattr(spark, "stop", lambda: None)
        patch.setattr(service, "_HARD", PATIENCE)  # then it would end this process
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
            patch.setitem(spark.sparkContext.environment, name, value)
        try:
            yield masters
        finally:
            for query in spark.streams.active:
                query.stop()
            for number, handler in handlers.items():
                signal.signal(number, handler)


def typed(
    words: Sequence[Any],
    ready: Callable[[], object] | None = None,
    signals: Sequence[signal.Signals] = (),
) -> Result:
    """Type the words after `flatmq pipeline`; once that is so, signal. Return how it ended."""
    over = threading.Event()
    failed: list[BaseException] = []

    def end() -> None:
        try:
            until(lambda: over.is_set() or ready is None or ready())
        except BaseException as error:
            failed.append(error)
        for number in signals:
            if not over.is_set():
                os.kill(os.getpid(), number)

    watch = threading.Thread(target=end, daemon=True)
    watch.start()
    try:
        done = CliRunner().invoke(pipeline, [*map(str, words)], env={"COLUMNS": "200"})
    finally:
        over.set()
        watch.join()
    if failed:
        raise failed[0]
    return done


class Killed(Exception):
    """The exception that is raised where a process would be killed."""


class Mortal(Delta):
    """A table at which the process is killed "before" or "after" it has written a batch."""

    when = ""

    def commit(self, *batch: Any) -> int:
        if self.when == "before":
            raise Killed
        rows = super().commit(*batch)
        if self.when == "after":
            raise Killed
        return rows


_QUERY = "sql.streaming.queryId"  # the local property in which Spark has it


@contextlib.contextmanager
def as_query(spark: SparkSession, name: str = "a-query") -> Iterator[None]:
    """Make calls within the block those of a query with this identifier."""
    spark.sparkContext.setLocalProperty(_QUERY, name)
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(_QUERY, None)


def said(*words: object) -> tuple[int, str]:
    """Type the words after `flatmq pipeline`; return the exit status and the text in a line."""
    done = typed(words)
    return done.exit_code, " ".join(done.output.split())


def written(rows: DataFrame, checkpoint: Path, *tables: Delta) -> None:
    """Have a query write what there is of a stream into each of these tables."""
    sinks = into(*((lambda rows: rows, table) for table in tables), checkpoint=checkpoint)
    query = rows.writeStream.foreachBatch(sinks).option("checkpointLocation", str(checkpoint))
    started = query.trigger(availableNow=True).start()
    until(lambda: not started.isActive)
    if started.exception() is not None:
        raise started.exception()  # type: ignore[misc]
