"""Measured values over time, from the table measurements."""

from __future__ import annotations

import datetime
import itertools
import math
import operator
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray
from pyarrow import acero

from .. import tables
from .figures import NEWEST, Band, Figures, Measured, OutOfTime, Quantity, Value, step

TABLE = "measurements"
OUT_OF_TIME = "out_of_time"
FEW = 6
"""The most devices of a quantity that are drawn as lines; of more there is a band."""
POINTS = 150_000
"""The most points in a page, about 6 bytes each."""
DAY = 86400.0
_SPANS = (7 * DAY, DAY, 21600.0, 3600.0, 600.0, 60.0)  # s
_READINGS = 10_000_000  # at most so many are read: some seconds
_NEW = 1_000_000  # of which the newest values are taken, at most, from the end
_STEPS = 96
_KINDS = ("value", "text", "flag")
_STEPS_OF_MANY = 48  # of a fleet that has more than so many devices:
_MANY = 2000


def dataset(folder: Path) -> ds.Dataset | None:
    """Return a table; None if it is not there."""
    table = tables.opened(folder)
    return None if table is None else table.to_pyarrow_dataset()


def within(
    table: ds.Dataset, since: datetime.datetime | None, until: datetime.datetime | None,
    arrival: str = "received",
) -> ds.Expression:  # fmt: skip
    """Return the condition for a stretch of arrivals; other days are not even opened."""
    chosen: ds.Expression = ds.scalar(True)
    kinds = table.schema
    for moment, compare, of_day in (
        (since, operator.ge, operator.ge), (until, operator.lt, operator.le)
    ):  # fmt: skip
        if moment is not None:
            at = pa.scalar(moment).cast(kinds.field(arrival).type)
            chosen &= compare(ds.field(arrival), at)
            if "day" in kinds.names:
                day = pa.scalar(f"{moment:%Y-%m-%d}").cast(kinds.field("day").type)
                chosen &= of_day(ds.field("day"), day)
    return chosen


def read(
    folder: Path, figures: Figures, first: Sequence[str] = (), longest: float = DAY
) -> Measured | None:  # fmt: skip
    """Return the values of numbers at the end of the figures' time. None if there are none.

    first    the devices whose lines matter most
    longest  the most seconds; they are fewer if there are very many values
    """
    table = dataset(folder / TABLE)
    if table is None:
        return None
    number = ds.field("value").is_valid()
    begin, end, chosen = _last(table, figures, number, min(longest, figures.span), _READINGS)
    span = (figures.until - begin).total_seconds()
    steps = _STEPS_OF_MANY if len(figures.devices) > _MANY else _STEPS
    width = step(span / steps)
    found = _means(table, chosen, begin, end, width)
    if not found.num_rows:
        return None
    at = begin.timestamp() // width * width
    count = math.floor((end.timestamp() - at) / width) + 1
    measured = Measured(at - figures.since.timestamp(), width)
    _fill(measured, found, round(at / width), count, first)
    return measured


def _last(
    table: ds.Dataset, figures: Figures, which: ds.Expression, longest: float, most: int
) -> tuple[datetime.datetime, datetime.datetime, ds.Expression]:
    """Return the end of the figures' time, so short that it has at most so many rows, if possible.

    Returns its begin, its end, and the condition for the rows.
    """
    end = figures.until + datetime.timedelta(microseconds=1)
    for span in (longest, *(shorter for shorter in _SPANS if shorter < longest)):
        begin = figures.until - datetime.timedelta(seconds=span)
        chosen = within(table, begin, end) & which
        if table.count_rows(filter=chosen) <= most:
            break
    return begin, end, chosen


def newest(folder: Path, figures: Figures) -> list[Value]:
    """Return the newest value of each quantity: of the last day of the figures' time.

    Of devices that were silent then, they are of the last day on which they were heard.
    """
    table = dataset(folder / TABLE)
    if table is None:
        return []
    some = ds.field("value").is_valid() | ds.field("text").is_valid() | ds.field("flag").is_valid()
    begin, _, chosen = _last(table, figures, some, min(DAY, figures.span), _NEW)
    found = [_newest_of(table, chosen)]
    count, left = found[0].num_rows, _READINGS
    for day, names in _days_of_silent(figures, begin):
        chosen = within(table, day, min(day + datetime.timedelta(days=1), begin))
        left -= table.count_rows(filter=chosen)
        if left < 0 or count >= NEWEST:
            break
        found.append(_newest_of(table, chosen & some & ds.field("device").isin(names)))
        count += found[-1].num_rows
    order = [("time_last", "descending"), ("device", "ascending"), ("quantity", "ascending")]
    rows = pa.concat_tables(found).sort_by(order).slice(0, NEWEST).to_pylist()
    return sorted(
        Value(
            row["device"], row["quantity"], row["unit_last"],
            next(row[f"{kind}_last"] for kind in _KINDS if row[f"{kind}_last"] is not None),
            (row["time_last"] - figures.since).total_seconds(),
        )
        for row in rows
    )  # fmt: skip


def _days_of_silent(
    figures: Figures, begin: datetime.datetime
) -> list[tuple[datetime.datetime, list[str]]]:
    """Return the days on which devices were heard last, before `begin`, the newest first."""
    days: dict[datetime.datetime, list[str]] = {}
    for device in figures.devices:
        if device.heard is not None:
            heard = figures.since + datetime.timedelta(seconds=device.heard)
            if heard < begin:
                day = heard.replace(hour=0, minute=0, second=0, microsecond=0)
                days.setdefault(day, []).append(device.name)
    return sorted(days.items(), reverse=True)


def _newest_of(table: ds.Dataset, chosen: ds.Expression) -> pa.Table:
    """Return the newest row of each device and quantity."""
    names = ["time", "unit", *_KINDS]
    rows = table.to_table(["device", "quantity", *names], filter=chosen)
    times = rows["time"].cast(pa.timestamp("us", "UTC"))
    by_time = rows.set_column(2, "time", times).sort_by("time")
    every = pc.ScalarAggregateOptions(skip_nulls=False)
    return by_time.group_by(["device", "quantity"], use_threads=False).aggregate(
        [(name, "last", every) for name in names]
    )


def out_of_time(
    figures: Figures, folder: Path, since: datetime.datetime | None,
    until: datetime.datetime | None,
) -> None:  # fmt: skip
    """Count the readings in a table that is there only if it has some."""
    table = dataset(folder / OUT_OF_TIME)
    if table is None:
        return
    rows = table.to_table(["device", "received"], filter=within(table, since, until))
    found = rows.group_by("device").aggregate([("received", "count"), ("received", "min")])
    order = [("received_count", "descending"), ("device", "ascending")]
    figures.out_of_time = [
        OutOfTime(
            row["device"], row["received_count"],
            (row["received_min"] - figures.since).total_seconds(),
        )
        for row in found.sort_by(order).to_pylist()
    ]  # fmt: skip


def _means(
    table: ds.Dataset, chosen: ds.Expression, begin: datetime.datetime, end: datetime.datetime,
    width: float,
) -> pa.Table:  # fmt: skip
    """Return the means of each device and quantity in each stretch of time.

    Rows are added up while they are read: memory depends on how many means there are.
    """
    time = ds.field("time").cast(pa.timestamp("us", "UTC"))
    low, high = (pa.scalar(moment).cast(pa.timestamp("us", "UTC")) for moment in (begin, end))
    chosen &= (time >= low) & (time < high) & pc.is_finite(ds.field("value"))
    names = ("device", "quantity", "unit", "value")
    at = pc.divide(time.cast(pa.int64()), round(width * 1e6))
    plan = [
        acero.Declaration(
            "scan", acero.ScanNodeOptions(table, columns=[*names, "time"], filter=chosen)
        ),
        acero.Declaration("filter", acero.FilterNodeOptions(chosen)),
        acero.Declaration(
            "project", acero.ProjectNodeOptions([*map(ds.field, names), at], [*names, "at"])
        ),
        acero.Declaration(
            "aggregate",
            acero.AggregateNodeOptions(
                [("value", "hash_mean", None, "mean")], ["quantity", "unit", "device", "at"]
            ),
        ),
    ]
    return acero.Declaration.from_sequence(plan).to_table()


def _fill(
    measured: Measured, found: pa.Table, start: int, count: int, first: Sequence[str]
) -> None:
    """Add quantities, those of most devices first, and the lines there is room for.

    start  the number of the first stretch of time, of `count`
    """
    at = found["at"].to_numpy() - start
    keys = [_codes(found[name]) for name in ("device", "unit", "quantity")]
    order = np.lexsort((at, *(codes for codes, _ in keys)))
    at, mean = at[order], found["mean"].to_numpy()[order]
    codes = np.stack([of[order] for of, _ in keys])
    changed = (codes[:, 1:] != codes[:, :-1]).any(axis=0)
    begins = np.concatenate(([0], np.flatnonzero(changed) + 1))  # of the lines
    devices, units, names = (
        [known[n] for n in of[begins].tolist()]
        for of, (_, known) in zip(codes, keys, strict=True)
    )  # fmt: skip
    changed = (codes[1:, begins[1:]] != codes[1:, begins[:-1]]).any(axis=0)
    heads = np.concatenate(([0], np.flatnonzero(changed) + 1, [len(begins)])).tolist()
    ends = np.concatenate((begins, [len(at)]))
    groups = sorted(itertools.pairwise(heads), key=lambda g: (g[0] - g[1], names[g[0]]))
    lines: dict[str, list[int]] = {}
    for number, name in enumerate(devices):
        lines.setdefault(name, []).append(number)
    # First come bands and lines of few devices, then lines of the devices that matter.
    room, kept, shown = POINTS // count, set[int](), []
    for begin, end in groups:
        few = end - begin <= FEW
        room -= end - begin if few else len(Band._fields)
        if room < 0:
            break
        shown.append((begin, end))
        kept.update(range(begin, end) if few else ())
    measured.left_out = len(groups) - len(shown)
    measured.devices = len(lines)
    for name in dict.fromkeys((*(name for name in first if name in lines), *sorted(lines))):
        more = [n for n in lines[name] if n not in kept]
        room -= len(more)
        if room < 0:
            break
        kept.update(more)
        measured.curves_of += 1
    for begin, end in shown:
        of = slice(ends[begin], ends[end])
        curves = {
            devices[n]: _line(at[ends[n] : ends[n + 1]], mean[ends[n] : ends[n + 1]], count)
            for n in range(begin, end) if n in kept
        }  # fmt: skip
        bands = _bands(at[of], mean[of], count) if end - begin > FEW else []
        measured.quantities.append(
            Quantity(names[begin], units[begin], end - begin, bands, curves)
        )


def _codes(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """Return a number for each name, and the names by number; one that is missing is empty."""
    found = column.cast(pa.string()).combine_chunks().fill_null("").dictionary_encode()
    return np.asarray(found.indices, np.int64), found.dictionary.to_pylist()


def _line(
    at: NDArray[np.int64], mean: NDArray[np.float64], count: int
) -> list[float | None]:  # fmt: skip
    line: list[float | None] = [None] * count
    for n, value in zip(at.tolist(), mean.tolist(), strict=True):
        line[n] = value
    return line


def _bands(
    at: NDArray[np.int64], mean: NDArray[np.float64], count: int
) -> list[Band | None]:  # fmt: skip
    """Percentiles by nearest rank."""
    order = np.lexsort((mean, at))
    ranked = mean[order]
    begins = np.searchsorted(at[order], np.arange(count + 1))
    bands: list[Band | None] = []
    for begin, end in itertools.pairwise(begins.tolist()):
        ranks = [begin + round(part * (end - begin - 1)) for part in (0, 0.1, 0.5, 0.9, 1)]
        bands.append(Band(*(float(ranked[n]) for n in ranks)) if end > begin else None)
    return bands
