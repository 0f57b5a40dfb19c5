"""The work of a task: row groups of the table raw become rows of other tables, where it runs.

It parses the messages and writes the rows that they become to files that no reader looks at yet.
To the driver goes what the state has to know: a few numbers for each pack.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..delta_batches import read
from ..delta_files import Added, Files, store
from ..jobs import parsing
from ..jobs.columns import INVALID, MESSAGE
from ..jobs.limits import Bounds
from ..jobs.parsing import DIFFERS, RECORD, Reader, Reads, with_messages
from ..log_rows import SCHEMA
from .arrivals import Status
from .groups import Bools, Ints, Rows
from .history import CAME, Dead, came
from .values import DAY

_UTC = pa.timestamp("us", "UTC")
MESSAGES = pa.schema([SCHEMA.field(name) for name in (*MESSAGE, *INVALID)])
_VALUES = pa.schema(
    [
        ("device", pa.string()), ("boot", pa.int64()), ("seq", pa.int64()), *RECORD,
        ("topic", pa.string()), ("received", _UTC),
    ]
)  # fmt: skip
SCHEMAS = {
    "measurements": _VALUES,
    "out_of_time": _VALUES,
    "dead_letters": pa.schema([*(MESSAGES.field(n) for n in MESSAGE), ("reason", pa.string())]),
}
"""By table, its columns."""
_OF_STATUS = re.compile(rb"dev/([^/+#]*)/status")  # a topic name, of which this is the device
_STATUS = 32  # characters of a status that are kept
_TOPIC = 200  # characters of the topic name of a dead letter that are kept
_PER_PACK = ("measurements", "out_of_time", "without_value")
KEYS = pa.schema(
    [
        ("device", pa.string()),
        *((name, pa.int64()) for name in ("boot", "seq", "at", "offset", "delay", "said")),
        ("retain", pa.bool_()), ("dup", pa.bool_()),
        *((name, pa.int32()) for name in _PER_PACK),
    ]
)  # fmt: skip
"""What the state has to know of a pack: `said` is a hash of what it says, if it has a number and
no boot; the last three are how many rows it has in tables, and how many of the former without a
value."""


@dataclass(frozen=True)
class Task:
    """The work to be done with row groups.

    raw     the folder or URL of the table
    reads   how messages are read
    bounds  how far the time of a reading may be from its arrival
    files   by table, where its rows go: some of SCHEMAS
    """

    raw: str
    reads: Reads
    bounds: Bounds
    files: Mapping[str, Files]


@dataclass
class Taken:
    """The result of a task."""

    keys: pa.Table
    """A row for each pack, with the columns of KEYS."""
    files: dict[str, list[Added]]
    came: Rows
    """How many messages came in each second: rows of CAME."""
    dead: list[Dead]
    statuses: list[Status]
    """The newest of each device."""
    without_value: str = ""
    """One of the readings without a value,"""
    out_of_time: str = ""
    """and one of those out of time."""


def take(task: Task, units: list[tuple[str, int]]) -> Taken:
    """Read row groups, by path and number, and write what they become."""
    return taken(task, read(task.raw, units, MESSAGES))


def taken(task: Task, batches: Iterable[pa.RecordBatch]) -> Taken:
    """Write what messages become. They have the columns of MESSAGES."""
    reader, heard = Reader(task.reads), _Heard()
    found: dict[str, str] = {}
    keys = []
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(each) for name, each in task.files.items()}
        for messages in batches:
            heard.add(messages)
            packs, position = reader.packs(messages)
            rows = with_messages(packs, messages.take(pa.array(position)))
            alive = packs["reason"].is_null()
            dead = pa.Table.from_batches([rows.filter(pc.invert(alive))])
            if len(dead):
                heard.add_dead(dead)
                if "dead_letters" in files:
                    files["dead_letters"].write(dead.select(SCHEMAS["dead_letters"].names))
            rows = rows.filter(alive)
            keys.append(_keys(rows, _values(rows, task.bounds, files, found)))
    return Taken(
        pa.Table.from_batches(keys, KEYS), {name: each.added for name, each in files.items()},
        np.concatenate([np.empty(0, CAME), *heard.came]), heard.dead,
        [*heard.statuses.values()], **found,
    )  # fmt: skip


def certificates(
    raw: str, mapping: parsing.Mapping, units: list[tuple[str, int]]
) -> list[tuple[str, bytes, int, int]]:
    """Return the birth certificates of Sparkplug B in row groups: see `parsing.certificates`."""
    found = (parsing.certificates(messages, mapping) for messages in read(raw, units, MESSAGES))
    return [*itertools.chain.from_iterable(found)]


def _keys(packs: pa.RecordBatch, per_pack: Sequence[Ints]) -> pa.RecordBatch:
    at, time = (packs[name].cast(pa.int64()) for name in ("timestamp", "time"))
    columns = {
        **{name: packs[name] for name in ("device", "boot", "seq")},
        "at": at,
        "offset": packs["offset"],
        "delay": pc.if_else(packs["told"], pc.subtract(at, time), None),
        "said": _said(packs),
        **{name: packs[name] for name in ("retain", "dup")},
        **dict(zip(_PER_PACK, (pa.array(n, pa.int32()) for n in per_pack), strict=True)),
    }
    return pa.RecordBatch.from_pydict(columns, schema=KEYS)


def _said(packs: pa.RecordBatch) -> pa.Array:
    """A hash of what each pack says that has a number and no boot.

    Records have the time of arrival where the device says none, so their times do not count.
    """
    counting = pc.and_(packs["boot"].is_null(), packs["seq"].is_valid())
    said: list[int | None] = [None] * len(packs)
    for n in np.flatnonzero(counting).tolist():
        time = packs["time"][n].value if packs["told"][n].as_py() else None
        records = [
            tuple(record[name] for name in record if name != "time")
            for record in packs["records"][n].as_py()
        ]
        digest = hashlib.blake2b(repr((time, records)).encode(errors="replace"), digest_size=8)
        said[n] = int.from_bytes(digest.digest(), "big", signed=True)
    return pa.array(said, pa.int64())


def _values(
    packs: pa.RecordBatch, bounds: Bounds, files: Mapping[str, Files], found: dict[str, str]
) -> list[Ints]:
    """Write the values of packs, and return _PER_PACK. `found` gets an example of odd ones."""
    records = packs["records"]
    of = np.repeat(np.arange(len(packs)), records.value_lengths())
    pack = pa.array(of)
    values = {name: packs[name].take(pack) for name in ("device", "boot", "seq", "topic")}
    values |= dict(zip(RECORD.names, records.flatten().flatten(), strict=True))
    values["received"] = packs["timestamp"].take(pack)
    rows = pa.table([values[name] for name in _VALUES.names], schema=_VALUES)
    after = pc.subtract(rows["time"].cast(pa.int64()), rows["received"].cast(pa.int64()))
    near = pc.and_(
        pc.greater_equal(after, -round(bounds.behind * 1e6)),
        pc.less_equal(after, round(bounds.ahead * 1e6)),
    ).fill_null(True)
    far = pc.invert(near)
    without = pc.and_(pc.is_null(pc.coalesce(rows["value"], rows["total"])), near)
    for name in ("text", "flag"):
        without = pc.and_(without, pc.is_null(rows[name]))
    _example(found, "without_value", rows.filter(without), lambda row: row["quantity"])
    _example(
        found, "out_of_time", rows.filter(far),
        lambda row: ", received ".join(
            f"{row[name].replace(tzinfo=None)}" for name in ("time", "received")
        ),
    )  # fmt: skip
    for name, where in (("measurements", near), ("out_of_time", far)):
        some = pc.any(where).as_py()
        if some and name in files:
            files[name].write(rows.filter(where))
    return [np.bincount(of[where.to_numpy()], None, len(packs)) for where in (near, far, without)]


def _example(
    found: dict[str, str], name: str, rows: pa.Table, text: Callable[[dict[str, Any]], str]
) -> None:
    if len(rows) and name not in found:
        [row] = rows.slice(0, 1).to_pylist()
        found[name] = f"such as {row['device']}: {text(row)}"


class _Heard:
    """Knowledge of messages that takes no parsing, and dead letters."""

    def __init__(self) -> None:
        self.came: list[Rows] = []
        self.dead: list[Dead] = []
        self.statuses: dict[str, Status] = {}

    def add(self, messages: pa.RecordBatch) -> None:
        at = messages["timestamp"].cast(pa.int64()).to_numpy()
        self.came.append(came(at))
        names = messages["topic"].cast(pa.binary()).dictionary_encode()
        found = [_OF_STATUS.fullmatch(name) for name in names.dictionary.to_pylist()]
        wanted = np.array([one is not None for one in found], np.bool_)
        if wanted.any():
            for n in np.flatnonzero(wanted[names.indices.to_numpy()]).tolist():
                one = found[names.indices[n].as_py()]
                self._add_status(one[1].decode(errors="replace"), messages, n, int(at[n]))

    def _add_status(self, device: str, messages: pa.RecordBatch, n: int, at: int) -> None:
        payload = messages["payload"][n].as_py() or b""
        offset = messages["offset"][n].as_py()
        # Whatever it is: bytes that are not UTF-8, too.
        text = payload.decode(errors="replace")[:_STATUS]
        known = self.statuses.get(device)
        if known is None or (at, offset) > (known.at, known.offset):
            self.statuses[device] = Status(device, text or None, at, offset)

    def add_dead(self, rows: pa.Table) -> None:
        at = rows["timestamp"].cast(pa.int64())
        columns = (rows["reason"], rows["topic"], at, rows["offset"])
        for reason, topic, when, offset in zip(*(c.to_pylist() for c in columns), strict=True):
            kind = re.sub(DIFFERS, "", reason)
            self.dead.append(Dead(kind, reason, (topic or "")[:_TOPIC], when, offset))


# Rows that are not to be in a table after all


@dataclass(frozen=True)
class Fix:
    """A file whose rows are not what they should be."""

    table: str
    path: str
    keep: Bools
    """Which of its rows stay."""
    boots: pa.Array
    """The boot of each row."""


def fixes(taken: Taken, copies: Bools, boots: pa.ChunkedArray) -> list[Fix]:
    """Return the files of a task that are not right, since some packs of it came before.

    copies  which packs these are
    boots   of each pack, also of those that did not have one themselves
    """
    filled = pc.and_(taken.keys["boot"].is_null(), boots.is_valid())
    wrong = copies | filled.to_numpy()
    if not wrong.any():
        return []
    day = taken.keys["at"].to_numpy() // DAY
    found = []
    for table in ("measurements", "out_of_time"):
        rows = taken.keys[table].to_numpy()
        for file in taken.files.get(table, ()):
            of_day = [day == np.datetime64(each).astype(np.int64) for each in file.values.values()]
            mine = np.flatnonzero(of_day[0]) if of_day else np.arange(len(rows))
            pack = np.repeat(mine, rows[mine])
            if wrong[pack].any():
                found.append(Fix(table, file.path, ~copies[pack], boots.take(pa.array(pack))))
    return found


def fixed(files: Files, fix: Fix) -> list[Added]:
    """Write a file again as it should be; the old one stays."""
    done = 0
    with files, store(files.folder).open_input_file(fix.path) as file:
        for rows in pq.ParquetFile(file).iter_batches():
            part = slice(done, done + len(rows))
            done += len(rows)
            at = rows.schema.get_field_index("boot")
            boots = fix.boots[part].combine_chunks()
            whole = rows.set_column(at, rows.schema.field(at), boots)
            kept = pa.Table.from_batches([whole.filter(pa.array(fix.keep[part]))])
            if len(kept):
                files.write(kept)
    return files.added
