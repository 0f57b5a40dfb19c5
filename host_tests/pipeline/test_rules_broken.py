"""Messages that break a rule of MQTT, as some brokers pass on, are dead letters."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import peer
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.jobs import measurements
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.run import Plan
from pipeline.landed import read
from pipeline.messages import pack
from pipeline.mqtt import until
from pipeline.started import started

# Topic names as bytes and as text, and why a message with one is a dead letter.
NAMES = [
    (b"dev/x/+", "dev/x/+", "topic name: wildcards are not allowed"),
    (b"dev/#", "dev/#23", "topic name: wildcards are not allowed"),
    (b"dev/+/telemetry", "dev/+/telemetry", "topic name: wildcards are not allowed"),
    (b"dev/\0/telemetry", "dev/#00/telemetry", "topic name: U+0000 is not allowed"),
    (b"", "", "topic name: empty"),
    (b"dev/\xff\xfe/telemetry", "dev/#FF#FE/telemetry", "topic name: not UTF-8"),
]
TWICE = b"\x03\0\1a\x03\0\1b"  # Content Type


def message(version: int, name: bytes, payload: bytes, block: bytes = b"") -> bytes:
    """A PUBLISH at QoS 1 with these properties."""
    carried = bytes((len(block),)) + block if version == 5 else b""
    return peer.packet(0x32, peer.text(name) + b"\0\1" + carried + payload)


def test_each_has_its_reason_and_its_bytes(spark: SparkSession, tmp_path: Path) -> None:
    """In a run as in a query of one's own, and the next message is read."""
    out, good = tmp_path / "out", pack("a", 1, 1)
    with log.Writer(tmp_path / "log") as writer:
        for name, _, _ in NAMES:
            writer.append(message(4, name, good), 1, 0)
        writer.append(message(5, b"any/topic", good, TWICE), 1, 0, 5)
        writer.append(message(5, b"dev/a/telemetry", good), 1, 0, 5)
        writer.rotate()
        Landing(writer, str(out)).land()
    dead = [*((text, why) for _, text, why in NAMES), ("any/topic", "properties: not valid")]

    raw = read(out / "raw")
    assert [row["topic"] for row in raw] == [*(text for text, _ in dead), "dev/a/telemetry"]
    assert (raw[6]["invalid_properties"], raw[6]["content_type"]) == (TWICE, None)
    packs = measurements.packs(spark.createDataFrame(pa.Table.from_pylist(raw, log.SCHEMA)))
    rows = measurements.dead(packs).orderBy("offset").collect()
    assert [(row.topic, row.reason, bytes(row.payload)) for row in rows] == [
        (*each, good) for each in dead
    ]
    assert [row.boot for row in measurements.values(packs).collect()] == [1]
    with started(spark, Plan(out, jobs=["measurements"], trigger=0.3)) as running:
        until(lambda: running.look() or running.rows == 8)
        running.finish()
    assert [(row["topic"], row["reason"]) for row in read(out / "dead_letters")] == dead
    assert [row["seq"] for row in read(out / "measurements")] == [1]
