"""The shipped mappings read what their devices publish, and docs/mappings.md keeps its word."""

import datetime
import json
import pickle
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import tomllib

from conftest import ROOT
from flatmq.rare.wild import matches
from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.mapping import Mapping
from flatmq_tools.pipeline.mapping.rule import FORMATS
from pipeline.runs import typed
from pipeline.test_mapping_files import value_of

FIXTURES = Path(__file__).with_name("mappings")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
LOADED = {name: files.load([name]) for name in files.shipped()}
RECEIVED = (datetime.datetime(2026, 3, 1, 12, 0, 1, tzinfo=datetime.timezone.utc) - EPOCH) // (
    datetime.timedelta(microseconds=1)
)


def messages() -> list[tuple[str, dict[str, Any]]]:
    """The messages of all fixtures, with the names of their mappings.

    A fixture has these tables:
    one      a value, or none: topic, payload, device, quantity, unit, value
    many     values: topic, payload, device, time of the document if it has one, values
             (a number that no double holds is a value without a value)
    each     values of several devices or times: topic, payload, values with device and time
    nothing  no values come of these: topic, payload
    dead     dead letters: topic, payload, reason
    other    there is no rule for these: topic, payload
    """
    found: list[tuple[str, dict[str, Any]]] = []
    for file in sorted(FIXTURES.glob("*.toml")):
        every: list[dict[str, Any]] = []
        for kind, rows in tomllib.loads(file.read_text()).items():
            for topic, payload, *more in rows:
                message = {"topic": topic, "payload": payload}
                if kind == "one":
                    message |= {"device": more[0], "values": [more[1:]] if more[1:] else []}
                elif kind == "each":
                    message |= {"each": more[0]}
                elif kind == "many":
                    message |= {"device": more[0], "time": more[1], "values": more[2]}
                else:
                    message[kind] = "".join(more)
                every.append(message)
        found += [(file.stem, message) for message in every]
    return found


def payload_of(message: dict[str, Any]) -> bytes:
    text = message["payload"]
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()


def micros(time: datetime.datetime | None = None) -> int:
    """A time in microseconds since 1970; that of arrival if there is none."""
    return RECEIVED if time is None else (time - EPOCH) // datetime.timedelta(microseconds=1)


def check(mapping: Mapping, message: dict[str, Any]) -> None:
    reading = mapping.reading(message["topic"], payload_of(message), RECEIVED)
    if "dead" in message:
        assert message["dead"] in str(reading.reason)
        return
    assert reading.reason is None
    if "other" in message:
        assert reading.rule is None
    elif "nothing" in message:
        assert reading.rule and reading.packs == []
    elif "each" in message:
        found = [
            [p.device, r.quantity, r.unit, value_of(r), r.time]
            for p in reading.packs for r in p.records
        ]  # fmt: skip
        assert found == [[*row[:4], micros(*row[4:])] for row in message["each"]]
        assert len({pack.device for pack in reading.packs}) == len(reading.packs)
    else:
        (pack,) = reading.packs
        told = bool(message.get("time"))
        time = micros(message["time"]) if told else RECEIVED
        assert (pack.device, pack.boot, pack.seq) == (message["device"], None, None)
        assert (pack.time, pack.told) == (time, told)
        found = [[r.quantity, r.unit, value_of(r)] for r in pack.records]
        expected = [[*row, None][:3] for row in message["values"]]
        assert [row[:2] for row in found] == [row[:2] for row in expected]
        for (_, _, value), (_, _, wanted) in zip(found, expected, strict=True):
            assert type(value) is type(wanted)
            assert value == (pytest.approx(wanted) if isinstance(wanted, float) else wanted)
        assert {record.time for record in pack.records} <= {time}


@pytest.mark.parametrize(("name", "message"), messages())
def test_a_shipped_mapping_reads_its_messages(name: str, message: dict[str, Any]) -> None:
    """As does a copy for an executor, and one of the filters of the mapping matches the topic."""
    mapping = LOADED[name]
    check(mapping, message)
    mapping.reading(message["topic"], b"{}", 0)  # remembers what the topic says
    check(pickle.loads(pickle.dumps(mapping)), message)
    topic = message["topic"].encode()
    filters = [filt.encode() for filt in mapping.filters]
    matched = any(matches(filt, bytearray(topic), 0, len(topic)) for filt in filters)
    assert matched or "other" in message


def test_each_shipped_mapping_has_messages() -> None:
    assert {file.stem for file in FIXTURES.glob("*.toml")} | {"sparkplug-b"} == set(LOADED)


def test_another_base_is_put_in_front() -> None:
    mapping = files.load(["zigbee2mqtt=home/z2m", "tasmota=home"])
    (pack,) = mapping.read("home/z2m/lamp", b'{"state":"ON"}', 0) or []
    assert pack.device == "lamp"
    assert mapping.read("zigbee2mqtt/lamp", b'{"state":"ON"}', 0) is None
    assert mapping.read("home/tele/plug/LWT", b"Online", 0) is not None
    assert mapping.filters == [
        "home/z2m/#", "home/tele/#", "home/stat/#", "home/cmnd/#", "home/tasmota/discovery/#",
    ]  # fmt: skip


def test_the_first_rule_that_matches_reads_a_message() -> None:
    """Of several mappings, the one that is named first."""
    both = files.load(["plain=x", "json=x"])
    rule = both.reading("x/a/b", b'{"c":1}', 0).rule
    assert rule and rule.name == "plain: values"
    other = files.load(["json=x", "plain=x"]).reading("x/a/b", b'{"c":1}', 0)
    assert other.packs[0].records[0].quantity == "c"
    # What the first has no rule for is left to the second.
    assert both.reading("x/a", b'{"c":1}', 0).packs[0].records[0].quantity == "c"


PAGE = (ROOT / "docs" / "mappings.md").read_text()
FILES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def read_by(number: int, topic: str, payload: bytes) -> list[tuple[str, str, str, object]]:
    packs = Mapping(files.parse(FILES[number], "docs.toml")).read(topic, payload, 0)
    return [
        (p.device, r.quantity, r.unit, r.value if r.value is not None else r.flag)
        for p in packs or [] for r in p.records
    ]  # fmt: skip


def test_the_examples_say_what_becomes_of_messages() -> None:
    assert len(FILES) == 5
    document = b'{"at":1772366400,"temp":215,"wind":{"mean":3.2,"gust":7.0}}'
    assert f"`{document.decode()}`" in PAGE
    assert read_by(0, "weather/roof/state", document) == [
        ("roof", "temperature", "Cel", 21.5), ("roof", "wind/mean", "m/s", 3.2),
        ("roof", "wind/gust", "m/s", 7.0),
    ]  # fmt: skip
    assert read_by(1, "site/a/b/oil/level", b"3") == [("a-b", "oil/level", "", 3.0)]
    assert read_by(1, "gateway/x", b'{"meta":{"serial":"7"},"v":1}') == [("7", "v", "", 1.0)]

    def shown(begin: str) -> bytes:
        """The document of the page that begins so."""
        (found,) = re.findall(f"`({begin}.*}})`", PAGE)
        return str(found).encode()

    assert read_by(3, "gateway/north", shown('{"sensors":{"tank"')) == [
        ("north-tank", "level", "", 3.0), ("north-tank", "level", "", 4.0),
        ("north-pump", "rpm", "", 900.0),
    ]  # fmt: skip
    assert read_by(4, "application/x/device/01/event/up", shown('{"fPort"')) == [
        ("01", "temperature", "Cel", 21.5), ("01", "humidity", "%RH", 48.0),
        ("01", "open", "", True),
    ]  # fmt: skip
    assert read_by(2, "plant/pumps/p1", shown('{"alarm"')) == [
        ("p1", "alarm", "", True), ("p1", "sensors/in/bar", "Pa", 250_000.0),
        ("p1", "sensors/out/bar", "Pa", 400_000.0),
    ]  # fmt: skip


def test_the_tables_are_complete() -> None:
    listed = set(re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE, re.MULTILINE))
    assert set(files.shipped()) | set(FORMATS) <= listed
    heads = "".join(re.findall(r"^- (`.*?):", PAGE, re.MULTILINE))
    keys = set(re.findall(r"`(\w+)`", heads))
    assert set(files.KEYS["csv"]) <= keys


def test_the_command_prints_what_the_page_says() -> None:
    shown = re.search(r"\$ flatmq pipeline (map --try \S+) '([^']*)'\n(.*?)```", PAGE, re.DOTALL)
    assert shown
    done = typed([*shown[1].split(), shown[2]])
    assert (done.exit_code, done.output) == (0, shown[3])


def test_the_error_is_as_the_page_says() -> None:
    said = re.search(r"Error: pumps\.toml: (.*)", PAGE)
    assert said
    text = '[[rule]]\ntopic="{device}"\nformat="json"\n' * 2 + 'time = { path = "t", as = "sec" }'
    with pytest.raises(files.MappingError) as error:
        files.parse(text, "pumps.toml")
    assert str(error.value) == f"pumps.toml: {said[1]}"


CRASHES = (ROOT / "docs" / "crashes.md").read_text("utf-8")
RECORDS = [
    ("pico-1", {"cause": "exception", "version": "1.4", "count": 1, "time": 1772366400}),
    ("pico-1", {"cause": "exception", "version": "1.4", "count": 3, "time": 1772370000}),
    ("pico-2", {"cause": "watchdog", "version": "1.5", "count": 1}),
]


def test_crashes_are_counted_per_version() -> None:
    mapping = files.load(["crashes"])
    rows = []
    for arrival, (device, record) in enumerate(RECORDS):
        payload = json.dumps(record).encode()
        for pack in mapping.read(f"dev/{device}/crash", payload, arrival) or ():
            time = pack.time or arrival
            rows += [(device, time, r.quantity, r.value, r.text) for r in pack.records]
    measurements = pd.DataFrame(rows, columns=["device", "time", "quantity", "value", "text"])
    (query,) = re.findall(r"```sql\n(.*?)```", CRASHES, re.DOTALL)
    found = duckdb.sql(query).fetchall()
    assert sorted(found) == [("1.4", 4.0), ("1.5", 1.0)]
    assert len(measurements) == len(rows)
