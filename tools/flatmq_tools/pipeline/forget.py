"""Remove a device from everything that a run and its ingest keep: `flatmq pipeline forget`.

Each step can be done again: after a kill at any point the command is simply repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from . import checkpoints, forget_delta, tables
from .delta_batches import Position, Reader
from .forget_log import remove as remove_from_log
from .forget_rows import Rows
from .in_use import INGEST, InUse
from .log import segments
from .mapping.births import Births
from .open_windows import Store as Windows
from .state import forget as state
from .state.snapshots import Snapshots
from .tables import BY_DAY, FOLLOWERS, SNAPSHOTS

_TOPICS = 5  # that are printed of those whose messages still name the device


class ForgetError(RuntimeError):
    """Nothing was removed; the text names the folder and says what to do."""


class Removed(NamedTuple):
    """The rows that a table, or another place, had of the device."""

    place: str
    rows: int


def forget(out: Path, rows: Rows, logs: Sequence[Path] = ()) -> Iterator[Removed]:
    """Remove a device from the tables and the state in `out`, and from logs.

    logs  folders of logs, beside the one in `out`

    An InUseError or ForgetError comes before anything is removed.
    """
    _check(out, logs)
    with InUse(out), InUse(out, INGEST):
        places = _places(out)
        for folder in dict.fromkeys([out / "log", *logs]):
            if segments(folder):
                yield Removed(str(folder), remove_from_log(folder, rows))
        there = _tables(out)
        for table in there:
            yield Removed(table.name, forget_delta.remove(table, rows))
        yield from _state(out, rows)
        for table in there:
            forget_delta.forget_past(table, places.get(table.name))


def _state(out: Path, rows: Rows) -> Iterator[Removed]:
    """Remove the device from the state, and from the tables that are made of it."""
    births = out / "state" / "births.json"
    if births.exists():
        yield Removed("state/births.json", Births(births).forget(rows.device))
    windows = out / "state" / "windows.db"
    if windows.exists():
        with Windows(windows) as store:
            yield Removed(f"state/{windows.name}", store.forget(rows.device))
    for file in sorted((out / "state").glob("*.sqlite")):
        yield Removed(f"state/{file.name}", state.remove(file, rows.device))
        Snapshots(file, str(out)).refresh()


def _tables(out: Path) -> list[Path]:
    names = (*BY_DAY, *SNAPSHOTS)
    return [out / name for name in names if tables.opened(out / name) is not None]


def _check(out: Path, more: Sequence[Path]) -> None:
    for folder in (out, *more):
        if not folder.is_dir():
            raise ForgetError(f"{folder}: no such folder")
    tables.check(out)
    if not _tables(out) and not any((out / name).exists() for name in ("state", "log")):
        raise ForgetError(f"OUT must be the folder of a run, not {out}: it has no table")


def _places(out: Path) -> dict[str, int]:
    """Return the version of each table at which the queries that read it go on.

    Raises ForgetError if one has still something to read, of which a part would be gone then.
    """
    found: dict[str, int] = {}
    for name, queries in FOLLOWERS.items():
        for query in queries:
            checkpoint = out / "checkpoints" / query
            read = checkpoints.done(checkpoint)
            begun = checkpoints.offset(checkpoint, 0) is not None
            reader = Reader(str(out / name))
            if begun if read is None else not reader.is_read(read):
                raise ForgetError(
                    f"{out / name} has rows that the job {query} has not read: start `flatmq "
                    "pipeline run` once, which reads them, and end it"
                )
            if read is not None:
                version = Position.of(read).version
                found[name] = min(found.get(name, version), version)
    return found


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
    console = Console()
    rows = Rows(device, filters)
    shown = Table()
    shown.add_column("place")
    shown.add_column("removed", justify="right")
    total = 0
    with console.status(f"removing {device} from {out} ..."):
        for one in forget(out, rows, logs):
            total += one.rows
            shown.add_row(one.place, f"{one.rows:,}")
        count, topics = _named(out, rows)
    if total:
        console.print(shown)
    else:
        console.print(f"{device} is nowhere in {out}", markup=False, soft_wrap=True)
    if count:
        some = ", ".join([*topics[:_TOPICS], *["..."] * (len(topics) > _TOPICS)])
        console.print(
            f"{count:,} messages in raw still have {device} in their topic or payload, on {some}: "
            "name those that are the device's with --topic",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    return 0 if total else 1
