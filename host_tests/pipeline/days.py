"""Tables by days, as the sink of a run writes them, without Spark."""

from __future__ import annotations

import datetime
import json
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from flatmq_tools.pipeline.layout import RECORDS, record_text
from flatmq_tools.pipeline.merge import Merger

TODAY = "2200-01-01"  # a day that is not over while the tests run
OLD = "2026-01-01"
PREPARED = 18  # rows of `prepared`
_LONG_AGO = 1_700_000_000


def add(folder: Path, batch: int, rows: dict[str, list[list[int]]], column: str = "name") -> None:
    """Add a batch: by day the values of each of its files.

    `column` has the names of devices.
    """
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    if not (folder / "_query.json").exists():
        (folder / "_query.json").write_text(json.dumps({"query": "one"}))
    for day, files in rows.items():
        hidden = folder / f".batch={batch}-{day}"
        hidden.mkdir()
        for n, values in enumerate(files):
            at = datetime.datetime.fromisoformat(f"{day}T12:00:00+00:00")
            table = pa.table(
                {
                    "n": pa.array(values, pa.int64()),
                    "at": pa.array([at] * len(values), pa.timestamp("us", "UTC")),
                    column: [f"device-{value % 3}" for value in values],
                }
            )
            # As Spark writes times.
            pq.write_table(
                table, hidden / f"part-{n}.parquet", use_deprecated_int96_timestamps=True
            )
        target = folder / f"day={day}" / f"batch={batch}"
        target.parent.mkdir(exist_ok=True)
        hidden.rename(target)
        os.utime(target, (_LONG_AGO, _LONG_AGO))
    counts = {f"day={day}": sum(map(len, files)) for day, files in rows.items()}
    draft = folder / RECORDS / f".{batch}"
    draft.write_text(record_text(counts))
    draft.rename(folder / RECORDS / f"{batch}.json")


def numbers(folder: Path) -> list[int]:
    """The values of `n` that a reader finds."""
    return sorted(ds.dataset(folder, format="parquet").to_table(["n"])["n"].to_pylist())


def folders(folder: Path, day: str) -> list[str]:
    """The batches of a day."""
    return sorted(path.name for path in (folder / f"day={day}").iterdir())


def prepared(folder: Path, column: str = "name") -> None:
    """A table of six batches and two days; the third batch is of both."""
    for batch in range(6):
        days = [OLD] * (batch < 3) + [TODAY] * (batch > 1)
        each = 3 // len(days) if len(days) > 1 else 3
        rows = {}
        for n, day in enumerate(days):
            begin = 3 * batch + n * each
            end = 3 * (batch + 1) if n == len(days) - 1 else begin + each
            rows[day] = [[*range(begin, end)]]
        add(folder, batch, rows, column)


def prepared_with_devices(folder: Path) -> None:
    """The same, with a column `device`, and the batches of the day that is over merged."""
    prepared(folder, "device")
    merger(folder, many=9).merge()


def merger(folder: Path, many: int = 3, target: int = 1 << 20) -> Merger:
    """One that merges soon."""
    return Merger(folder, threading.Lock(), target=target, many=many, level=3)
