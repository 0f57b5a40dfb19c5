"""Windows of a stream of measurements, with the progress of time kept for each device.

Spark's watermark is one for a whole stream: a single board whose clock is ahead would have the
readings of all others dropped. Here a window of a device comes out when readings of that device
have passed it, so that a device speaks for itself alone.

The values of windows that are open, and how far each device has come, are the state. It is kept in
a folder, by the number of the batch:

    STATE/batch=N/state.json     numbers, and which batches have values that may be open
    STATE/batch=N/devices.arrow  how far each device has come
    STATE/batch=N/values.arrow   values that came with the batch

Such a folder is written under a hidden name, synced and renamed. What batch N makes of the state
of N-1 depends on nothing else than its rows: so a batch that is done again after a kill gives the
same windows and the same state.
"""

from __future__ import annotations

import json
import shutil
import uuid
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
_STATE, _DEVICES, _VALUES = "state.json", "devices.arrow", "values.arrow"
_UTC = pa.timestamp("us", tz="UTC")
_ROWS = pa.schema(
    [
        *((name, pa.string()) for name in ("device", "quantity", "unit")), ("time", _UTC),
        ("value", pa.float64()), ("received", _UTC),
    ]
)  # fmt: skip

Ints = Any  # arrays of numpy, of integers
Floats = Any


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
    devices: dict[str, int] = field(default_factory=dict)
    keys: dict[tuple[str, str], int] = field(default_factory=dict)
    newest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """By device: the time of its newest reading,"""
    heard: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """what the clock of arrivals was when it was heard last,"""
    closed: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """and the end of the windows that have come out."""
    device: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """Of each value whose window is open: device,"""
    key: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    """key,"""
    time: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """time,"""
    value: Floats = field(default_factory=lambda: np.empty(0, np.float64))
    """and the value itself."""

    def values(self) -> pa.Table:
        """The values of open windows."""
        return _values(self.device, self.key, self.time, self.value)


@dataclass
class Step:
    """The result of a batch on a state."""

    state: State
    windows: pa.Table
    """Those that came out."""
    new: pa.Table
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
    key = _numbers(
        zip(rows["quantity"].to_pylist(), rows["unit"].to_pylist(), strict=True), state.keys
    )
    value = rows["value"].to_numpy().astype(np.float64)
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
    fresh = ~late
    columns = [
        np.concatenate([old, new[fresh]])
        for old, new in (
            (before.device, device), (before.key, key), (before.time, time), (before.value, value),
        )
    ]  # fmt: skip
    out = _end(columns[2]) <= state.closed[columns[0]]
    state.device, state.key, state.time, state.value = (column[~out] for column in columns)
    still = fresh & (_end(time) > state.closed[device])
    example = rows["device"][int(np.argmax(late))].as_py() if late.any() else ""
    return Step(
        state,
        _aggregated(state, *(column[out] for column in columns)),
        _values(device[still], key[still], time[still], value[still]),
        int(late.sum()),
        example,
    )


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


def _values(device: Ints, key: Ints, time: Ints, value: Floats) -> pa.Table:
    return pa.table({"device": device, "key": key, "time": time, "value": value})


def _aggregated(state: State, device: Ints, key: Ints, time: Ints, value: Floats) -> pa.Table:
    """The windows that these values make, with the columns of the table windows."""
    start = _floor(time)
    order = np.lexsort((value, start, key, device))
    device, key, start, value = (column[order] for column in (device, key, start, value))
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


class Store:
    """The states of the last two batches, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, batch: int) -> State:
        """The state after a batch; after -1 nothing is known. Raises WindowsError."""
        if batch < 0:
            return State()
        folder = self._of(batch)
        try:
            known = json.loads((folder / _STATE).read_text())
        except FileNotFoundError:
            raise WindowsError(
                f"{folder} is missing: the table windows goes on from there. Remove that table, "
                "its checkpoint and its state, and it is made again from measurements"
            ) from None
        devices = _read(folder / _DEVICES)
        state = State(known["clock"], known["last"])
        state.devices = {name: n for n, name in enumerate(devices["device"].to_pylist())}
        state.keys = {(quantity, unit): n for n, (quantity, unit) in enumerate(known["keys"])}
        state.newest, state.heard, state.closed = (
            devices[name].to_numpy() for name in ("newest", "heard", "closed")
        )
        values = pa.concat_tables([_read(self._of(part) / _VALUES) for part in known["parts"]])
        columns = [values[name].to_numpy() for name in ("device", "key", "time", "value")]
        still = _end(columns[2]) > state.closed[columns[0]]
        state.device, state.key, state.time, state.value = (column[still] for column in columns)
        return state

    def save(self, batch: int, done: Step) -> None:
        """Keep the state after a batch, and that before it."""
        if self._of(batch).exists():
            return
        state, parts = done.state, self._parts(batch - 1)
        merge = len(parts) >= _PARTS
        hidden = self._folder / f".batch={batch}-{uuid.uuid4().hex}"
        hidden.mkdir(parents=True)
        durable.write(hidden / _VALUES, _table_bytes(state.values() if merge else done.new))
        devices = {
            "device": pa.array(list(state.devices), pa.string()), "newest": state.newest,
            "heard": state.heard, "closed": state.closed,
        }  # fmt: skip
        durable.write(hidden / _DEVICES, _table_bytes(pa.table(devices)))
        known: dict[str, Any] = {
            "clock": state.clock, "last": state.last, "keys": list(state.keys),
            "parts": [batch] if merge else [*parts, batch],
        }  # fmt: skip
        durable.write(hidden / _STATE, json.dumps(known).encode())
        durable.path(hidden)
        hidden.rename(self._of(batch))
        durable.path(self._folder)
        self._trim({batch, batch - 1, *known["parts"], *parts})

    def clear(self) -> None:
        """Forget all: a query begins."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def forget(self, device: str) -> int:
        """Remove a device, and return how many of its values were open, or 1.

        It is 0 if the device is not known. After a kill, call it again before anything else.
        """
        new, old = (self._folder.with_name(f".{self._folder.name}-{x}") for x in ("new", "old"))
        if new.exists() and not self._folder.exists():  # of a kill between the two renames
            new.rename(self._folder)
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        if not self._folder.exists():
            return 0
        places = set()
        for path in self._folder.glob("batch=*"):
            names = _read(path / _DEVICES)["device"].to_pylist()
            places |= {names.index(device)} if device in names else set()
        if not places:
            return 0
        (place,) = places  # a number stays with its device
        shutil.copytree(self._folder, new, ignore=shutil.ignore_patterns(".*"))
        removed = sum(_forget(path, device, place) for path in new.iterdir())
        durable.tree(new)
        self._folder.rename(old)
        new.rename(self._folder)
        durable.path(self._folder.parent)
        shutil.rmtree(old)
        return max(1, removed)

    def _of(self, batch: int) -> Path:
        return self._folder / f"batch={batch}"

    def _parts(self, batch: int) -> list[int]:
        if batch < 0:
            return []
        found: list[int] = json.loads((self._of(batch) / _STATE).read_text())["parts"]
        return found

    def _trim(self, keep: set[int]) -> None:
        """Remove what neither of the last two states needs, and what a kill left unfinished."""
        names = {f"batch={batch}" for batch in keep}
        for path in self._folder.iterdir():
            if path.name not in names:
                shutil.rmtree(path)


def _forget(state: Path, device: str, place: int) -> int:
    """Write the state after a batch without a device; return the values it had there."""
    devices, values = _read(state / _DEVICES), _read(state / _VALUES)
    durable.write(
        state / _DEVICES, _table_bytes(devices.filter(pc.not_equal(devices["device"], device)))
    )
    kept = values.filter(pc.not_equal(values["device"], place))
    number = kept["device"].to_numpy()
    number = np.where(number > place, number - 1, number).astype(np.int32)
    at = kept.schema.get_field_index("device")
    kept = kept.set_column(at, kept.schema.field(at), pa.array(number, kept.schema.field(at).type))
    durable.write(state / _VALUES, _table_bytes(kept))
    return len(values) - len(kept)


def _table_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read(path: Path) -> pa.Table:
    return pa.ipc.open_file(path.read_bytes()).read_all()


def open_windows(
    folder: Path,
    sink: Delta,
    rows: Callable[[DataFrame], pa.Table],
    too_late: Callable[[int, str], None],
    checkpoint: Path | None = None,
) -> Callable[[DataFrame, int], int]:
    """Return a function for `writeStream.foreachBatch` that writes windows into the sink.

    It returns how many values were in the batch.

    The stream is one of the table measurements. The windows of its numbers come out once each,
    even after kills.

    folder    of the state, on a disk of the driver's machine
    rows      returns the rows of a batch: see `numbers_of`
    too_late  called with how many readings of a batch came after their window had come out, and
              the device of one of them: they are in the table measurements alone
    checkpoint  of the query, if it is on this machine: see `sinks.into`

    A batch passes through the memory of the driver, as do the values of windows that are open: 24
    bytes each.
    """
    store = Store(folder)
    kept: dict[int, State] = {}  # the state after a batch: one, while batches follow each other

    def write(batch: DataFrame, batch_id: int) -> int:
        query = query_of(batch.sparkSession)
        before = kept.get(batch_id - 1) or store.load(batch_id - 1)
        if not batch_id:
            store.clear()
        numbers = _numbers_of(rows(batch))
        done = step(before, numbers)
        if not sink.has(query, batch_id):
            if checkpoint is not None:
                durable.batch(checkpoint, batch_id)
            sink.add([done.windows], done.windows.schema, query, batch_id)
        store.save(batch_id, done)
        kept.clear()
        kept[batch_id] = done.state
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
