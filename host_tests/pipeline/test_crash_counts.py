"""The query of docs/crashes.md, on what the mapping `crashes` makes of records."""

from __future__ import annotations

import json
import re

import duckdb
import pandas as pd

from conftest import ROOT
from flatmq_tools.pipeline.mapping import files

PAGE = (ROOT / "docs" / "crashes.md").read_text("utf-8")
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
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    found = duckdb.sql(query).fetchall()
    assert sorted(found) == [("1.4", 4.0), ("1.5", 1.0)]
    assert len(measurements) == len(rows)
