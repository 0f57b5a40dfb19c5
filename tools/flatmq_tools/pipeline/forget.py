"""Remove a device from everything that a run and its ingest keep: `flatmq pipeline forget`.

Each step can be done again: after a kill at any point the command is simply repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake
from rich.table import Table

from flatmq.rare.wild import matches
from flatmq.wire import get_length, is_filter

from ..plain import PlainConsole
from . import checkpoints, durable, tables
from .delta_batches import Position, Reader
from .in_use import INGEST, lock
from .log import LogError, Record, Segment, Writer, segments
from .log_rows import topic_text
from .maintenance import writing
from .mapping.births import Births
from .open_windows import Store as Windows
from .segments import FORGOTTEN, header, records
from .state import forget as state
from .state.snapshots import Snapshots
from .tables import BY_DAY, FOLLOWERS, SNAPSHOTS

_TOPICS = 5  # that are printed of those whose messages still name the device
_NO_CHANGE = json.dumps({"commitInfo": {"operation": "FORGET"}})
_NO_MESSAGE = {4: bytes((FORGOTTEN, 4, 0, 0, 0, 0)), 5: bytes((FORGOTTEN, 5, 0, 0, 0, 0, 0))}


def check(device: str, filters: Sequence[str]) -> None:
    """Raise ValueError if this names no device, or if a filter breaks a rule of MQTT."""
    if not device:
        raise ValueError("DEVICE must be a name, not an empty text")
    for one in filters:
        name = one.encode()
        if not is_filter(name, 0, len(name)):
            raise ValueError(f"--topic must be a topic filter, not {one}")


class Rows:
    """The test whether rows and messages are those of a device.

    device   its name, as in the column `device`
    filters  topic filters of its messages; those on dev/DEVICE/... if there are none
    """

    def __init__(self, device: str, filters: Sequence[str] = ()) -> None:
        self.device = device
        self._filters = [one.encode() for one in filters]
        self._prefix = f"dev/{device}/"

    def is_topic(self, topic: str) -> bool:
        """Return whether the messages on a topic are of the device."""
        if not self._filters:
            return topic.startswith(self._prefix)
        name = bytearray(topic.encode())
        return any(topic and matches(one, name, 0, len(name)) for one in self._filters)

    def condition(self, table: ds.Dataset) -> ds.Expression:
        """Return the condition for those of a table."""
        column = "device" if "device" in table.schema.names else "topic"
        values: set[str] = set()
        for batch in table.to_batches(columns=[column]):
            values.update(pc.unique(batch.column(0)).drop_null().to_pylist())
        is_mine = self.is_topic if column == "topic" else self.device.__eq__
        return ds.field(column).isin(pa.array(filter(is_mine, values), pa.string()))


def forget(out: Path, rows: Rows, logs: Sequence[Path] = ()) -> Iterator[tuple[str, int]]:
    """Remove a device from the tables and the state in `out`, and from logs.

    Yields each place, and how many rows of the device it had.

    logs  folders of logs, beside the one in `out`

    An InUseError or TablesError comes before anything is removed.
    """
    _check(out, logs)
    with lock(out), lock(out, INGEST):
        places = _places(out)
        for folder in dict.fromkeys([out / "log", *logs]):
            if segments(folder):
                yield str(folder), remove_from_log(folder, rows)
        there = _tables(out)
        for table in there:
            yield table.name, _remove_rows(table, rows)
        yield from _state(out, rows)
        for table in there:
            _forget_past(table, places.get(table.name))


def _state(out: Path, rows: Rows) -> Iterator[tuple[str, int]]:
    """Remove the device from the state, and from the tables that are made of it."""
    births = out / "state" / "births.json"
    if births.exists():
        yield "state/births.json", Births(births).forget(rows.device)
    windows = out / "state" / "windows.db"
    if windows.exists():
        with Windows(windows) as store:
            yield f"state/{windows.name}", store.forget(rows.device)
    for file in sorted((out / "state").glob("*.sqlite")):
        yield f"state/{file.name}", state.remove(file, rows.device)
        Snapshots(file, str(out)).refresh()


def _tables(out: Path) -> list[Path]:
    names = (*BY_DAY, *SNAPSHOTS)
    return [out / name for name in names if tables.opened(out / name) is not None]


def _check(out: Path, more: Sequence[Path]) -> None:
    for folder in (out, *more):
        if not folder.is_dir():
            raise tables.TablesError(f"{folder}: no such folder")
    tables.check(out)
    for folder in (out / "log", *more):
        for copy in folder.glob("*.damaged"):
            raise LogError(f"{copy} may have messages of the device, too: remove it")
    if not _tables(out) and not any((out / name).exists() for name in ("state", "log")):
        raise tables.TablesError(f"OUT must be the folder of a run, not {out}: it has no table")


def _places(out: Path) -> dict[str, int]:
    """Return the version of each table at which the queries that read it go on.

    Raises TablesError if one has still something to read, of which a part would be gone then.
    """
    found: dict[str, int] = {}
    for name, queries in FOLLOWERS.items():
        for query in queries:
            checkpoint = out / "checkpoints" / query
            read = checkpoints.done(checkpoint)
            begun = checkpoints.offset(checkpoint, 0) is not None
            reader = Reader(str(out / name))
            if begun if read is None else not reader.is_read(read):
                raise tables.TablesError(
                    f"{out / name} has rows that the job {query} has not read: start `flatmq "
                    "pipeline run` once, which reads them, and end it; or, if you no longer run "
                    f"that job, remove {checkpoint}"
                )
            if read is not None:
                version = Position.of(read).version
                found[name] = min(found.get(name, version), version)
    return found


# Tables and logs


def _remove_rows(folder: Path, rows: Rows) -> int:
    """Remove the rows from the table in `folder`, and return their number.

    Not with `DeltaTable.delete`: it notes its condition, with the name, and pyarrow finds no text
    in the files that it writes.
    """
    table = DeltaTable(str(folder))
    whole = table.to_pyarrow_dataset()
    mine = rows.condition(whole)
    how = writing(table)
    removed = 0
    for part in table.partitions() if table.metadata().partition_columns else [{}]:
        here = ds.scalar(True)
        for name, value in part.items():
            here &= ds.field(name) == pa.scalar(value).cast(whole.schema.field(name).type)
        count = whole.count_rows(filter=here & mine)
        if count:
            rest = whole.scanner(filter=here & ~mine).to_reader()
            where = " AND ".join(f"{name} = '{value}'" for name, value in part.items())
            write_deltalake(
                table, rest, mode="overwrite", predicate=where or None, writer_properties=how
            )
        removed += count
    return removed


def _forget_past(folder: Path, first: int | None = None) -> None:
    """Remove the files and the log entries of all versions of a table but the newest.

    first  the version at which a query goes on; from it on, empty entries take the place of others

    Nothing may read or write the table meanwhile.
    """
    table = DeltaTable(str(folder))
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table = DeltaTable(str(folder))
    table.create_checkpoint()
    log = folder / "_delta_log"
    durable.tree(log)
    for path in log.iterdir():
        version = path.name.partition(".")[0]
        if version.isdecimal() and int(version) < table.version():
            path.unlink()
    for passed in range(table.version() if first is None else first, table.version()):
        (log / f"{passed:020d}.json").write_text(_NO_CHANGE)
    durable.tree(log)


def remove_from_log(folder: Path, rows: Rows) -> int:
    """Remove the messages from the log in `folder`, and return their number.

    In the log an empty message, FORGOTTEN, takes the place of each: the offsets of the others stay
    as they are, and `log_rows.read` passes over it.

    Raises LogError if another process has the log, or if it is damaged.
    """
    with Writer(folder):  # nobody else writes; what was torn is cut off
        return sum(_segment(segment, rows) for segment in segments(folder))


def _segment(segment: Segment, rows: Rows) -> int:
    draft = segment.path.with_name(f".{segment.path.name}")
    removed = end = 0
    with segment.path.open("rb") as old, draft.open("wb") as new:
        for record in records(old, segment.first):
            body, count = _without(record, rows)
            new.write(header(record.first, record.messages, record.time_us, body, record.version))
            new.write(body)
            removed += count
            end = record.end
    if end != segment.path.stat().st_size:
        draft.unlink()
        raise LogError(f"{segment.path}: damaged behind byte {end}")
    if removed:
        durable.path(draft)
        draft.rename(segment.path)
        durable.path(segment.path.parent)
    else:
        draft.unlink()
    return removed


def _without(record: Record, rows: Rows) -> tuple[bytes, int]:
    """Return the packets of a record without those of the device, and how many these were."""
    body, parts = record.body, []
    at = removed = 0
    while at < len(body):
        begin = at
        n = body[at + 1]
        if n < 128:
            at += 2
        else:
            n = get_length(body, at + 1, len(body))
            at += (n & 3) + 2
            n >>= 2
        topic = body[at + 2 : at + 2 + (body[at] << 8 | body[at + 1])]
        at += n
        if rows.is_topic(topic_text(topic)):
            parts.append(_NO_MESSAGE[record.version])
            removed += 1
        else:
            parts.append(body[begin:at])
    return b"".join(parts), removed


# The command


def _named(out: Path, rows: Rows) -> tuple[int, list[str]]:
    """Return how many messages left in raw have the device's name somewhere, and their topics."""
    count, topics = 0, set()
    raw = tables.opened(out / "raw")
    if raw is not None:
        for batch in raw.to_pyarrow_dataset().to_batches(columns=["topic", "payload"]):
            named = (pc.match_substring(batch[n], rows.device) for n in ("topic", "payload"))
            found = batch.filter(pc.or_kleene(*named))
            count += len(found)
            topics.update(found["topic"].to_pylist())
    return count, sorted(topics)


def main(device: str, out: Path, filters: Sequence[str], logs: Sequence[Path]) -> int:
    """Remove a device, print the rows removed, and return 1 if it was nowhere."""
    console = PlainConsole()
    rows = Rows(device, filters)
    shown = Table()
    shown.add_column("place")
    shown.add_column("removed", justify="right")
    total = 0
    with console.status(f"removing {device} from {out} ..."):
        for place, count in forget(out, rows, logs):
            total += count
            shown.add_row(place, f"{count:,}")
        count, topics = _named(out, rows)
    if total:
        console.print(shown)
    else:
        console.print(f"{device} is nowhere in {out}", soft_wrap=True)
    if count:
        some = ", ".join([*topics[:_TOPICS], *["..."] * (len(topics) > _TOPICS)])
        console.print(
            f"{count:,} messages in raw still have {device} in their topic or payload, on {some}: "
            "name those that are the device's with --topic",
            soft_wrap=True,
        )  # fmt: skip
    return 0 if total else 1
