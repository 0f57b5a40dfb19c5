"""Windows of a stream of measurements, with the progress of time kept for each device.

Spark's watermark is one for a whole stream: a single board whose clock is ahead would have the
readings of all others dropped. Here a window of a device comes out when readings of that device
have passed it, so that a device speaks for itself alone.

The values of windows that are open, and how far each device has come, are the state, in a SQLite
file. What a batch makes of the state before it depends on nothing else than its rows: so a batch
that is done again after a kill gives the same windows and the same state.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from . import durable
from .delta import Delta
from .delta_batches import read, work
from .jobs.windows import PERCENTILES
from .sinks import query_of
from .state.store import File

# All in microseconds.
_SIZE = 60_000_000  # of a window
_LATE = 600_000_000
"""A reading of a device may be so far behind its newest one and still be in its window."""
_QUIET = 3_600_000_000
"""A device that has sent nothing for this time counts as silent, and its windows come out. A board
that was away for less than that misses no window."""
STEP = 60_000_000
"""By so much, at most, one arrival moves the clock of arrivals on from the one before. So a step
of the receiver's clock makes nobody silent, and neither does a receiver that was away."""
_RESET = 3_600_000_000  # by which arrivals must go back for the clock to follow
_PARTS = 64  # batches whose values are kept apart, until they are written as one
_NEVER = np.iinfo(np.int64).min // 2
_UTC = pa.timestamp("us", tz="UTC")
_ROWS = pa.schema(
    [
        *((name, pa.string()) for name in ("device", "quantity", "unit")), ("time", _UTC),
        ("value", pa.float64()), ("received", _UTC),
    ]
)  # fmt: skip

_VALUE = np.dtype([("device", "<i4"), ("key", "<i4"), ("time", "<i8"), ("value", "<f8")])
_VERSION = 1
_SCHEMA = """
CREATE TABLE place (query TEXT, batch INTEGER, clock INTEGER, last INTEGER, times BLOB);
CREATE TABLE devices (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE keys (id INTEGER PRIMARY KEY, quantity TEXT, unit TEXT);
CREATE TABLE parts (batch INTEGER PRIMARY KEY, rows BLOB)
"""
"""The times are how far the devices have come: newest, heard and closed of each, in the order of
their numbers. A part has the values that came with a batch, some of which may be open. The name of
a device that was forgotten is null: numbers stay as they are."""

Ints = Any  # arrays of numpy, of integers
Values = Any  # and of _VALUE


class WindowsError(RuntimeError):
    """The state is not that of the batch before; the text says what to do."""


@dataclass
class State:
    """The state after a batch.

    Times are microseconds since 1970; devices and keys (a quantity with its unit) are numbers,
    by their places in the lists.
    """

    clock: int = 0
    """The clock of arrivals: see STEP."""
    last: int | None = None
    """The newest arrival."""
    devices: dict[Any, int] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    newest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """By device: the time of its newest reading,"""
    heard: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """what the clock of arrivals was when it was heard last,"""
    closed: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """and the end of the windows that have come out."""
    open: Values = field(default_factory=lambda: np.empty(0, _VALUE))
    """The values whose windows are open."""


@dataclass
class Step:
    """The result of a batch on a state."""

    state: State
    windows: pa.Table
    """Those that came out."""
    new: Values
    """Values that came with the batch and are open."""
    too_late: int = 0
    """Values that came after their window had come out."""
    example: str = ""
    """The device of one of these."""


def step(before: State, rows: pa.Table) -> Step:
    """Take a batch: the rows of a table of measurements, with a value and a time."""
    state = State(devices=dict(before.devices), keys=dict(before.keys))
    time, received = (_micros(rows[name]) for name in ("time", "received"))
    state.clock, state.last = _clock(before, received)
    device = _numbers(rows["device"].to_pylist(), state.devices)
    values = np.empty(len(rows), _VALUE)
    values["device"], values["time"], values["value"] = device, time, rows["value"].to_numpy()
    values["key"] = _numbers(
        zip(rows["quantity"].to_pylist(), rows["unit"].to_pylist(), strict=True), state.keys
    )
    more = len(state.devices) - len(before.devices)
    state.newest, state.heard, closed = (
        np.concatenate([old, np.full(more, _NEVER)])
        for old in (before.newest, before.heard, before.closed)
    )
    late = _end(time) <= closed[device]
    np.maximum.at(state.newest, device, time)
    state.heard[device] = state.clock

    # How far the windows of each device come out now.
    reached = _floor(state.newest - _LATE)
    state.closed = np.maximum(closed, np.where(state.newest == _NEVER, closed, reached))
    silent = state.clock - state.heard >= _QUIET
    state.closed = np.where(silent, np.maximum(state.closed, _end(state.newest)), state.closed)
    every = np.concatenate([before.open, values[~late]])
    still = _still_open(every, state.closed)
    state.open = every[still]
    new = values[~late & _still_open(values, state.closed)]
    example = rows["device"][int(np.argmax(late))].as_py() if late.any() else ""
    return Step(state, _aggregated(state, every[~still]), new, int(late.sum()), example)


def _still_open(values: Values, closed: Ints) -> Any:
    return _end(values["time"]) > closed[values["device"]]


def _clock(before: State, received: Ints) -> tuple[int, int | None]:
    """The clock of arrivals and the newest arrival, after these."""
    if not len(received):
        return before.clock, before.last
    ordered = np.sort(received)
    last = before.last
    if last is None or ordered[-1] < last - _RESET:  # the receiver's clock went back
        last = int(ordered[0])
    later = ordered[ordered > last]
    gaps = np.diff(later, prepend=last)
    clock = before.clock + int(np.minimum(gaps, STEP).sum())
    return clock, int(later[-1]) if len(later) else last


def _micros(column: pa.ChunkedArray) -> Ints:
    return column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()


def _numbers(names: Any, known: dict[Any, int]) -> Ints:
    """The number of each name; names that are not known get the next ones."""
    return np.fromiter((known.setdefault(name, len(known)) for name in names), np.int32)


def _floor(time: Ints) -> Ints:
    return time - time % _SIZE


def _end(time: Ints) -> Ints:
    """The end of the window that a time is in."""
    return _floor(time) + _SIZE


def _aggregated(state: State, values: Values) -> pa.Table:
    """The windows that these values make, with the columns of the table windows."""
    columns_of = (values["device"], values["key"], _floor(values["time"]), values["value"])
    order = np.lexsort(columns_of[::-1])
    device, key, start, value = (column[order] for column in columns_of)
    same = (device[1:] == device[:-1]) & (key[1:] == key[:-1]) & (start[1:] == start[:-1])
    first = np.flatnonzero(np.concatenate([[True] * bool(len(value)), ~same]))
    count = np.diff(np.append(first, len(value)))
    names, pairs = list(state.devices), list(state.keys)
    sums = np.add.reduceat(value, first) if len(first) else value
    columns: dict[str, Any] = {
        "device": pa.array([names[n] for n in device[first]], pa.string()),
        "quantity": pa.array([pairs[n][0] for n in key[first]], pa.string()),
        "unit": pa.array([pairs[n][1] for n in key[first]], pa.string()),
        "start": pa.array(start[first]).cast(_UTC),
        "end": pa.array(start[first] + _SIZE).cast(_UTC),
        "count": pa.array(count, pa.int64()),
        "min": pa.array(value[first]),
        "max": pa.array(value[first + count - 1]),
        # A sum of values near the largest double is past it.
        "mean": pa.array(np.where(np.isfinite(sums), sums / count, value[first])),
    }
    for part in PERCENTILES:  # by nearest rank
        rank = np.ceil(part * count - 1e-9).astype(np.int64) - 1
        columns[f"p{part * 100:.0f}"] = pa.array(value[first + rank])
    return pa.table(columns)


class Store(File):
    """The state, in a file."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, _SCHEMA, _VERSION)

    def place(self) -> tuple[str, int] | None:
        """Return the query and the number of the last batch that is included."""
        row = self.db.execute("SELECT query, batch FROM place").fetchone()
        return None if row is None else (row[0], row[1])

    def load(self) -> State:
        """Return the state after that batch."""
        execute = self.db.execute
        with self.named():
            found = execute("SELECT clock, last, times FROM place").fetchone()
            devices = execute("SELECT name, id FROM devices ORDER BY id").fetchall()
            keys = execute("SELECT quantity, unit, id FROM keys ORDER BY id").fetchall()
            parts = execute("SELECT rows FROM parts ORDER BY batch").fetchall()
        if found is None:
            return State()
        state = State(*found[:2])
        # A device that was forgotten has its number for a name, which no other has.
        state.devices = {n if name is None else name: n for name, n in devices}
        state.keys = {(quantity, unit): n for quantity, unit, n in keys}
        state.newest, state.heard, state.closed = np.frombuffer(found[2], np.int64).reshape(3, -1)
        values = np.frombuffer(b"".join(rows for (rows,) in parts), _VALUE)
        state.open = values[_still_open(values, state.closed)]
        return state

    def save(self, query: str, batch: int, before: State, done: Step) -> None:
        """Include a batch, if it made this of the state before it."""
        state = done.state
        devices = [(n, name) for name, n in _after(state.devices, len(before.devices))]
        keys = [(n, *key) for key, n in _after(state.keys, len(before.keys))]
        times = np.concatenate([state.newest, state.heard, state.closed]).tobytes()
        with self.writing() as db:
            db.executemany("INSERT INTO devices VALUES (?, ?)", devices)
            db.executemany("INSERT INTO keys VALUES (?, ?, ?)", keys)
            (parts,) = db.execute("SELECT count(*) FROM parts").fetchone()
            if merge := parts >= _PARTS:
                db.execute("DELETE FROM parts")
            new = state.open if merge else done.new
            db.execute("INSERT INTO parts VALUES (?, ?)", (batch, new.tobytes()))
            db.execute("DELETE FROM place")
            place = (query, batch, state.clock, state.last, times)
            db.execute("INSERT INTO place VALUES (?, ?, ?, ?, ?)", place)

    def forget(self, device: str) -> int:
        """Remove a device, and return how many of its values were open, or 1.

        It is 0 if the device is not known.
        """
        found = self.db.execute("SELECT id FROM devices WHERE name = ?", (device,)).fetchone()
        if found is None:
            return 0
        state = self.load()
        mine = state.open["device"] == found[0]
        with self.forgetting() as db:
            db.execute("UPDATE devices SET name = NULL WHERE id = ?", found)
            db.execute("DELETE FROM parts")
            db.execute("INSERT INTO parts VALUES (0, ?)", (state.open[~mine].tobytes(),))
        return max(1, int(mine.sum()))


def _after(known: dict[Any, int], count: int) -> Any:
    """The names behind the first so many, with their numbers."""
    return itertools.islice(known.items(), count, None)


def open_windows(
    file: Path,
    sink: Delta,
    rows: Callable[[DataFrame], pa.Table],
    too_late: Callable[[int, str], None],
    checkpoint: Path | None = None,
) -> Callable[[DataFrame, int], int]:
    """Return a function for `writeStream.foreachBatch` that writes windows into the sink.

    It returns how many values were in the batch.

    The stream is one of the table measurements. The windows of its numbers come out once each,
    even after kills.

    file      of the state, on a disk of the driver's machine
    rows      returns the rows of a batch: see `numbers_of`
    too_late  called with how many readings of a batch came after their window had come out, and
              the device of one of them: they are in the table measurements alone
    checkpoint  of the query, if it is on this machine: see `sinks.into`

    A batch passes through the memory of the driver, as do the values of windows that are open: 24
    bytes each.
    """
    kept: dict[tuple[str, int], State] = {}  # the state after the last batch

    def write(batch: DataFrame, batch_id: int) -> int:
        query = query_of(batch.sparkSession)
        with Store(file) as store:
            place = store.place()
            if place == (query, batch_id):
                return 0  # The run was killed before Spark recorded that the batch is done.
            if not batch_id:
                store.clear()
            elif place != (query, batch_id - 1):
                raise WindowsError(
                    f"{file} lacks the batch before {batch_id}, from which the table windows goes "
                    "on: `flatmq pipeline rebuild windows` has it made again from measurements"
                )
            before = kept.pop((query, batch_id - 1), None) or store.load()
            numbers = _numbers_of(rows(batch))
            done = step(before, numbers)
            if not sink.has(query, batch_id):
                if checkpoint is not None:
                    durable.batch(checkpoint, batch_id)
                sink.add([done.windows], done.windows.schema, query, batch_id)
            store.save(query, batch_id, before, done)
        kept[query, batch_id] = done.state
        if done.too_late:
            too_late(done.too_late, done.example)
        return len(numbers)

    return write


def _numbers_of(rows: pa.Table) -> pa.Table:
    """Return the rows that windows are made of: those with a number and times."""
    wanted = [rows[name].is_valid() for name in ("value", "time", "received")]
    return rows.filter(reduce(pc.and_, wanted))


def numbers_of(folder: str) -> Callable[[DataFrame], pa.Table]:
    """Return what `rows` may be of a stream of the row groups of a table in `folder`."""

    def of_units(units: list[tuple[str, int]]) -> pa.Table:
        rows = pa.Table.from_batches(read(folder, units, _ROWS), _ROWS)
        return _numbers_of(rows)

    return lambda batch: pa.concat_tables([_ROWS.empty_table(), *work(batch, of_units)])
