"""A command `flatmq pipeline ...` in this process, on the session that all tests share.

It takes a fifth of the CPU time of a process with a Java of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from flatmq_tools.pipeline import run, service
from flatmq_tools.pipeline.cli import pipeline
from pipeline.mqtt import PATIENCE, until

CLUSTER = "local-cluster[1,1,1024]"
"""A master with an executor in a process of its own."""


def apart(folder: Path) -> dict[str, str]:
    """Return the environment of a command whose master may be CLUSTER, which works in `folder`."""
    return {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_CACHE_HOME": str(folder / "cache"),  # executors work in the home of Spark
        "SPARK_SCALA_VERSION": "2.13",  # as the scripts of Spark say it
    }  # fmt: skip


@contextlib.contextmanager
def shared(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str] | None = None
) -> Iterator[list[str | None]]:
    """Have commands use the session, which they do not stop. Yield the masters that they name.

    environment  variables of the Python workers, too
    """
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
