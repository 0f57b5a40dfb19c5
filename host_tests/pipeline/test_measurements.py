"""Messages as measurements: what the packs say, no reading twice, and what is none, with why."""

import datetime
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import cbor2
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from flatmq_tools.pipeline.delta_batches import follow
from flatmq_tools.pipeline.jobs import columns, measurements, parsing
from pipeline.messages import SCHEMA, START, Message, at, both_ways, frame, land, reading
from pipeline.mqtt import PATIENCE
from pipeline.test_hostile_packs import HOSTILE

DEAD = [(b"", "topic: not a text in UTF-8"), *HOSTILE]
COLUMNS = [
    "device", "boot", "seq", "quantity", "unit", "time", "value", "text", "flag", "total",
    "topic", "received",
]  # fmt: skip


def told(values: Iterable[Row], *devices: str) -> list[tuple[object, ...]]:
    """device, boot, seq, quantity, unit, seconds after START, value, text, flag."""
    return [
        (r.device, r.boot, r.seq, r.quantity, r.unit, (utc(r.time) - START).total_seconds(),
         r.value, r.text, r.flag)
        for r in values if r.device in devices
    ]  # fmt: skip


def utc(local: datetime.datetime) -> datetime.datetime:
    """Spark gives a time of this machine, without its zone."""
    return local.astimezone(datetime.timezone.utc)


START_S = int(START.timestamp())
KINDS = [
    Message(
        "dev/pico-1/telemetry",
        b'[{"bn":"pico-1/","n":"boot","v":7},{"n":"seq","v":12},{"n":"door","vb":false},'
        b'{"n":"says","vs":"hi"},{"n":"raw","vd":"aGk"},'
        b'{"n":"lid/temp","u":"Cel","v":2,"t":-3}]  ',
        10,
    ),
    reading("pico-2", 3, 9, 11.5, time=8),
    Message(
        "dev/esp/telemetry",
        cbor2.dumps(
            [{-2: "esp/", -3: START_S + 4, 0: "boot", 2: 1}, {0: "seq", 2: 5},
             {0: "temp", 1: "Cel", 2: 1.5}]
        ),
        12,
    ),
    Message("dev/plain/telemetry", b'[{"n":"plain/level","u":"m","v":1}]', 13),
    Message("dev/bare/telemetry", b'[{"n":"level","v":1},{"n":"much","u":"m","v":NaN}]', 14),
    Message("dev/pico-1/status", b"online", 15),
]  # fmt: skip
# A reading is in once; those without an identity are all in.
BARE = Message("dev/d/telemetry", b'[{"n":"d/level","v":1}]', 6)
COPIES = [
    reading("c", 1, 1, 5), reading("c", 1, 1, 5)._replace(at=7.0), reading("c", 2, 1, 8),
    reading("d", 1, 1, 8.5), BARE, BARE, BARE._replace(at=9.0),
]  # fmt: skip


@pytest.fixture(scope="module")
def packs(spark: SparkSession) -> DataFrame:
    """Of all of these, read once."""
    dead = [Message("dev/x/telemetry", payload, n, n % 3) for n, (payload, _) in enumerate(DEAD)]
    table = frame(spark, [*dead, *KINDS, *COPIES])
    not_utf8 = F.when(F.col("offset") == 0, F.unhex(F.lit("6465762FFF2F74656C656D65747279")))
    table = table.withColumn("topic", F.coalesce(not_utf8.cast("string"), "topic"))
    return measurements.packs(table).persist()


@pytest.fixture(scope="module")
def values(packs: DataFrame) -> list[Row]:
    found = measurements.values(measurements.once(packs))
    assert found.columns == COLUMNS
    return list(found.orderBy("received", "device", "quantity", "time").collect())


def test_every_kind_of_pack(values: list[Row]) -> None:
    first = ("pico-1", 7, 12)
    assert told(values, "pico-1", "pico-2", "esp", "plain", "bare") == [
        (*first, "door", "", 10, None, None, False),
        (*first, "lid/temp", "Cel", 7, 2.0, None, None),
        (*first, "raw", "", 10, None, "aGk", None),
        (*first, "says", "", 10, None, "hi", None),
        ("pico-2", 3, 9, "chip/temp", "Cel", 8, 21.5, None, None),
        ("esp", 1, 5, "temp", "Cel", 4, 1.5, None, None),
        ("plain", None, None, "level", "m", 13, 1.0, None, None),
        ("bare", None, None, "level", "", 14, 1.0, None, None),
        ("bare", None, None, "much", "m", 14, None, None, None),
    ]


def test_no_reading_twice_and_none_without_identity_lost(values: list[Row]) -> None:
    found = told(values, "c", "d")
    assert [(device, boot, seq, time) for device, boot, seq, _, _, time, *_ in found] == [
        ("c", 1, 1, 5), ("d", None, None, 6), ("d", None, None, 6), ("c", 2, 1, 8),
        ("d", 1, 1, 8.5), ("d", None, None, 9),
    ]  # fmt: skip


def test_dead_letters_are_whole_and_say_why(packs: DataFrame) -> None:
    dead = measurements.dead(packs)
    assert dead.columns == [*columns.MESSAGE, "reason"]
    rows = dead.orderBy("offset").collect()
    first = dead.where("offset = 0").toArrow()  # whose texts must be UTF-8
    assert first["topic"].to_pylist() == ["dev/\ufffd/telemetry"]
    for n, (row, (payload, why)) in enumerate(zip(rows, DEAD, strict=True)):
        assert (bytes(row.payload), row.offset, row.qos) == (payload, n, n % 3)
        assert utc(row.timestamp) == at(n)
        assert why in row.reason and len(row.reason) <= 300
    counts = Counter(re.sub(parsing.DIFFERS, "", row.reason) for row in rows)
    assert sum(counts.values()) == len(DEAD)
    assert counts["time: not within the years 1 to 9999"] == 3
    assert counts["v: not a number"] == 2


def test_packs_of_boards_are_read_at_once() -> None:
    for time in (None, 5):
        payload = reading("pico-1", 7, 12, 6, time).payload
        assert parsing.Columns(True)._taken(payload, 0, "pico-1")
    board = reading("pico-1", 7, 12, 6, 5)
    at_once, resolved = both_ways(board.topic.encode(), board.payload, 0)
    assert at_once == resolved
    assert at_once[0][0]["records"][0]["value"] == 21.5  # type: ignore[index]


def test_a_pack_is_as_old_as_its_newest_record() -> None:
    payload = (
        b'[{"bn":"p/","n":"boot","v":1,"bt":%d},{"n":"seq","v":1},{"n":"a","v":1,"t":-60},'
        b'{"n":"b","v":1,"t":0.75}]' % START_S
    )
    for found in both_ways(b"dev/p/telemetry", payload, 1):
        ((pack,),) = found
        assert (pack["told"], pack["time"]) == (True, at(0.75))


def test_packs_of_other_topics_name_their_devices(spark: SparkSession) -> None:
    """As in section 5.1 of RFC 8428: one reading, several devices, and a sum."""
    gateway = b"""[{"bn":"2001:db8::2/","bt":1.320078429e+09,"n":"temperature","u":"Cel","v":27.2},
                   {"n":"humidity","u":"%RH","v":80},
                   {"bn":"2001:db8::3/","n":"energy","u":"J","s":5}]"""
    one = b'[{"n":"urn:dev:ow:10e2073a01080063","u":"Cel","v":23.1}]'
    other = Message("other", b"no pack, and nobody asked for it")
    table = frame(spark, [Message("a", one), Message("a/b/c", gateway), other])
    found = measurements.measurements(table, filters=["a/#"]).collect()
    assert {(r.device, r.quantity, r.unit, r.value, r.total) for r in found} == {
        ("urn:dev:ow:10e2073a01080063", "urn:dev:ow:10e2073a01080063", "Cel", 23.1, None),
        ("2001:db8::2", "temperature", "Cel", 27.2, None),
        ("2001:db8::2", "humidity", "%RH", 80.0, None),
        ("2001:db8::3", "energy", "J", None, 5.0),
    }
    assert not measurements.dead(measurements.packs(table, filters=["a/#"])).count()


def test_a_stream_drops_copies_and_keeps_what_comes_late(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies in later batches, after the watermark, too; an hour late is in. Without pandas."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    sent = [(1, 0), (1, 1)], [(1, 30), (2, 60)], [(3, 3600)], [(4, 3601), (3, 3602)]
    for batch in sent:
        land(tmp_path, [reading("a", 1, n, s, time=10 if n == 4 else None) for n, s in batch])
    stream = follow(spark, str(tmp_path / "raw"), SCHEMA, rows=1)
    query = measurements.measurements(stream).writeStream.format("memory").queryName("found")
    assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    found = spark.table("found").collect()
    assert sorted((r.seq, utc(r.received)) for r in found) == [
        (1, at(0)), (2, at(60)), (3, at(3600)), (4, at(3601)),
    ]  # fmt: skip


def test_another_table_is_named_as_such(spark: SparkSession) -> None:
    table = frame(spark, [Message("x", b"\x00")])
    more = table.selectExpr("'more' as more", *reversed(table.columns))
    assert columns.messages(more).dtypes == [*columns.MESSAGE.items()]
    with pytest.raises(columns.ColumnsError, match="no column payload"):
        columns.messages(table.drop("payload"))
    with pytest.raises(columns.ColumnsError, match="column qos is bigint"):
        measurements.packs(table.selectExpr("* except (qos)", "bigint(qos) as qos"))


def test_what_is_no_filter() -> None:
    for filt in ("a+/b", "#/a", "a/b#"):
        with pytest.raises(ValueError, match="no topic filter"):
            parsing.Reads(filters=[filt])
