"""A mixed fleet through the jobs: our boards, a Zigbee2MQTT bridge, a Tasmota plug, and others."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from pipeline.messages import START, Message, at, frame, reading
from pipeline.mqtt import broker, publish, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["zigbee2mqtt", "tasmota", "plain=house"]
PLUG = b'{"Time":"2026-03-01T12:00:00","ENERGY":{"Power":42,"Voltage":229}}'
SENSOR = b'{"temperature":20.5,"contact":true,"last_seen":"2026-03-01T12:00:05Z"}'
FLEET = [
    reading("pico-1", 3, 9, 1, time=0),
    Message("zigbee2mqtt/door", SENSOR, 6),
    Message("tele/plug/SENSOR", PLUG, 7),
    Message("house/kitchen/mode", b"night", 8),
    Message("zigbee2mqtt/door/set", b'{"state":"ON"}', 9),
    Message("zigbee2mqtt/door", b'{"half":"\\ud83d"}', 10),
    Message("zigbee2mqtt/door", b"\xff", 11),
    Message("dev/pico-2/telemetry", b"no pack", 12),
    Message("elsewhere/door", SENSOR, 13),
    Message("dev/pico-1/status", b"online", 14),
]
VALUES = [
    ("door", None, "contact", "", 5.0, None, None, True),
    ("door", None, "temperature", "Cel", 5.0, 20.5, None, None),
    ("kitchen", None, "mode", "", 8.0, None, "night", None),
    ("pico-1", 9, "chip/temp", "Cel", 0.0, 21.5, None, None),
    ("plug", None, "ENERGY/Power", "W", 7.0, 42.0, None, None),
    ("plug", None, "ENERGY/Voltage", "V", 7.0, 229.0, None, None),
]


def rows(found: list[Any]) -> list[tuple[object, ...]]:
    """Sorted, with the time in seconds after START."""
    return sorted(
        (
            r["device"], r["seq"], r["quantity"], r["unit"],
            (r["time"].astimezone(datetime.timezone.utc) - START).total_seconds(),
            r["value"], r["text"], r["flag"],
        )
        for r in found
    )  # fmt: skip


def test_of_a_batch(spark: SparkSession) -> None:
    from flatmq_tools.pipeline.jobs import measurements

    packs = measurements.packs(frame(spark, FLEET), mapping=measurements.mapped(NAMES)).persist()
    assert rows(measurements.values(packs).collect()) == VALUES
    dead = {(r.topic, bytes(r.payload), r.reason) for r in measurements.dead(packs).collect()}
    assert {(topic, payload) for topic, payload, _ in dead} == {
        (m.topic, m.payload) for m in FLEET[5:8]
    }
    assert any("half = '\\ud83d': not a text of Unicode" in reason for _, _, reason in dead)
    packs.unpersist()


def test_dead_letters_of_a_kind_are_counted_together(spark: SparkSession) -> None:
    from flatmq_tools.pipeline.jobs import measurements

    payloads = [
        *(b'{"last_seen":"2026-03-01T12:00:0%d"}' % n for n in range(3)),
        b'{"last_seen":"now:"}', b'{"last_seen":"then"}', b"\xff", b"a\xfe", b"{", b'{"a":',
    ]  # fmt: skip
    table = frame(spark, [Message("zigbee2mqtt/x", payload) for payload in payloads])
    dead = measurements.dead_letters(table, mapping=measurements.mapped(["zigbee2mqtt"]))
    assert {row.kind: row["count"] for row in measurements.counted(dead).collect()} == {
        "time: has no offset from UTC; set `zone` for it": 3,
        "time: not a date and time of ISO 8601": 2,
        "not JSON: not UTF-8": 2,
        "not JSON: Expecting property name enclosed in double quotes": 1,
        "not JSON: Expecting value": 1,
    }


def test_a_mapping_reads_every_message_as_it_does_without_spark(spark: SparkSession) -> None:
    """With topic names that Java's regular expressions and Python's might see differently."""
    from flatmq_tools.pipeline.jobs import measurements

    mapping = measurements.mapped(["zigbee2mqtt=a.b", "plain", "shelly-gen2"])
    assert mapping is not None
    topics = [
        "a.b/x", "aXb/x", "a.b/x/availability", "a.b/bridge/x", "a.b", "a.b/", "a.b/x\n", "$SYS/x",
        "é/ü", "x", "x/", "/x", "//", "shelly/events/rpc", "dev/a/telemetry", "dev/a/b/telemetry",
        "a b/c-d",
    ]  # fmt: skip
    table = frame(spark, [Message(topic, b"21.5", n) for n, topic in enumerate(topics)])
    found: dict[str, list[Any]] = {}
    for row in measurements.packs(table, mapping=mapping).collect():
        said = row.reason or (row.device, [(r.quantity, r.value) for r in row.records])
        found.setdefault(row.topic, []).append(said)
    for n, topic in enumerate(topics):
        read = mapping.reading(topic, b"21.5", round(at(n).timestamp() * 1e6))
        expected = [read.reason] if read.reason else [
            (p.device, [(r.quantity, r.value) for r in p.records]) for p in read.packs
        ]  # fmt: skip
        assert found.get(topic, []) == expected, topic


def test_senml_below_other_topics(spark: SparkSession, tmp_path: Path) -> None:
    from flatmq_tools.pipeline.jobs import measurements

    own = tmp_path / "own.toml"
    own.write_text('[[rule]]\ntopic = "site/{device}/senml"\nformat = "senml"\n')
    payload = b'[{"n":"boot","v":1},{"n":"seq","v":2},{"n":"level","u":"m","v":1.5}]'
    other = b'[{"bn":"b/","n":"boot","v":1},{"n":"seq","v":2},{"n":"level","u":"m","v":1.5}]'
    messages = [Message("site/a/senml", payload, 1), Message("site/a/senml", other, 2)]
    mapping = measurements.mapped([str(own)])
    good, bad = (
        measurements.packs(frame(spark, messages), mapping=mapping).orderBy("offset").collect()
    )
    assert (good.device, good.boot, good.seq, good.records[0].quantity) == ("a", 1, 2, "level")
    assert "device 'b': the topic names 'a'" in bad.reason
    assert mapping is not None
    read = mapping.read("site/a/senml", payload, 0)
    assert read is not None
    assert (read[0].device, read[0].seq, read[0].records[0].value) == ("a", 2, 1.5)


def test_health_without_numbers(spark: SparkSession) -> None:
    """Two messages each minute, and a door that is opened now and then."""
    from flatmq_tools.pipeline.jobs import health, measurements

    plug = [
        Message(f"tele/plug/{kind}", b'{"POWER":"ON"}', 60 * n + more)
        for n in range(11) for kind, more in (("STATE", 0), ("SENSOR", 0.1))
    ]  # fmt: skip
    door = [Message("zigbee2mqtt/door", b"{}", at) for at in (0, 10, 900, 920, 1790)]
    old = Message("zigbee2mqtt/gone", SENSOR, 1, retain=True)
    again = Message("zigbee2mqtt/door", b"{}", 1791, dup=True)
    numbered = [reading("pico-1", 3, n, 100 * n) for n in (1, 2, 4)]
    end = Message("elsewhere", b"", 1800)
    fleet = [*plug, *door, old, again, *numbered, end, Message("tele/plug/STATE", b"{", 1000)]
    mapping = measurements.mapped(NAMES)
    with health.Health(frame(spark, fleet), mapping=mapping) as known:
        rows = {row.device: row for row in known.devices().collect()}
        heard = known.heard.groupBy("device").count().collect()
    assert {row.device: row["count"] for row in heard} == {
        "plug": 22, "door": 6, "gone": 1, "pico-1": 3
    }  # fmt: skip
    counts = ("boots", "received", "duplicates", "lost", "reboots", "reordered")
    found = {device: tuple(row[name] for name in counts) for device, row in rows.items()}
    assert found == {
        "plug": (0, 22, 0, None, None, None),
        "door": (0, 5, 1, None, None, None),
        "gone": (0, 0, 1, None, None, None),
        "pico-1": (1, 3, 0, 1, 0, 0),
    }
    assert rows["plug"].usual_s == pytest.approx(59.9)
    assert (rows["plug"].silent_s, rows["plug"].silent) == (pytest.approx(1199.9), True)
    # Its longest interval is a quarter of an hour.
    assert (rows["door"].silent_s, rows["door"].silent) == (9.0, False)
    assert (rows["gone"].heard, rows["gone"].silent) == (None, False)


def test_births_name_the_metrics_of_other_messages(spark: SparkSession, tmp_path: Path) -> None:
    """Of the same batch and of earlier ones, in the order in which they came."""
    from flatmq_tools.pipeline.jobs import measurements
    from flatmq_tools.pipeline.mapping.births import Births
    from pipeline.test_mapping_sparkplug import BORN, BY_ALIAS, DBIRTH, DEVICE

    mapping = measurements.mapped(["sparkplug-b"])
    first = [Message(DEVICE, BY_ALIAS, 1), Message(BORN, DBIRTH, 2), Message(DEVICE, BY_ALIAS, 3)]
    second = [Message(DEVICE, BY_ALIAS, 4)]

    def found(messages: list[Message]) -> list[object]:
        births = Births(tmp_path / "births.json")
        packs = measurements.packs(frame(spark, messages), mapping=mapping, births=births)
        return [row.reason or row.records[0].value for row in packs.orderBy("offset").collect()]

    unknown = "alias = 10: no birth certificate that holds names it"
    for _ in range(2):  # again, as after a kill
        assert found(first) == [unknown, 21.55, 22.5]
        assert found(second) == [22.5]


def test_from_a_broker_to_the_report(spark: SparkSession, tmp_path: Path) -> None:
    from flatmq_tools.pipeline.jobs import measurements
    from flatmq_tools.pipeline.report import from_raw, numbers, page
    from flatmq_tools.pipeline.run import Plan, Run
    from pipeline.test_mapping_sparkplug import BORN, BY_ALIAS, DBIRTH, DEVICE

    names = [*NAMES, "sparkplug-b"]
    with broker() as there:
        source = {"brokerUrl": there.address, "topic": "#"}
        jobs = ("raw", "measurements")
        bounds = measurements.Bounds(behind=1e10)  # the messages are of a day in 2026
        plan = Plan(tmp_path, source, jobs=jobs, trigger=0.1, mapping=names, bounds=bounds)
        running = Run(spark, plan)
        until(lambda: (tmp_path / "log" / "subscribed.json").exists() or running.look())
        publish(there, [(m.topic, m.payload) for m in FLEET])
        publish(there, [(BORN, DBIRTH)])
        until(lambda: running.look() or running.rows > len(FLEET))
        # In a batch of its own, after the one that names its alias.
        publish(there, [(DEVICE, BY_ALIAS)])
        until(lambda: running.look() or running.rows > len(FLEET) + 1)
        running.finish()
        running.stop()
    table = ds.dataset(tmp_path / "measurements", format="parquet").to_table().to_pylist()
    pump = [row for row in table if row["device"] == "Plant/Line1/Pump"]
    temperatures = sorted(r["value"] for r in pump if r["quantity"] == "Temperature")
    assert temperatures == [21.55, 22.5]
    table = [row for row in table if row not in pump]
    # Times of arrival are those of now.
    found_rows = rows([{**row, "time": START} for row in table])
    assert found_rows == [(*row[:4], 0.0, *row[5:]) for row in VALUES]
    dead = ds.dataset(tmp_path / "dead_letters", format="parquet").to_table().to_pylist()
    assert len(dead) == 3
    mapping = measurements.mapped(names)
    found = from_raw.of_tables(spark, tmp_path, mapping=mapping)
    assert {(d.name, d.numbered) for d in found.devices} == {
        ("pico-1", True), ("door", False), ("plug", False), ("kitchen", False),
        ("Plant/Line1/Pump", False),
    }  # fmt: skip
    shown = {number.name: (number.text, number.note) for number in numbers.summary(found)}
    assert shown["lost"] == ("0", "nothing missing of 1 device with numbers")
    assert page.page(found, []).count("<tr>") > 4
    newest = {(v.device, v.quantity): v.value for v in found.newest}
    assert {(row[0], row[2]) for row in VALUES} <= newest.keys()
    assert newest["Plant/Line1/Pump", "Temperature"] == 22.5
    assert sum(each.messages for each in found.dead) == 3


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    run = "from flatmq_tools.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", run, "pipeline", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_shows_what_becomes_of_a_message(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(SENSOR)
    shown = command("map", "--try", "zigbee2mqtt/door", f"@{file}")
    assert shown.returncode == 0, shown.stderr
    assert "rule: zigbee2mqtt: state (json)" in shown.stdout
    for word in (
        "door",
        "temperature",
        "Cel",
        "20.5",
        "contact",
        "true",
        "2026-03-01 12:00:05.000",
    ):
        assert word in shown.stdout
    dead = command("map", "--try", "zigbee2mqtt/door", "hex:ff")
    assert (dead.returncode, "dead letter: not JSON" in dead.stdout) == (1, True)
    none = command("map", "--mapping", "tasmota", "--try", "zigbee2mqtt/door", "{}")
    assert (none.returncode, "no rule is for the topic zigbee2mqtt/door" in none.stdout) == (
        1,
        True,
    )


def test_the_command_lists_shows_and_checks(tmp_path: Path) -> None:
    listed = command("map", "--list").stdout
    for name in ("chirpstack", "home-assistant", "shelly-gen1", "sparkplug-b", "zigbee2mqtt"):
        assert name in listed
    own = tmp_path / "own.toml"
    own.write_text(command("map", "--show", "tasmota").stdout)
    checked = command("map", "--mapping", str(own))
    assert checked.stdout == "7 rules, for tele/#  stat/#  cmnd/#  tasmota/discovery/#\n"
    own.write_text(own.read_text().replace('"5/9"', '"5:9"'))
    wrong = command("map", "--mapping", str(own))
    assert wrong.returncode == 1
    assert "[[rule]] 2 (SENSOR in Fahrenheit): values.'**/Temperature': scale" in wrong.stderr
    for arguments in (
        ["run", str(tmp_path / "out")],
        ["report", str(tmp_path / "page"), "--tables", "."],
    ):
        early = command(*arguments, "--mapping", str(own))
        assert early.returncode == 1, early
        assert "scale: must be a number, or a fraction" in early.stderr
