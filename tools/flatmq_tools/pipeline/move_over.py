"""Move a table of an earlier version, with a folder for each batch, over to folders of days."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import durable
from .layout import DAY, MOVING, PREFIX, RECORDS, number, record_text

_UTC = pa.timestamp("us", "UTC")


def move_over(folder: Path, column: str) -> Iterator[int]:
    """Move the batches of a table on this machine into the folders of their days.

    column  the timestamp whose day, in UTC, it is

    A batch of a single day is moved here. One of several days is written again as one that is
    committed: its number is yielded, to be moved into its days before the next one. After a kill
    at any point, a second call goes on from there.
    """
    numbers = sorted(n for path in folder.iterdir() if (n := number(path.name)) is not None)
    if not numbers:
        return
    newest = folder / f"{PREFIX}{numbers[-1]}"
    records = folder / RECORDS
    records.mkdir(exist_ok=True)
    if not any(records.glob("[0-9]*.json")):
        # By this the sink knows what is in the table. Those before it need none.
        _write(records / f"{numbers[-1]}.json", record_text(_days(newest, column)))
        durable.path(records)
        durable.path(folder)
    for batch in numbers:
        old = folder / f"{PREFIX}{batch}"
        days = _days(old, column)
        if len(days) == 1:
            (day,) = days
            (folder / day).mkdir(exist_ok=True)
            old.rename(folder / day / old.name)
            durable.path(folder / day)
        else:
            _split(folder, batch, column, days)
            yield batch
    durable.path(folder)


def _split(folder: Path, batch: int, column: str, days: dict[str, int]) -> None:
    """Write a batch again by days, and commit it instead of the old one."""
    old = folder / f"{PREFIX}{batch}"
    hidden = folder / f".{PREFIX}{batch}-{uuid.uuid4().hex}"
    for day in days:
        (hidden / day).mkdir(parents=True)
    for file in _files(old):
        table = pq.read_table(file, partitioning=None)
        of = _names(table[column])
        int96 = has_int96(file)
        for day in days:
            part = table.filter(pc.equal(of, day))
            if len(part):
                pq.write_table(
                    part, hidden / day / file.name, use_deprecated_int96_timestamps=int96
                )
    durable.tree(hidden)
    hidden.rename(folder / f"{MOVING}{batch}")
    durable.path(folder)
    for path in old.iterdir():
        path.unlink()
    old.rmdir()


def _days(old: Path, column: str) -> dict[str, int]:
    """Count the rows of a batch by the folders of their days.

    An empty batch is of the day on which it was written.
    """
    days: dict[str, int] = {}
    for file in _files(old):
        table = pq.read_table(file, columns=[column], partitioning=None)
        for one in pc.value_counts(_names(table[column])).to_pylist():
            days[one["values"]] = days.get(one["values"], 0) + one["counts"]
    if not days:
        at = datetime.datetime.fromtimestamp(old.stat().st_mtime, datetime.timezone.utc)
        days[f"{DAY}{at.date()}"] = 0
    return days


def _files(old: Path) -> list[Path]:
    return sorted(path for path in old.iterdir() if path.suffix == ".parquet")


def _names(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The names of the folders of the days of these times."""
    kind = times.type
    if kind.tz is None:  # INT96
        times = times.cast(pa.timestamp("us"), safe=False).cast(_UTC)
    return pc.binary_join_element_wise(DAY, pc.strftime(times, "%Y-%m-%d"), "")


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    durable.path(draft)
    draft.rename(path)


def has_int96(file: Path) -> bool:
    """Return whether a file has times as Spark writes them."""
    schema = pq.read_metadata(file).schema
    return any(schema.column(n).physical_type == "INT96" for n in range(len(schema)))
