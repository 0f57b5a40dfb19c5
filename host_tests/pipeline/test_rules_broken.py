"""Messages that break a rule of MQTT, as some brokers pass on, are kept and hold up no other."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import peer
from flatmq_tools.broker import Broker, embedded
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.ingest import Ingest
from flatmq_tools.pipeline.jobs import measurements
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.run import Plan
from pipeline.landed import read
from pipeline.messages import pack
from pipeline.mqtt import PATIENCE, publish, until
from pipeline.started import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Topic names as bytes and as text, and why a message with one is a dead letter.
NAMES = [
    (b"dev/x/+", "dev/x/+", "topic name: wildcards are not allowed"),
    (b"dev/#", "dev/#23", "topic name: wildcards are not allowed"),
    (b"dev/+/telemetry", "dev/+/telemetry", "topic name: wildcards are not allowed"),
    (b"dev/\0/telemetry", "dev/#00/telemetry", "topic name: U+0000 is not allowed"),
    (b"", "", "topic name: empty"),
    (b"dev/\xff\xfe/telemetry", "dev/#FF#FE/telemetry", "topic name: not UTF-8"),
]
PASSED_ON = NAMES[:-1]  # the embedded broker closes the connection of who publishes the last one
TWICE = b"\x03\0\1a\x03\0\1b"  # Content Type


def publish_bytes(there: Broker, version: int, packet: bytes) -> None:
    """Publish a packet at QoS 1 that no client lets through, and wait until the broker has it."""
    none = b"\0" if version == 5 else b""
    hello = b"\0\4MQTT" + bytes((version, 2, 0, 60)) + none + b"\0\3raw"
    with socket.create_connection((there.host, there.port), PATIENCE) as made:
        for sent, first in ((peer.packet(0x10, hello), 0x20), (packet, 0x40)):
            made.sendall(sent)
            assert made.recv(100)[0] == first
        made.sendall(b"\xe0\0")


def message(version: int, name: bytes, payload: bytes, block: bytes = b"") -> bytes:
    """A PUBLISH at QoS 1 with these properties."""
    carried = bytes((len(block),)) + block if version == 5 else b""
    return peer.packet(0x32, peer.text(name) + b"\0\1" + carried + payload)


@pytest.mark.parametrize("version", [4, 5])
def test_they_become_dead_letters_and_all_others_flow(
    version: int, spark: SparkSession, tmp_path: Path
) -> None:
    good = pack("a", 1, 1)
    bad = [message(version, name, good) for name, _, _ in PASSED_ON]
    with embedded(version=version) as there, log.Writer(tmp_path) as writer:
        for turn in range(2):  # a second time, on another connection
            ingest = Ingest(writer, (there.host, there.port), ["#"], 1, version=version)
            ingest.start(int(PATIENCE * 1000))
            ingest.background()
            for seq, packet in enumerate(bad):
                publish_bytes(there, version, packet)
                publish(there, [("dev/a/telemetry", pack("a", 1 + turn, seq))], version=version)
            until(lambda: writer.synced >= 2 * len(bad) * (turn + 1))  # noqa: B023
            ingest.stop()
            assert ingest.client.stats.losses == 0
        table = pa.Table.from_batches(log.read(tmp_path, 0, writer.synced))
    frame = spark.createDataFrame(table)

    kept = Counter((row.topic, bytes(row.payload)) for row in frame.collect())
    assert kept.total() == 4 * len(bad)
    assert all(kept[text, good] == 2 for _, text, _ in PASSED_ON)
    packs = measurements.packs(frame)
    dead = Counter((row.topic, row.reason) for row in measurements.dead(packs).collect())
    assert dead == Counter({(text, reason): 2 for _, text, reason in PASSED_ON})
    found = Counter((row.boot, row.seq) for row in measurements.values(packs).collect())
    assert found == Counter((1 + turn, seq) for turn in range(2) for seq in range(len(bad)))


def test_each_has_its_reason_and_its_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """Also if the embedded broker would not pass it on."""
    with log.Writer(tmp_path) as writer:
        for name, _, _ in NAMES:
            writer.append(message(4, name, b"x"), 1, 0)
        writer.append(message(5, b"any/topic", b"x", TWICE), 1, 0, 5)
    frame = spark.createDataFrame(pa.Table.from_batches(log.read(tmp_path, 0, 7)))
    dead = measurements.dead(measurements.packs(frame)).orderBy("offset").collect()
    assert [(row.topic, row.reason) for row in dead] == [
        *((text, reason) for _, text, reason in NAMES),
        ("any/topic", "properties: not valid"),
    ]
    last = frame.where("offset = 6").head()
    assert last is not None
    assert (bytes(last.invalid_properties), last.content_type) == (TWICE, None)


def test_a_run_makes_properties_that_break_a_rule_a_dead_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with log.Writer(tmp_path / "log") as writer:
        writer.append(message(5, b"dev/a/telemetry", pack("a", 1, 1), TWICE), 1, 0, 5)
        writer.rotate()
        Landing(writer, str(out)).land()
    with started(spark, Plan(out, jobs=["measurements"], trigger=0.3)) as running:
        until(lambda: running.look() or running.rows == 1)
        running.finish()
    assert [row["reason"] for row in read(out / "dead_letters")] == ["properties: not valid"]
    assert read(out / "measurements") == []
