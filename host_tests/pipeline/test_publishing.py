"""format("mqtt") as a sink: rows of Spark reach the subscribers of a real broker."""

import contextlib
import json
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import sizes
from flatmq import MQTTError
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import log, refusals
from flatmq_tools.pipeline.options import parse_sink
from flatmq_tools.pipeline.publishing import Done, PublishError, StreamWriter
from flatmq_tools.ports import free_port
from pipeline.mqtt import broker, certificate, receiving, until

Got = Callable[[int], list[tuple[Any, ...]]]


@contextlib.contextmanager
def subscriber(there: Broker, topic: str) -> Iterator[Got]:
    """An ingest at up to QoS 2; yield what waits for so many messages and returns all of them."""
    with tempfile.TemporaryDirectory() as folder, log.Writer(Path(folder)) as writer:
        ingest = receiving(there, writer, topic, qos=2)

        def got(count: int) -> list[tuple[Any, ...]]:
            until(lambda: writer.synced >= count)
            found = log.read(writer.folder, 0, writer.synced) if writer.synced else ()
            names = ("topic", "payload", "qos", "retain")
            return [tuple(row[n] for n in names) for rows in found for row in rows.to_pylist()]

        yield got
        ingest.stop()


def schema(columns: str) -> StructType:
    """Columns, each a name and a type."""
    made = StructType()
    for column in columns.split(", "):
        made.add(*column.split())
    return made


def batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows))


def numbered(numbers: Iterable[int], topic: str) -> pa.RecordBatch:
    return batch({"topic": topic, "payload": b"%d" % n} for n in numbers)


def writer(
    address: str, columns: str = "topic string, payload binary", **options: Any
) -> StreamWriter:
    given = {name: str(value) for name, value in options.items()}
    url = {"brokerUrl": address if ":/" in address else f"tcp://{address}"}
    return StreamWriter(parse_sink({**url, **given}), schema(columns))


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
def test_rows_have_qos_retain_and_any_size(there: Broker, version: str) -> None:
    cases = (
        (0, 0, True), (1, 1, None), (127, 2, False), (128, None, True), (16_500, 2, True),
        (700_000, 1, False), (5, 2, None),
    )  # fmt: skip
    rows = [
        {"topic": f"any/{version}/{n}", "payload": bytes(size), "qos": qos, "retain": retain}
        for n, (size, qos, retain) in enumerate(cases)
    ]
    columns = "topic string, payload binary, qos integer, retain boolean"
    sink = writer(there.address, columns, mqttVersion=version, qos=2)
    with subscriber(there, f"any/{version}/#") as got:
        assert sink.write(iter([batch(rows)])) == Done(len(rows))
        messages = got(len(rows))
    # A broker passes each QoS on in its order; a row without one has that of the option.
    for level in range(3):
        found = [message for message in messages if message[2] == level]
        assert found == [
            (row["topic"], row["payload"], level, 0)
            for row in rows
            if (2 if row["qos"] is None else row["qos"]) == level
        ]
    with subscriber(there, f"any/{version}/#") as late:
        kept = [topic for topic, _, _, retain in late(2) if retain]
    assert kept == [row["topic"] for row in rows if row["retain"] and row["payload"]]


@pytest.mark.parametrize("version", sizes.sample(["3.1.1", "5"], 1))
def test_a_broker_that_ends_in_the_middle_gets_every_row(version: str, tmp_path: Path) -> None:
    keeps = f"persistence true\npersistence_location {tmp_path}/"
    with broker(keeps) as there, subscriber(there, "#") as got:
        restarted = threading.Event()

        def restart() -> None:
            got(1_500)
            assert there.pid is not None
            os.kill(there.pid, signal.SIGTERM)  # it saves its sessions
            until(lambda: there.status is not None)
            there.restart()
            restarted.set()

        def parts() -> Iterator[pa.RecordBatch]:
            for n in range(10):
                if n == 8:
                    assert restarted.wait(60)
                yield numbered(range(n * 1_000, n * 1_000 + 1_000), "n")

        helper = threading.Thread(target=restart)
        helper.start()
        assert writer(there.address, mqttVersion=version).write(parts()) == Done(10_000)
        helper.join()
        until(lambda: len({payload for _, payload, _, _ in got(0)}) == 10_000)
        first = dict.fromkeys(int(payload) for _, payload, _, _ in got(0))
    assert list(first) == list(range(10_000)), "what came first came in order"


BAD = [
    ("a/+", b"x", 1, "topic name b'a/+': wildcards are not allowed"),
    ("", b"x", 1, "topic name b'': must not be empty"),
    (None, b"x", 1, "topic is null"),
    ("t", None, 1, "payload is null: an empty message has an empty payload"),
    ("t", b"x", 3, "qos must be 0 to 2, not 3"),
]


def test_rows_that_cannot_be_published_do_not_stop_the_others(
    there: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"topic": f"good/{n}", "payload": b"%d" % n, "qos": 1} if n % 20 else
        dict(zip(("topic", "payload", "qos"), BAD[n // 20], strict=False))
        for n in range(100)
    ]  # fmt: skip
    columns = "topic string, payload binary, qos integer"
    sink = writer(there.address, columns, badRows=tmp_path / "bad")
    with subscriber(there, "good/#") as got:
        done = sink.write(iter([batch(rows)]))
        assert [payload for _, payload, _, _ in got(95)] == [
            b"%d" % n for n in range(100) if n % 20
        ]
    assert (done.rows, done.bad) == (100, 5)
    sink.commit([done, None, Done(7)], 12)
    (file,) = (tmp_path / "bad").iterdir()
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        {"batch": 12, "topic": topic, "reason": reason, **({"payload": "x"} if payload else {})}
        for topic, payload, _, reason in BAD
    ]
    said = capfd.readouterr().err
    assert said.startswith("mqtt: batch 12: 5 of 107 rows were not published: topic name b'a/+'")
    assert f"; and 2 other reasons; see {file}" in said

    failing = writer(there.address, columns, onBadRow="fail")
    with subscriber(there, "good/#") as got:
        with pytest.raises(PublishError, match=r"5 of 100 rows .* topic name b'a/\+'"):
            failing.write(iter([batch(rows)]))
        got(95)


@pytest.mark.parametrize("version", sizes.sample(["3.1.1", "5"], 1))
def test_a_message_that_the_broker_does_not_take_is_set_aside(version: str) -> None:
    with broker("max_packet_size 2000") as there, subscriber(there, "#") as got:
        rows = [{"topic": f"t/{n}", "payload": bytes(3_000 if n == 5 else 3)} for n in range(10)]
        done = writer(there.address, mqttVersion=version).write(iter([batch(rows)]))
        # The broker ends the connection, and what it had not acknowledged then comes twice.
        taken = {f"t/{n}" for n in range(10) if n != 5}
        until(lambda: {topic for topic, *_ in got(0)} >= taken)
        assert {topic for topic, *_ in got(0)} == taken
    assert (done.rows, done.bad) == (10, 1)
    assert done.kept[0].topic == "t/5"


def test_a_broker_that_is_not_there_or_refuses_fails_the_batch(tmp_path: Path) -> None:
    one = [numbered([1], "t")]
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(PublishError, match=f"{nobody} has acknowledged nothing for 1 s"):
        writer(nobody, patience=1).write(iter(one))
    assert writer(nobody, patience=1).write(iter([])) == Done(0), "nothing to publish"
    with broker(users={"u": "right"}) as there:
        with pytest.raises(PublishError, match=f"{there.address} refuses the client: .*code 5"):
            writer(there.address, username="u", password="wrong").write(iter(one))
        assert writer(there.address, username="u", password="right").write(iter(one)) == Done(1)
    cert, key = certificate(tmp_path)
    port = free_port()
    with broker(f"listener {port} 127.0.0.1\ncertfile {cert}\nkeyfile {key}"):
        url = f"ssl://127.0.0.1:{port}"
        assert writer(url, caFile=cert).write(iter(one)) == Done(1)
        with pytest.raises(PublishError, match="certificate"):
            writer(url).write(iter(one))


def test_a_refusal_that_may_pass_is_not_final() -> None:
    """A broker that is unavailable or busy, or has a quota, is asked again."""
    passing = (3, 0x88, 0x89, 0x97, 0x9F)
    lasting = (1, 2, 4, 5, 0x81, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x90, 0x9D)
    found = [refusals.final(MQTTError("refused", "", code)) for code in passing + lasting]
    assert found == [False] * len(passing) + [True] * len(lasting)


def test_a_table_is_published_in_the_order_of_each_part(
    spark: SparkSession, there: Broker
) -> None:
    rows = spark.range(0, 2_000, 1, 2).selectExpr(
        "concat('table/', spark_partition_id()) AS topic", "CAST(id AS STRING) AS payload"
    )
    with subscriber(there, "table/#") as got:
        rows.write.format("mqtt").mode("append").save(f"tcp://{there.address}")
        found = got(2_000)
    for part in range(2):
        numbers = [int(payload) for topic, payload, *_ in found if topic == f"table/{part}"]
        assert numbers == list(range(part * 1_000, part * 1_000 + 1_000))


def test_a_stream_goes_on_after_a_restart_and_a_batch_done_again_is_published_again(
    spark: SparkSession, there: Broker, tmp_path: Path
) -> None:
    """Aggregates, all of which are published with each batch in this mode."""

    def run(lines: dict[str, str]) -> None:
        for name, text in lines.items():
            (tmp_path / "in").mkdir(exist_ok=True)
            (tmp_path / "in" / name).write_text(text)
        words = spark.readStream.schema("value string").text(str(tmp_path / "in"))
        counts = words.groupBy("value").count().selectExpr(
            "concat('count/', value) AS topic", "CAST(count AS STRING) AS payload"
        )  # fmt: skip
        folders = {"checkpointLocation": tmp_path / "checkpoint", "badRows": tmp_path / "bad"}
        writer = counts.writeStream.format("mqtt").option("retain", True)
        writer = writer.options(**{name: str(folder) for name, folder in folders.items()})
        writer = writer.outputMode("complete").trigger(availableNow=True)
        query = writer.start(f"tcp://{there.address}")
        until(lambda: not query.isActive)
        assert query.exception() is None

    with subscriber(there, "count/#") as got:
        run({"1": "a\na\nb\n+\n"})
        got(2)
        run({"2": "a\nc\n"})
        got(5)
        run({})
        # As after a crash before Spark noted that the batch was done: it is published again.
        (tmp_path / "checkpoint" / "commits" / "1").unlink()
        (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink()
        run({})
        messages = got(8)
    assert len(messages) == 8
    assert sorted(messages[:2]) == [("count/a", b"2", 1, 0), ("count/b", b"1", 1, 0)]
    last = [("count/a", b"3", 1, 0), ("count/b", b"1", 1, 0), ("count/c", b"1", 1, 0)]
    assert sorted(messages[2:5]) == sorted(messages[5:]) == last
    lines = [file.read_text() for file in (tmp_path / "bad").iterdir()]
    assert sorted(json.loads(line)["batch"] for line in lines) == [0, 1, 1]
    for line in lines:
        assert json.loads(line)["reason"] == "topic name b'count/+': wildcards are not allowed"


def test_columns_and_options_that_the_sink_does_not_have_are_named(spark: SparkSession) -> None:
    for columns, said in (
        ("topic string, payload string, device string", "column device: the sink has topic, p"),
        ("topic string, payload integer", "column payload: string or binary, not int"),
        ("topic string", "column payload is missing"),
        ("payload string", "column topic is missing, and so is the option topic"),
    ):
        with pytest.raises(ValueError, match=said):
            writer("b", columns)
    rows = spark.sql("SELECT 't' AS topic, 'x' AS payload").write.format("mqtt")
    with pytest.raises(Exception, match="append, as a broker has nothing to replace"):
        rows.mode("overwrite").save("tcp://127.0.0.1:1")
    with pytest.raises(Exception, match=r"(?i)localStore: no such option; did you mean localSt"):
        rows.mode("append").option("localStore", "x").save("tcp://127.0.0.1:1")
