"""format("mqtt"): from a real broker into Spark, each message once."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from flatmq.properties import Properties
from flatmq_rigs.pipeline.bench.messages import fill
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import log, source
from flatmq_tools.pipeline.ingest import IngestError
from flatmq_tools.pipeline.jobs import columns
from flatmq_tools.pipeline.options import parse
from flatmq_tools.pipeline.sinks import Delta, into
from flatmq_tools.pipeline.source import SourceError
from flatmq_tools.ports import free_port
from pipeline.messages import count, read
from pipeline.mqtt import PATIENCE, broker, certificate, publish, until


def _stream(spark: SparkSession, there: Broker, folder: Path, **options: Any) -> DataFrame:
    reader = spark.readStream.format("mqtt").option("localStorage", str(folder / "log"))
    reader = reader.options(topic=f"{folder.name}/#", **options)
    return reader.load(f"tcp://{there.address}")


def _into_tables(frame: DataFrame, folder: Path, rows: int) -> list[StreamingQuery]:
    """Write so many rows into a table."""
    table = Delta(folder / "table")
    writer = frame.writeStream.foreachBatch(into((lambda rows: rows, table)))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    queries = []
    # What a busy machine brings late is for the next query.
    while not queries or count(folder / "table") < rows:
        queries.append(writer.trigger(availableNow=True).start())
        until(lambda: not queries[-1].isActive)
        error = queries[-1].exception()
        # The worker may take longer than the 10 s that Spark waits for it.
        assert error is None or "Python worker failed to connect back" in str(error), error
        until(lambda: _released(folder))  # it would receive some, without their properties
    return queries


def _subscribed(folder: Path) -> bool:
    return (folder / "log" / "subscribed.json").exists()


def _released(folder: Path) -> bool:
    """Return whether the process of a query that has ended is gone, and with it its connection."""
    try:
        log.Writer(folder / "log").close()
    except log.LogError:
        return False
    return True


def _numbered(folder: Path, numbers: range) -> list[tuple[str, bytes]]:
    return [(f"{folder.name}/{n % 3}", b"%d" % n) for n in numbers]


def test_the_columns_and_a_bad_option_come_out_of_load_without_a_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    nobody = Broker("127.0.0.1", free_port())
    dtypes = _stream(spark, nobody, tmp_path).dtypes
    assert dtypes[:7] == [*columns.MESSAGE.items()]
    assert dtypes[7:9] == [
        ("user_properties", "array<struct<name:string,value:string>>"), ("content_type", "string"),
    ]  # fmt: skip
    assert not (tmp_path / "log").exists()
    with pytest.raises(Exception, match=r"tpic: no such option; did you mean topic\?"):
        _stream(spark, nobody, tmp_path, tpic="x")


PAIRS = [("b", "1"), ("a", "2"), ("b", "3")]


def test_from_a_broker_to_a_table_over_a_restart_in_the_other_version(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    """In MQTT 5 rows have properties."""
    publish(there, [(f"{tmp_path.name}/kept", b"retained")], retain=True)
    _into_tables(_stream(spark, there, tmp_path, qos=2), tmp_path, 1)
    # While nobody is there the broker keeps them, and sends them when the query is back.
    for qos in (1, 2):
        publish(there, _numbered(tmp_path, range(qos * 200 - 200, qos * 200)), qos)
    carried = Properties(PAIRS, content_type="text/plain")
    publish(there, _numbered(tmp_path, range(400, 700)), version=5, properties=carried)
    more = {"mqttVersion": 5, "sessionExpiry": 3600, "maxOffsetsPerTrigger": 200}
    queries = _into_tables(_stream(spark, there, tmp_path, qos=2, **more), tmp_path, 701)
    assert max(p["numInputRows"] for query in queries for p in query.recentProgress) <= 200

    expected = Counter(
        (topic, payload, 2 if 200 <= n < 400 else 1, False, n >= 400)
        for n, (topic, payload) in enumerate(_numbered(tmp_path, range(700)))
    )
    expected[f"{tmp_path.name}/kept", b"retained", 1, True, False] = 1
    rows = read(tmp_path / "table")
    assert sorted(row["offset"] for row in rows) == list(range(701))
    found = Counter[tuple[object, ...]]()
    for row in rows:
        pairs = [(each["name"], each["value"]) for each in row["user_properties"] or ()]
        new = (pairs, row["content_type"]) == (PAIRS, "text/plain")
        assert new or (pairs, row["content_type"]) == ([], None)
        found[row["topic"], row["payload"], row["qos"], row["retain"], new] += 1
    assert found == expected


def test_read_takes_what_waits_and_a_log_that_is_in_use(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    place = str(tmp_path / "log")
    messages = spark.read.format("mqtt").options(localStorage=place, quietMs="300")
    messages = messages.options(brokerUrl=there.address, topic=f"{tmp_path.name}/#")
    assert messages.load().count() == 0
    publish(there, _numbered(tmp_path, range(50)))
    assert messages.load().select("offset").toArrow()["offset"].to_pylist() == list(range(50))
    with log.Writer(tmp_path / "log"):
        kept = spark.read.format("mqtt").option("localStorage", place)
        dtypes = kept.schema("payload binary, topic string").load().dtypes
        assert dtypes == [("payload", "binary"), ("topic", "string")]
        assert kept.option("minPartitions", 4).load().count() == 50
    with pytest.raises(Exception, match="schema: id:bigint; there is struct<topic:string"):
        kept.schema("id long, topic string").load().count()


# The options of a program for Bahir's source, as people have it.
OF_BAHIR = {
    "topic": "mytopic", "clientId": "some-client-id", "QoS": "2", "cleanSession": "false",
    "username": "alice", "password": "s3cret", "connectionTimeout": "30", "keepAlive": "60",
    "mqttVersion": "0",
}  # fmt: skip
USELESS = {
    "maxInflight": "60", "AUTORECONNECT": "true", "persistence": "5", "ssl.protocol": "x",
    "ssl.trust.store.password": "changeit",
    "ssl.trust.store.type": "PEM",  # it was JKS, which is Java's
}  # fmt: skip


Readers = Callable[..., source.StreamReader]


@pytest.fixture
def readers(there: Broker, tmp_path: Path) -> Iterator[Readers]:
    """Make readers, which are stopped. Each takes SIGTERM for itself, in a process of Spark's."""
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:

        def make(**options: str) -> source.StreamReader:
            given = {"path": there.address, "topic": f"{tmp_path.name}/#"}
            settings = parse({**given, "localStorage": str(tmp_path / "log"), **options})
            made = source.StreamReader(settings, source.SCHEMA)
            stack.callback(made.stop)
            return made

        yield make
    signal.signal(signal.SIGTERM, before)


STOPPED = """
import sys, time
from pathlib import Path
from flatmq_tools.pipeline.options import parse
from flatmq_tools.pipeline.source import SCHEMA, StreamReader

class Ingest:
    def __init__(self, settings, writer): pass
    start = background = check = lambda self: None
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
    """The second one does not cut off what the first began: unacknowledged, all comes again."""
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
    readers: Readers, tmp_path: Path
) -> None:
    reader = readers(username="al", password="s3cret")
    assert b"s3cret" not in pickle.dumps(reader)
    assert not (tmp_path / "log").exists()


def test_a_checkpoint_does_not_go_on_with_another_log(
    readers: Readers, there: Broker, tmp_path: Path
) -> None:
    reader = readers()
    end = reader.initialOffset()
    for offset in ({**end, "log": "another"}, {**end, "offset": 1}):
        with pytest.raises(SourceError, match="of another log than the one in"):
            reader.partitions(offset, offset)


def test_a_user_of_bahirs_source_changes_the_format_name(
    readers: Readers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an option without meaning a line says so. A refused password ends the query."""
    cert, key = certificate(tmp_path)
    port = free_port()
    tls = f"listener {port} 127.0.0.1\ncertfile {cert}\nkeyfile {key}"
    with broker(tls, users={"alice": "s3cret"}) as guarded:
        given = {**OF_BAHIR, "path": f"ssl://127.0.0.1:{port}", "ssl.trust.store": str(cert)}
        reader = readers(**given, **USELESS)
        assert capsys.readouterr().err == ""
        start = reader.initialOffset()
        until(lambda: _subscribed(tmp_path))
        lines = capsys.readouterr().err.lower()
        for name, value in USELESS.items():
            assert f"mqtt: {name} = '{value}': no effect".lower() in lines
        assert lines.count("no effect") == len(USELESS)
        sent = [("mytopic", b"to be"), ("other", b"no"), ("mytopic", b"or not to be")]
        publish(guarded, sent, user="alice", password="s3cret")
        until(lambda: reader.latestOffset()["offset"] == 2)
        (part,) = reader.partitions(start, reader.latestOffset())
        (batch,) = reader.read(part)
        assert batch["payload"].to_pylist() == [b"to be", b"or not to be"]
        reader.stop()

        wrong = readers(**{**given, "password": "wr0ng"})
        wrong.initialOffset()
        errors: list[str] = []

        def refused() -> bool:
            try:
                wrong.latestOffset()
            except IngestError as error:
                errors.append(str(error))
            return bool(errors)

        until(refused)
    assert f"127.0.0.1:{port} refuses the client" in errors[0]
    assert "wr0ng" not in errors[0]


def test_a_full_log_has_the_broker_wait_until_spark_has_committed(
    readers: Readers, there: Broker, tmp_path: Path
) -> None:
    reader = readers(logLimit=str(1 << 20))
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


def test_a_disk_that_takes_nothing_for_a_while_ends_no_query(
    readers: Readers, there: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    reader = readers()
    start = reader.initialOffset()
    until(lambda: _subscribed(tmp_path))
    tried: list[int] = []

    def full(file: int, _: object) -> int:
        tried.append(file)
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        publish(there, _numbered(tmp_path, range(5)))
        until(lambda: reader.latestOffset() and len(tried) > 1)
        assert reader.latestOffset() == start
    until(lambda: reader.latestOffset()["offset"] == 5)
    reader.stop()
    paused, going_on = capsys.readouterr().err.splitlines()
    assert paused.startswith("mqtt: paused, as the disk of the log in ")
    assert going_on == f"mqtt: receiving from {there.address} again"


def test_a_broker_that_is_away_is_reported_once(
    readers: Readers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    reader = readers(path=f"tcp://127.0.0.1:{port}")
    reader.initialOffset()
    said: list[str] = []

    def heard(word: str) -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return any(word in line for line in said)

    until(lambda: heard("no connection"))
    with broker(port=port):
        until(lambda: heard("again"))
        reader.stop()
    said.extend(capsys.readouterr().err.splitlines())
    no_connection, again = said
    assert no_connection.startswith(f"mqtt: no connection to 127.0.0.1:{port}: ")
    assert again == f"mqtt: receiving from 127.0.0.1:{port} again"


def test_the_disk_has_everything_before_a_segment_goes(
    readers: Readers, there: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    reader = readers()
    start = reader.initialOffset()
    for offset in (5, 10, 19, 30):
        reader.commit({**start, "offset": offset})
    reader.stop()
    assert seen == [[0, 10, 20, 30], [10, 20, 30]]
    assert there_are() == [30]


def test_a_limit_below_the_start_never_goes_back_and_available_now_goes_no_further(
    readers: Readers, there: Broker, tmp_path: Path
) -> None:
    reader = readers(quietMs="300")
    start = reader.initialOffset()
    until(lambda: _subscribed(tmp_path))
    publish(there, _numbered(tmp_path, range(10)))
    reader.prepareForTriggerAvailableNow()
    publish(there, _numbered(tmp_path, range(10, 15)))
    until(lambda: reader.reportLatestOffset()["offset"] == 15)
    assert reader.latestOffset()["offset"] == 10
    four = reader.latestOffset(start, ReadMaxRows(4))
    assert four["offset"] == 4
    assert reader.latestOffset(four, ReadMaxRows(4))["offset"] == 8
    assert reader.partitions(four, four) == []


def test_the_log_is_waited_for_while_the_query_before_ends_and_no_longer(
    readers: Readers, there: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log.Writer(tmp_path / "log")
    with monkeypatch.context() as patch:
        patch.setattr(source, "LOCK_PATIENCE", 0.1)
        with pytest.raises(log.LogError, match=f"is in use by process {os.getpid()}"):
            readers().initialOffset()
    ending = threading.Timer(0.3, before.close)
    ending.start()
    reader = readers()
    assert reader.initialOffset()["log"] == before.id
    reader.stop()
    ending.join()
