"""The shipped mappings read what the devices that they are for publish."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest
import tomllib

from flatmq.rare.wild import matches
from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.mapping import Mapping
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
        assert reading.reason is not None
        assert message["dead"] in reading.reason
        return
    assert reading.reason is None
    if "other" in message:
        assert reading.rule is None
    elif "nothing" in message:
        assert reading.rule is not None
        assert reading.packs == []
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
    read = mapping.read("home/z2m/lamp", b'{"state":"ON"}', 0)
    assert read is not None
    assert read[0].device == "lamp"
    assert mapping.read("zigbee2mqtt/lamp", b'{"state":"ON"}', 0) is None
    assert mapping.read("home/tele/plug/LWT", b"Online", 0) is not None
    assert mapping.filters == [
        "home/z2m/#", "home/tele/#", "home/stat/#", "home/cmnd/#", "home/tasmota/discovery/#",
    ]  # fmt: skip


def test_the_first_rule_that_matches_reads_a_message() -> None:
    """Of several mappings, the one that is named first."""
    both = files.load(["plain=x", "json=x"])
    reading = both.reading("x/a/b", b'{"c":1}', 0)
    assert reading.rule is not None
    assert reading.rule.name == "plain: values"
    other = files.load(["json=x", "plain=x"]).reading("x/a/b", b'{"c":1}', 0)
    assert other.packs[0].records[0].quantity == "c"
    # What the first has no rule for is left to the second.
    assert both.reading("x/a", b'{"c":1}', 0).packs[0].records[0].quantity == "c"
