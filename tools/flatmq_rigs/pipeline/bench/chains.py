"""The speed of a whole pipeline, from the broker to Delta tables, and the share of each part.

A run has a session of its own, in which the chains follow each other. It prints lines of JSON: the
name of each that begins, and then what it took.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from flatmq_tools import broker
from flatmq_tools.pipeline import receive, sinks
from flatmq_tools.pipeline.ingest import Ingest
from flatmq_tools.pipeline.log import Writer
from flatmq_tools.pipeline.options import Settings, parse
from flatmq_tools.pipeline.processes import Command, row_count
from flatmq_tools.pipeline.run import Plan, Run
from flatmq_tools.pipeline.session import session
from flatmq_tools.pipeline.source import MqttSource, StreamReader

from .figures import BenchError, Figure, Watch
from .messages import CLIENT_ID, FILTER, MOSQUITTO, PATIENCE, fill, load, stream
from .paho_ingest import PahoIngest

PARTS = ("broker", "receiver", "JVM", "workers", "driver")
WARM = 20_000  # messages that go through before a chain is measured
_LOOK = 0.05  # s; a look costs this process some CPU, which counts as the driver's
_TRIGGER = 1.0  # s, as of `flatmq pipeline run`


class PahoSource(MqttSource):
    """A format("mqtt") with paho-mqtt instead of our client."""

    @classmethod
    def name(cls) -> str:
        return "mqtt_paho"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse(self.options), schema, _paho)


def _paho(settings: Settings, writer: Writer) -> PahoIngest:
    assert settings.host is not None
    return PahoIngest(writer, (settings.host, settings.port), settings.filters, settings.client_id)


class _Parts:
    """CPU time of this process, and of all that it has started, by part."""

    def __init__(self) -> None:
        self._before = self._now()

    @staticmethod
    def _now() -> dict[psutil.Process, tuple[str, float]]:
        me = psutil.Process()
        found = {}
        for process in [me, *me.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                part = "driver" if process == me else _part(" ".join(process.cmdline()))
                times = process.cpu_times()
                found[process] = part, times.user + times.system
        return found

    def used(self) -> dict[str, float]:
        """The seconds since this was made."""
        used = dict.fromkeys(PARTS, 0.0)
        for process, (part, now) in self._now().items():
            used[part] += now - self._before.get(process, (part, 0.0))[1]
        return used


def _part(command: str) -> str:
    for word, part in (
        ("python_streaming_source_runner", "receiver"),
        ("flatmq_tools.cli pipeline ingest", "receiver"),
        ("org.apache.spark", "JVM"),
        ("worker_daemon", "workers"),
        ("mosquitto", "broker"),
    ):
        if word in command:
            return part
    return "driver"


def _timed(start: Callable[[], Callable[[], None]], table: Path, count: int) -> Figure:
    """Measure from `start` until the table has `count` rows.

    What `start` returns is called at each look, and raises what has gone wrong.
    """
    parts, since = _Parts(), time.monotonic()
    check = start()
    while (have := row_count(table)) < count:
        check()
        if time.monotonic() - since > PATIENCE:
            raise BenchError(f"{have} of {count} rows in {table} after {PATIENCE} s")
        time.sleep(_LOOK)
    return Figure(have, time.monotonic() - since, parts.used())


def _query(frame: DataFrame, folder: Path) -> StreamingQuery:
    """Every message, into a table in `folder`."""
    table = sinks.Delta(folder / "raw", by_day="timestamp")
    return (
        frame.writeStream.foreachBatch(sinks.into((lambda rows: rows, table)))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{round(_TRIGGER * 1000)} milliseconds")
        .start()
    )


def _raw(frame: Callable[[], DataFrame], folder: Path, count: int) -> Figure:
    queries = []

    def start() -> Callable[[], None]:
        query = _query(frame(), folder)
        queries.append(query)
        return lambda: _active(query)

    try:
        return _timed(start, folder / "raw", count)
    finally:
        for query in queries:
            query.stop()


def _active(query: StreamingQuery) -> None:
    if not query.isActive:
        raise BenchError(f"the query has ended: {query.exception()}")


def _options(server: broker.Broker, folder: Path) -> dict[str, str]:
    log = str(folder / "log")
    where = {"brokerUrl": server.address, "localStorage": log}
    return {**where, "filters": FILTER, "clientId": CLIENT_ID}


# The chains


def source(spark: SparkSession, server: broker.Broker, folder: Path, count: int) -> Figure:
    """Measure format("mqtt")."""
    reader = spark.readStream.format("mqtt").options(**_options(server, folder))
    return _raw(reader.load, folder, count)


def paho(spark: SparkSession, server: broker.Broker, folder: Path, count: int) -> Figure:
    """The same with paho-mqtt."""
    spark.dataSource.register(PahoSource)
    reader = spark.readStream.format(PahoSource.name()).options(**_options(server, folder))
    return _raw(reader.load, folder, count)


def ingest(_: object, server: broker.Broker, folder: Path, count: int) -> Figure:
    """`flatmq pipeline ingest`, up to the table raw."""
    started: list[Command] = []

    def start() -> Callable[[], None]:
        started.append(
            Command(
                folder / "ingest.txt", "ingest", server.address, folder, "--log", folder / "log",
                "--filter", FILTER, "--client-id", CLIENT_ID, "--every", str(_TRIGGER),
            )
        )  # fmt: skip
        return started[0].check

    try:
        return _timed(start, folder / "raw", count)
    finally:
        for one in started:
            one.stop()


def jobs(spark: SparkSession, server: broker.Broker, folder: Path, count: int) -> Figure:
    """`flatmq pipeline run`, up to the table of measurements."""
    plan = Plan(folder, _options(server, folder), jobs=("measurements",), trigger=_TRIGGER)
    running = []

    def start() -> Callable[[], None]:
        running.append(Run(spark, plan))
        return running[0].look

    try:
        chain = _timed(start, folder / "measurements", count)
        running[0].finish()  # to stop a query in a batch is an error, with a long trace
        return chain
    finally:
        for one in running:
            one.stop()


def from_log(spark: SparkSession, _: object, folder: Path, count: int) -> Figure:
    """The log, read by Spark, with no sink."""
    with Writer(folder / "log") as log:
        fill(log, count)
    frame = spark.read.format("mqtt").option("localStorage", str(folder / "log")).load()
    parts, since = _Parts(), time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return Figure(count, time.monotonic() - since, parts.used())


class _Memory:
    """A link to a broker that accepts the client and sends these bytes, one chunk per read."""

    address = "memory"

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def connect(self) -> None:
        """Connect at once."""

    def stream(self) -> _Memory:
        """Return the stream."""
        return self

    def readinto(self, buf: memoryview) -> int | None:
        """Read a chunk."""
        n = min(len(buf), receive.CHUNK, len(self._data) - self._at)
        buf[:n] = self._data[self._at : self._at + n]
        self._at += n
        return n or None

    def write(self, _buf: bytes, _at: int, n: int) -> int:
        """Take what is written."""
        return n

    def wait(self, _ms: int, _out: bool) -> None:
        """Return at once: there is something to read."""

    def close(self) -> None:
        """Do nothing."""


def memory(_: object, __: object, folder: Path, count: int, version: int = 4) -> Figure:
    """The ingest up to its log, without a broker."""
    accepted = b"\x20\3\0\0\0" if version == 5 else b"\x20\2\0\0"
    link = _Memory(accepted + stream(count, version))
    with Writer(folder) as log:
        ingest = Ingest(log, ("", 0), [FILTER], version=version, link=link)
        watch = Watch()
        ingest.start()
        while log.synced < count:
            ingest.poll(1000)
        return watch.figure(log.next_offset)


CHAINS: dict[str, Callable[[Any, Any, Path, int], Figure]] = {
    "source": source,
    "source-paho": paho,
    "ingest": ingest,
    "jobs": jobs,
    "log": from_log,
    "memory": memory,
    "memory-5": partial(memory, version=5),
}
LABELS = {
    "source": '`format("mqtt")`, and the table raw',
    "source-paho": "the same with paho-mqtt in our client's place",
    "ingest": "`flatmq pipeline ingest`, and the table raw",
    "jobs": "`flatmq pipeline run`: raw, and the table of measurements that is made of it",
    "log": "the ceiling: what the ingest has written, read by Spark with no sink",
    "memory": "the ingest up to its log, of bytes that are in memory: no broker, and no network",
    "memory-5": "the same in MQTT 5",
}
_WITHOUT_BROKER = ("log", "memory", "memory-5")
_WITHOUT_SPARK = ("ingest", "memory", "memory-5")


def measure(spark: SparkSession | None, name: str, count: int) -> Figure:
    """Measure one chain, with a broker and a folder of its own."""
    with _folder() as folder, contextlib.ExitStack() as stack:
        server = None
        if name not in _WITHOUT_BROKER:
            server = stack.enter_context(broker.mosquitto(extra=MOSQUITTO))
            load(server, count)
        return CHAINS[name](spark, server, folder, count)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="flatmq-bench-", dir=os.environ.get("BENCH_DIR")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(names: list[str], count: int) -> None:
    """Measure these chains, one after the other.

    Each has run before, with fewer messages: Java is slow when it does something for the first
    time.
    """
    spark = None
    if set(names) - set(_WITHOUT_SPARK):
        spark = session("local[2]", "flatmq pipeline-bench")
    try:
        for name in names:
            print(json.dumps(name), flush=True)
            if count > WARM:
                measure(spark, name, WARM)
            print(json.dumps([name, *measure(spark, name, count)]), flush=True)
    finally:
        if spark is not None:
            spark.stop()


if __name__ == "__main__":
    # Ends with the desk: nobody else would end it.
    signal.alarm(len(sys.argv) * PATIENCE)
    main(sys.argv[2:], int(sys.argv[1]))
