"""A mixed fleet through the jobs: our boards, a Zigbee2MQTT bridge, a Tasmota plug, and others."""

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from flatmq_tools.pipeline.jobs import measurements, parsing
from flatmq_tools.pipeline.jobs.limits import Bounds
from flatmq_tools.pipeline.mapping.births import Births
from flatmq_tools.pipeline.report import from_raw
from flatmq_tools.pipeline.run import Plan
from pipeline.messages import START, Message, frame, read, reading, table
from pipeline.mqtt import broker, publish, until
from pipeline.runs import started, typed
from pipeline.test_mapping_sparkplug import BORN, BY_ALIAS, DBIRTH, DEVICE

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
    packs = measurements.packs(frame(spark, FLEET), mapping=measurements.mapped(NAMES)).persist()
    assert rows(measurements.values(packs).collect()) == VALUES
    reasons = {bytes(row.payload): row.reason for row in measurements.dead(packs).collect()}
    assert reasons.keys() == {m.payload for m in FLEET[5:8]}
    assert "half = '\\ud83d': not a text of Unicode" in reasons[FLEET[5].payload]
    packs.unpersist()


def test_senml_of_other_topics_has_the_device_that_its_topic_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[rule]]\ntopic = "site/{device}/senml"\nformat = "senml"\n')
    senml = b'[{"bn":"%s","n":"boot","v":1},{"n":"seq","v":2},{"n":"level","u":"m","v":1.5}]'
    sent = [Message("site/a/senml", senml % b""), Message("site/b/senml", senml % b"a/")]
    found = measurements.packs(frame(spark, sent), mapping=measurements.mapped([str(own)]))
    good, bad = found.orderBy("topic").collect()
    assert (good.device, good.boot, good.seq, good.records[0].value) == ("a", 1, 2, 1.5)
    assert "device 'a': the topic names 'b'" in bad.reason


def test_births_name_the_metrics_of_other_messages(spark: SparkSession, tmp_path: Path) -> None:
    """Of the same batch and of earlier ones, in the order in which they came."""
    mapping = measurements.mapped(["sparkplug-b"])
    assert mapping is not None and mapping.births
    first = [Message(DEVICE, BY_ALIAS, 1), Message(BORN, DBIRTH, 2), Message(DEVICE, BY_ALIAS, 3)]
    second = [Message(DEVICE, BY_ALIAS, 4)]
    packs = measurements.packs(frame(spark, first), mapping=mapping).orderBy("offset").collect()
    spoken = [row.reason or row.records[0].value for row in packs]

    def found(messages: list[Message]) -> list[object]:
        [batch] = table(messages).to_batches()
        births = Births(tmp_path / "births.json")
        births.add(parsing.certificates(batch, mapping))
        reads = parsing.Reads(mapping=mapping, sessions=births.sessions())
        packs, _ = parsing.Reader(reads).packs(batch)
        return [row["reason"] or row["records"][0]["value"] for row in packs.to_pylist()]

    unknown = "alias = 10: no birth certificate that holds names it"
    assert spoken == [unknown, 21.55, 22.5]
    for messages, values in (
        (first, [unknown, 21.55, 22.5]),
        (second, [22.5]),
        (first, [unknown, 21.55, 22.5]),  # again, as after a kill
    ):
        assert found(messages) == values


def test_a_birth_with_invalid_properties_names_nothing() -> None:
    """It is a dead letter, in a run and in a report from raw."""
    born = table([Message(BORN, DBIRTH, 1)] * 2)
    at = born.schema.get_field_index("invalid_properties")
    [batch] = born.set_column(at, born.schema.field(at), [[b"\xff", None]]).to_batches()
    mapping = measurements.mapped(["sparkplug-b"])
    assert mapping is not None and mapping.births
    assert [row[3] for row in parsing.certificates(batch, mapping)] == [1]


@pytest.mark.proof
def test_from_a_broker_to_the_report(spark: SparkSession, tmp_path: Path) -> None:
    names = [*NAMES, "sparkplug-b"]
    with broker() as there:
        bounds = Bounds(behind=1e10)  # the messages are of a day in 2026
        jobs = ("measurements",)
        plan = Plan(tmp_path, {"topic": "#"}, jobs=jobs, mapping=names, bounds=bounds)
        sent = [*((m.topic, m.payload) for m in FLEET), (BORN, DBIRTH)]
        with started(spark, plan, there) as running:
            # The last is in a batch of its own, after the one that names its alias.
            for messages, count in ((sent, len(sent)), ([(DEVICE, BY_ALIAS)], len(sent) + 1)):
                publish(there, messages)
                until(lambda: running.look() or running.rows >= count)  # noqa: B023
            running.finish()
    table = read(tmp_path / "measurements")
    pump = "Plant/Line1/Pump"
    temperatures = [r["value"] for r in table if r["quantity"] == "Temperature"]
    assert sorted(temperatures) == [21.55, 22.5]
    # Times of arrival are those of now.
    found_rows = rows([{**row, "time": START} for row in table if row["device"] != pump])
    assert found_rows == [(*row[:4], 0.0, *row[5:]) for row in VALUES]
    with from_raw.figures(tmp_path, mapping=names) as (found, _):
        pass
    assert {d.name for d in found.devices if d.numbered} == {"pico-1"}
    newest = {(v.device, v.quantity): v.value for v in found.newest}
    assert {(row[0], row[2]) for row in VALUES} <= newest.keys()
    assert newest[pump, "Temperature"] == 22.5
    assert sum(each.messages for each in found.dead) == 3


def command(*arguments: str) -> tuple[int, str]:
    done = typed(arguments)
    return done.exit_code, done.output


def test_the_command_shows_what_becomes_of_a_message(tmp_path: Path) -> None:
    file = tmp_path / "payload"
    file.write_bytes(SENSOR)
    code, shown = command("map", "--try", "zigbee2mqtt/door", f"@{file}")
    assert code == 0
    assert "rule: zigbee2mqtt: state (json)" in shown
    words = ["door", "temperature", "Cel", "20.5", "contact", "true"]
    assert all(word in shown for word in [*words, "2026-03-01 12:00:05.000"]), shown
    code, dead = command("map", "--try", "zigbee2mqtt/door", "hex:ff")
    assert code == 1 and "dead letter: not JSON" in dead
    code, none = command("map", "--mapping", "tasmota", "--try", "zigbee2mqtt/door", "{}")
    assert code == 1 and "no rule is for the topic zigbee2mqtt/door" in none


def test_the_command_says_what_never_matched(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("""
        [[rule]]
        name = "mine"
        topic = "t/{device}"
        format = "json"
        select = ["temp", "temp/x", "**"]
        ignore = ["tmie"]
        each = "data"
        values = { temp = "Cel", temprature = "Cel", "hum*" = "%RH" }
    """)
    ask = ["map", "--mapping", str(own), "--try", "t/a"]
    code, shown = command(*ask, '{"data":{"temp":1,"humid":2}}')
    assert code == 0
    assert [line for line in shown.splitlines() if "never" in line] == [
        "never matched in select: temp/x", "never matched in ignore: tmie",
        "never matched in values: temprature",
    ]  # fmt: skip
    code, other = command(*ask, '{"temp":1}')
    assert (code, other) == (
        1,
        "no rule reads this document; these are for its topic: own: mine\n",
    )


def test_the_command_lists_shows_and_checks(tmp_path: Path) -> None:
    listed = command("map", "--list")[1]
    for name in ("chirpstack", "home-assistant", "shelly-gen1", "sparkplug-b", "zigbee2mqtt"):
        assert name in listed
    own = tmp_path / "own.toml"
    own.write_text(command("map", "--show", "tasmota")[1])
    checked = command("map", "--mapping", str(own))
    assert checked == (0, "8 rules, for tele/#  stat/#  cmnd/#  tasmota/discovery/#\n")
    own.write_text(own.read_text().replace('"5/9"', '"5:9"'))
    place = "[[rule]] 3 (SENSOR in Fahrenheit): values.'**/Temperature': scale: must be a number"
    for arguments in (
        ["map"],
        ["run", str(tmp_path / "out")],
        ["report", str(tmp_path / "page"), "--tables", str(tmp_path)],
    ):
        code, wrong = command(*arguments, "--mapping", str(own))
        assert code == 1 and place in wrong, wrong
