"""docs/mappings.md keeps its word, and the query of docs/crashes.md finds what a mapping makes."""

from __future__ import annotations

import json
import re

import duckdb
import pandas as pd
import pytest

from conftest import ROOT
from flatmq_tools.pipeline.mapping import files
from flatmq_tools.pipeline.mapping.mapping import Mapping
from flatmq_tools.pipeline.mapping.rule import FORMATS
from pipeline.runs import typed

PAGE = (ROOT / "docs" / "mappings.md").read_text()
FILES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def read(number: int, topic: str, payload: bytes) -> list[tuple[str, str, str, object]]:
    packs = Mapping(files.parse(FILES[number], "docs.toml")).read(topic, payload, 0)
    return [
        (p.device, r.quantity, r.unit, r.value if r.value is not None else r.flag)
        for p in packs or [] for r in p.records
    ]  # fmt: skip


def test_the_examples_say_what_becomes_of_messages() -> None:
    assert len(FILES) == 5
    document = b'{"at":1772366400,"temp":215,"wind":{"mean":3.2,"gust":7.0}}'
    assert f"`{document.decode()}`" in PAGE
    assert read(0, "weather/roof/state", document) == [
        ("roof", "temperature", "Cel", 21.5), ("roof", "wind/mean", "m/s", 3.2),
        ("roof", "wind/gust", "m/s", 7.0),
    ]  # fmt: skip
    assert read(1, "site/a/b/oil/level", b"3") == [("a-b", "oil/level", "", 3.0)]
    assert read(1, "gateway/x", b'{"meta":{"serial":"7"},"v":1}') == [("7", "v", "", 1.0)]
    gateway = re.search(r'`({"sensors":{"tank".*})`', PAGE)
    assert gateway
    assert read(3, "gateway/north", gateway[1].encode()) == [
        ("north-tank", "level", "", 3.0), ("north-tank", "level", "", 4.0),
        ("north-pump", "rpm", "", 900.0),
    ]  # fmt: skip
    uplink = re.search(r'`({"fPort".*})`', PAGE)
    assert uplink
    assert read(4, "application/x/device/01/event/up", uplink[1].encode()) == [
        ("01", "temperature", "Cel", 21.5), ("01", "humidity", "%RH", 48.0),
        ("01", "open", "", True),
    ]  # fmt: skip
    pump = re.search(r'`({"alarm".*})`', PAGE)
    assert pump
    assert read(2, "plant/pumps/p1", pump[1].encode()) == [
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
