"""format("mqtt"): from a real broker into Spark, each message once."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import AnalysisException

from flatmq.properties import Properties
from flatmq_rigs.pipeline.bench.messages import fill
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.jobs import columns
from flatmq_tools.ports import free_port
from pipeline.mqtt import PATIENCE, broker, certificate, publish, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from flatmq_tools.pipeline.source import StreamReader


@pytest.fixture(scope="module")
def there() -> Iterator[Broker]:
    with broker() as running:
        yield running


def _stream(spark: SparkSession, there: Broker, folder: Path, **options: Any) -> DataFrame:
    reader = spark.readStream.format("mqtt").option("localStorage", str(folder / "log"))
    reader = reader.options(topic=f"{folder.name}/#", **options)
    return reader.load(f"tcp://{there.address}")


STARTING = {"Initializing sources", "Initializing StreamExecution"}


def _start(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    from flatmq_tools.pipeline.sinks import Delta, Parquet, into

    tables = [Parquet(folder / "parquet"), Delta(folder / "delta")]
    writer = frame.writeStream.foreachBatch(into((lambda rows: rows, tables)))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.trigger(**(trigger or {"processingTime": "0 seconds"}))
    end = time.monotonic() + PATIENCE
    while True:
        query = writer.start()
        while query.isActive and query.status["message"] in STARTING:
            time.sleep(0.05)
        # On a busy machine the worker may take longer than the 10 s that Spark waits for it.
        error = query.exception()
        if error is None or "Python worker failed to connect back" not in str(error):
            return query
        assert time.monotonic() < end, error


def _subscribed(folder: Path) -> bool:
    return (folder / "log" / "subscribed.json").exists()


def _released(folder: Path) -> bool:
    """Return whether the process of a stopped query is gone, and with it its connection."""
    try:
        log.Writer(folder / "log").close()
    except log.LogError:
        return False
    return True


def _count(folder: Path) -> int:
    """Rows that are in both tables."""
    from deltalake import DeltaTable

    parquet, delta = folder / "parquet", str(folder / "delta")
    if not parquet.exists() or not DeltaTable.is_deltatable(delta):
        return 0
    rows = ds.dataset(parquet, format="parquet").count_rows()
    return min(rows, DeltaTable(delta).to_pyarrow_dataset().count_rows())


def _numbered(folder: Path, numbers: range) -> list[tuple[str, bytes]]:
    return [(f"{folder.name}/{n % 3}", b"%d" % n) for n in numbers]


def test_the_columns_are_there_without_register_and_without_a_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = Broker("127.0.0.1", closed.getsockname()[1])
        columns = _stream(spark, nobody, tmp_path).dtypes
    assert columns == [
        ("topic", "string"),
        ("payload", "binary"),
        ("timestamp", "timestamp"),
        ("qos", "int"),
        ("retain", "boolean"),
        ("dup", "boolean"),
        ("offset", "bigint"),
        ("user_properties", "array<struct<name:string,value:string>>"),
        ("content_type", "string"),
        ("response_topic", "string"),
        ("correlation_data", "binary"),
        ("message_expiry", "bigint"),
        ("payload_format", "int"),
    ]
    assert not (tmp_path / "log").exists()


def test_a_bad_option_comes_out_of_load(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"tpic: no such option; did you mean topic\?"):
        _stream(spark, there, tmp_path, tpic="x")
    with pytest.raises(Exception, match="qos = '3': a whole number from 0 to 2"):
        spark.read.format("mqtt").options(host="b", topic="t", QoS=3).load()


def test_from_a_broker_to_parquet_and_delta_over_a_restart(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    publish(there, [(f"{tmp_path.name}/kept", b"retained")], retain=True)
    frame = _stream(spark, there, tmp_path, qos=2, maxOffsetsPerTrigger=200)
    query = _start(frame, tmp_path)
    until(lambda: _subscribed(tmp_path), query)
    for qos in (0, 1, 2):
        publish(there, _numbered(tmp_path, range(qos * 200, qos * 200 + 200)), qos)
    until(lambda: _count(tmp_path) >= 601, query)
    assert max(progress["numInputRows"] for progress in query.recentProgress) <= 200
    query.stop()
    # While nobody is there the broker keeps them, and sends them when the query is back.
    publish(there, _numbered(tmp_path, range(600, 900)))
    query = _start(frame, tmp_path)
    until(lambda: _count(tmp_path) >= 901, query)
    query.stop()

    readers = {
        "pyarrow": ds.dataset(tmp_path / "parquet", format="parquet").to_table(),
        "Spark": spark.read.parquet(str(tmp_path / "parquet")).drop("batch").toArrow(),
        "deltalake": DeltaTable(str(tmp_path / "delta")).to_pyarrow_table(),
    }
    for name, table in readers.items():
        rows = {row.pop("offset"): row for row in table.to_pylist()}
        assert sorted(rows) == list(range(901)) and len(table) == 901, name
        for row in rows.values():
            row.pop("timestamp")
        wanted = Counter(
            (topic, payload, min(int(payload) // 200, 2) if int(payload) < 600 else 1, False)
            for topic, payload in _numbered(tmp_path, range(900))
        )
        wanted[f"{tmp_path.name}/kept", b"retained", 1, True] = 1
        found = Counter(
            (row["topic"], row["payload"], row["qos"], row["retain"]) for row in rows.values()
        )
        assert found == wanted, name


def test_in_mqtt_5_rows_have_properties_and_an_earlier_table_gets_their_columns(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    from flatmq_tools.pipeline import sinks
    from flatmq_tools.pipeline.jobs.raw import raw

    carried = Properties([("b", "1"), ("a", "2"), ("b", "3")], content_type="text/plain")

    def start(grows: bool, **options: Any) -> StreamingQuery:
        frame = _stream(spark, there, tmp_path, quietMs=300, **options)
        frame = raw(frame) if grows else frame.select(*columns.MESSAGE)
        tables = [sinks.Delta(tmp_path / "delta", add_columns=grows)]
        tables += [sinks.Parquet(tmp_path / "parquet")]  # type: ignore[list-item]
        writer = frame.writeStream.foreachBatch(sinks.into((lambda rows: rows, tables)))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start(False)
    until(lambda: _subscribed(tmp_path), query)
    publish(there, _numbered(tmp_path, range(3)), version=5, properties=carried)
    until(lambda: _count(tmp_path) == 3, query)
    query.stop()
    until(lambda: _released(tmp_path))  # it would receive some, without their properties
    query = start(True, mqttVersion=5, sessionExpiry=3600)
    publish(there, _numbered(tmp_path, range(3, 6)), version=5, properties=carried)
    until(lambda: _count(tmp_path) == 6, query)
    query.stop()
    delta = DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()
    spoken = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "parquet"))
    for table in (delta, spoken.toArrow()):
        rows = sorted(table.to_pylist(), key=lambda row: row["offset"])
        pairs = [("b", "1"), ("a", "2"), ("b", "3")]
        for row in rows:
            found = [(each["name"], each["value"]) for each in row["user_properties"] or ()]
            new = row["offset"] >= 3
            assert (found, row["content_type"]) == ((pairs, "text/plain") if new else ([], None))


BAHIR = "org.apache.bahir.sql.streaming.mqtt.MQTTStreamSourceProvider"


def _bahir(spark: SparkSession, form: str, url: str, folder: Path, trusted: Path) -> DataFrame:
    """Return the stream of a program for Bahir's source, as people have it.

    Only the name of the format is changed. (Its key stores of Java are PEM now.)
    """
    return (
        spark.readStream.format(form)
        .option("brokerUrl", url)
        .option("topic", "mytopic")
        .option("localStorage", str(folder / "paho"))
        .option("persistence", "file")
        .option("clientId", "some-client-id")
        .option("QoS", 2)
        .option("cleanSession", "false")
        .option("username", "alice")
        .option("password", "s3cret")
        .option("connectionTimeout", 30)
        .option("keepAlive", 60)
        .option("mqttVersion", 0)
        .option("maxInflight", 60)
        .option("autoReconnect", "true")
        .option("ssl.protocol", "TLSv1.2")
        .option("ssl.trust.store", str(trusted))
        .option("ssl.trust.store.type", "PEM")
        .option("ssl.trust.store.password", "changeit")
        .load()
        .selectExpr("topic", "CAST(payload AS STRING) AS value", "timestamp")
    )


def test_a_user_of_bahirs_source_changes_the_format_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    cert, key = certificate(tmp_path)
    port = free_port()
    tls = f"listener {port} 127.0.0.1\ncertfile {cert}\nkeyfile {key}"
    with broker(tls, users={"alice": "s3cret"}) as guarded:
        url = f"ssl://127.0.0.1:{port}"
        with pytest.raises(Exception, match=r"(?i)org\.apache\.bahir"):
            _bahir(spark, BAHIR, url, tmp_path, cert)
        frame = _bahir(spark, "mqtt", url, tmp_path, cert)
        words = frame.selectExpr("topic", "timestamp", "explode(split(value, ' ')) AS word")
        writer = words.groupBy("topic", "word").count().writeStream.outputMode("complete")
        query = (
            writer.format("memory")
            .queryName("word_counts")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        until((tmp_path / "paho" / "subscribed.json").exists, query)
        lines = [("mytopic", b"to be or not to be"), ("mytopic", b"be"), ("other", b"no")]
        publish(guarded, lines, user="alice", password="s3cret")

        def counts() -> dict[tuple[str, str], int]:
            rows = spark.table("word_counts").collect()
            return {(row["topic"], row["word"]): row["count"] for row in rows}

        until(lambda: sum(counts().values()) >= 7, query)
        query.stop()
    found = {"to": 2, "be": 3, "or": 1, "not": 1}
    assert counts() == {("mytopic", word): n for word, n in found.items()}


def test_the_id_of_bahirs_rows_is_the_offset(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    """A query that selects `id` fails with a hint, and works with the line of docs/spark.md."""
    frame = _stream(spark, there, tmp_path, quietMs=300)
    with pytest.raises(AnalysisException, match=r"(?s)`id`.*`offset`"):
        frame.select("id", "topic", "payload", "timestamp")
    url = f"tcp://{there.address}"
    reader = spark.read.format("mqtt").option("localStorage", str(tmp_path / "log"))
    reader = reader.options(topic=f"{tmp_path.name}/#", quietMs=300)
    assert reader.load(url).count() == 0
    publish(there, _numbered(tmp_path, range(3)))
    rows = reader.load(url).withColumnRenamed("offset", "id").select("id", "topic", "payload")
    assert [tuple(row) for row in rows.collect()] == [
        (n, topic, payload) for n, (topic, payload) in enumerate(_numbered(tmp_path, range(3)))
    ]


def test_read_takes_what_waits_and_a_log_that_is_in_use(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    options = {
        "brokerUrl": f"tcp://{there.address}",
        "topic": f"{tmp_path.name}/#",
        "localStorage": str(tmp_path / "log"),
        "quietMs": "300",
    }
    messages = spark.read.format("mqtt").options(**options)
    assert messages.load().count() == 0
    publish(there, _numbered(tmp_path, range(50)))
    assert messages.load().select("offset").toArrow()["offset"].to_pylist() == list(range(50))
    with log.Writer(tmp_path / "log"):
        kept = spark.read.format("mqtt").option("localStorage", str(tmp_path / "log"))
        assert kept.schema("payload binary, topic string").load().dtypes == [
            ("payload", "binary"),
            ("topic", "string"),
        ]
        assert kept.option("minPartitions", 4).load().count() == 50
    with pytest.raises(Exception, match="schema: id:bigint; there is struct<topic:string"):
        kept.schema("id long, topic string").load().count()


def test_available_now_takes_what_the_broker_has_and_ends(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    frame = _stream(spark, there, tmp_path, maxOffsetsPerTrigger=30, quietMs=300)
    for numbers in (range(0), range(100)):  # at first there is no session to keep anything
        publish(there, _numbered(tmp_path, numbers))
        query = _start(frame, tmp_path, availableNow=True)
        until(lambda query=query: not query.isActive, query)
        assert query.exception() is None
    assert _count(tmp_path) == 100


def test_a_checkpoint_does_not_go_on_with_another_log(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    query = _start(_stream(spark, there, tmp_path), tmp_path)
    until(lambda: query.recentProgress, query)
    query.stop()
    (tmp_path / "log").rename(tmp_path / "old")
    query = _start(_stream(spark, there, tmp_path), tmp_path)
    until(lambda: query.exception() is not None)
    assert "of another log than the one in" in str(query.exception())


def test_a_broker_that_refuses_ends_the_query_with_its_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker(users={"alice": "s3cret"}) as guarded:
        frame = _stream(spark, guarded, tmp_path, username="alice", password="wr0ng")
        query = _start(frame, tmp_path)
        until(lambda: query.exception() is not None)
        assert f"{guarded.address} refuses the client" in str(query.exception())
        assert "wr0ng" not in str(query.exception())


# A reader by itself, as Spark calls it


@pytest.fixture
def signals() -> Iterator[None]:
    """A reader takes SIGTERM for itself, in the process that Spark made for it."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def _reader(there: Broker, folder: Path, **options: str) -> StreamReader:
    from flatmq_tools.pipeline.options import parse
    from flatmq_tools.pipeline.source import SCHEMA, StreamReader

    given = {"topic": f"{folder.name}/#", "localStorage": str(folder / "log")}
    return StreamReader(parse({"path": f"tcp://{there.address}", **given, **options}), SCHEMA)


STOPPED = """
import sys, time
from pathlib import Path
from flatmq_tools.pipeline.options import parse
from flatmq_tools.pipeline.source import SCHEMA, StreamReader

class Ingest:
    error = None
    def __init__(self, settings, writer): pass
    def start(self): pass
    def poll(self, ms): time.sleep(ms / 1000)
    def stop(self):
        print("stopping", flush=True)
        time.sleep(0.5)
        print("stopped", flush=True)

settings = parse({"path": "tcp://127.0.0.1", "topic": "t", "localStorage": sys.argv[1]})
reader = StreamReader(settings, SCHEMA, Ingest)
try:
    reader.initialOffset()
    print("receiving", flush=True)
    sys.stdin.read()
finally:
    reader.stop()
"""


def test_spark_ends_a_query_with_two_signals_and_the_reader_stops_in_good_order(
    tmp_path: Path,
) -> None:
    """The first SIGTERM stops the reader, and the second does not interrupt that.

    The reader acknowledges what is on the disk: the broker would send that again.
    """
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "receiving\n"
        process.terminate()
        assert process.stdout.readline() == "stopping\n"
        process.terminate()
        assert process.stdout.readline() == "stopped\n"
    assert process.returncode == 0


def test_making_a_reader_does_nothing_and_the_executors_get_no_password(
    there: Broker, tmp_path: Path
) -> None:
    reader = _reader(there, tmp_path, username="al", password="s3cret")
    assert b"s3cret" not in pickle.dumps(reader)
    assert not (tmp_path / "log").exists()


def test_a_full_log_has_the_broker_wait_until_spark_has_committed(
    signals: None, there: Broker, tmp_path: Path
) -> None:
    reader = _reader(there, tmp_path, logLimit=str(1 << 20))
    start = reader.initialOffset()
    until(lambda: _subscribed(tmp_path))
    numbers = range(300)
    publish(there, [(f"{tmp_path.name}/x", b"%d " % n + bytes(10_000)) for n in numbers])
    seen: list[int] = []
    ends = time.monotonic() + PATIENCE
    while len(seen) < len(numbers):
        assert time.monotonic() < ends, "the broker does not go on"
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            continue
        for part in reader.partitions(start, end):
            for batch in reader.read(part):
                seen += [int(payload.split()[0]) for payload in batch["payload"].to_pylist()]
        # One more record than the limit is taken, and a record is up to 256 KiB.
        size = sum(path.stat().st_size for path in (tmp_path / "log").glob("*.log"))
        assert size <= (1 << 20) + (1 << 18) + 20_000
        reader.commit(end)
        start = end
    reader.commit({**start, "offset": 1})  # Spark says again, after a crash, what it said before
    reader.stop()
    assert seen == list(numbers)
    first, after = log.bounds(tmp_path / "log")
    assert after == 300 and first > 200


def test_the_disk_has_everything_before_a_segment_goes(
    signals: None, there: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of Spark and the sink, wherever they are; and no sync where nothing goes."""
    with log.Writer(tmp_path / "log") as writer:
        for _ in range(3):
            fill(writer, 10)
            writer.rotate()

    def there_are() -> list[int]:
        return [segment.first for segment in log.segments(tmp_path / "log")]

    seen: list[list[int]] = []
    monkeypatch.setattr(os, "sync", lambda: seen.append(there_are()))
    reader = _reader(there, tmp_path)
    start = reader.initialOffset()
    for offset in (5, 10, 19, 30):
        reader.commit({**start, "offset": offset})
    reader.stop()
    assert seen == [[0, 10, 20, 30], [10, 20, 30]]
    assert there_are() == [30]


def test_a_limit_below_the_start_never_goes_back(
    signals: None, there: Broker, tmp_path: Path
) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    reader = _reader(there, tmp_path)
    start = reader.initialOffset()
    until(lambda: _subscribed(tmp_path))
    publish(there, _numbered(tmp_path, range(10)))
    until(lambda: reader.latestOffset()["offset"] == 10)
    four = reader.latestOffset(start, ReadMaxRows(4))
    assert four["offset"] == 4
    assert reader.latestOffset(four, ReadMaxRows(4))["offset"] == 8
    assert reader.partitions(four, four) == []
    reader.stop()


def test_a_second_query_on_one_log_is_told_who_has_it(
    signals: None, there: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatmq_tools.pipeline import source

    monkeypatch.setattr(source, "LOCK_PATIENCE", 0.1)
    with log.Writer(tmp_path / "log"), pytest.raises(log.LogError) as error:
        _reader(there, tmp_path).initialOffset()
    assert f"{tmp_path / 'log'} is in use by process {os.getpid()}" in str(error.value)


def test_the_log_is_waited_for_while_the_query_before_ends(
    signals: None, there: Broker, tmp_path: Path
) -> None:
    before = log.Writer(tmp_path / "log")
    ending = threading.Timer(0.3, before.close)
    ending.start()
    reader = _reader(there, tmp_path)
    assert reader.initialOffset()["log"] == before.id
    reader.stop()
    ending.join()


def test_what_has_no_meaning_is_said_when_the_query_begins(
    signals: None, there: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = _reader(there, tmp_path, maxInflight="60", autoReconnect="true")
    assert capsys.readouterr().err == ""
    reader.initialOffset()
    reader.stop()
    first, second = capsys.readouterr().err.splitlines()
    assert "mqtt: maxInflight = '60': no effect" in first
    assert "mqtt: autoReconnect = 'true': no effect" in second
