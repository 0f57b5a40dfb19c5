"""Remove a device from everything that a run and its ingest keep: `flatmq pipeline forget`.

Each step can be done again: after a kill at any point the command is simply repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from . import forget_days, forget_delta
from .forget_log import remove as remove_from_log
from .forget_log import remove_landed
from .forget_rows import Rows
from .in_use import InUse, InUseError
from .layout import files
from .log import LogError, segments
from .mapping.births import Births
from .merge import can_merge
from .open_windows import Store as Windows
from .state import forget as state
from .state.snapshots import NAMES, Snapshots
from .state.store import StateError
from .tables import BY_DAY

_TOPICS = 5  # that are printed of those whose messages still name the device


class ForgetError(RuntimeError):
    """Nothing was removed; the text names the folder and says what to do."""


ERRORS = (ForgetError, InUseError, LogError, StateError)


class Removed(NamedTuple):
    """The rows that a table, or another place, had of the device."""

    place: str
    rows: int


def forget(
    out: Path, rows: Rows, logs: Sequence[Path] = (), landed: Sequence[Path] = ()
) -> Iterator[Removed]:
    """Remove a device from the tables and the state in `out`, and from logs and landed files.

    logs    folders of logs, beside the one in `out`
    landed  folders where an ingest lands files

    Raises one of ERRORS. An InUseError or ForgetError comes before anything is removed.
    """
    _check(out, [*logs, *landed])
    with InUse(out, alone=True):
        _check_settled(out)
        for folder in dict.fromkeys([out / "log", *logs]):
            if segments(folder):
                yield Removed(str(folder), remove_from_log(folder, rows))
        for folder in landed:
            yield Removed(str(folder), remove_landed(folder, rows))
        for name in BY_DAY:
            if (out / name).is_dir():
                yield Removed(name, forget_days.remove(out / name, rows))
        yield from _delta(out / "delta", rows)
        yield from _state(out, rows)


def _state(out: Path, rows: Rows) -> Iterator[Removed]:
    """Remove the device from the state, and from the tables that are made of it."""
    births = out / "state" / "births.json"
    if births.exists():
        yield Removed("state/births.json", Births(births).forget(rows.device))
    yield Removed("state/windows", Windows(out / "state" / "windows").forget(rows.device))
    for name in NAMES:
        if (out / name).is_dir():
            yield Removed(name, sum(int(rows.of_file(file).sum()) for file in files(out / name)))
    delta = out / "delta"
    for file in sorted((out / "state").glob("*.sqlite")):
        yield Removed(f"state/{file.name}", state.remove(file, rows.device))
        Snapshots(file, out, str(delta) if delta.is_dir() else None).refresh()
    if delta.is_dir():
        for table in _delta_tables(delta):
            forget_delta.forget_past(table)


def _delta(folder: Path, rows: Rows) -> Iterator[Removed]:
    for table in _delta_tables(folder):
        yield Removed(f"delta/{table.name}", forget_delta.remove(table, rows))


def _delta_tables(folder: Path) -> list[Path]:
    return [path.parent for path in sorted(folder.glob("*/_delta_log"))]


def _check(out: Path, more: Sequence[Path]) -> None:
    for folder in (out, *more):
        if not folder.is_dir():
            raise ForgetError(f"{folder}: no such folder")
    if not any((out / name).exists() for name in (*BY_DAY, *NAMES, "state", "log")):
        raise ForgetError(f"OUT must be the folder of a run, not {out}: it has no table")
    if (out / "iceberg").exists():
        raise ForgetError(
            f"{out / 'iceberg'} has Iceberg tables, whose old files flatmq cannot remove: delete "
            "the rows there with an Iceberg engine, expire the snapshots and remove orphan files; "
            "then move that folder elsewhere while `flatmq pipeline forget` runs"
        )
    if not can_merge(out):
        raise ForgetError(
            f"{out}: rows cannot be removed here, because the file system cannot exchange two "
            "folders in one step: copy OUT to a local disk, and repeat the command there"
        )


def _check_settled(out: Path) -> None:
    for name in BY_DAY:
        folder = out / name
        if folder.is_dir() and not forget_days.is_settled(folder):
            raise ForgetError(
                f"{folder} has a batch that a kill interrupted, or is of an earlier version: "
                "start `flatmq pipeline run` once, which finishes it, and end it"
            )


def _named(out: Path, rows: Rows) -> tuple[int, list[str]]:
    """Return how many payloads that are left in raw have the device's name, and their topics."""
    count, topics = 0, set()
    for file in files(out / "raw"):
        for batch in pq.ParquetFile(file).iter_batches(columns=["topic", "payload"]):
            found = batch.filter(pc.match_substring(batch["payload"], rows.device))
            count += len(found)
            topics.update(found["topic"].to_pylist())
    return count, sorted(topics)


def main(
    device: str, out: Path, filters: Sequence[str], logs: Sequence[Path], landed: Sequence[Path]
) -> int:
    """Remove a device, print the rows removed, and return 1 if it was nowhere. See ERRORS."""
    console = Console()
    rows = Rows(device, filters)
    shown = Table()
    shown.add_column("place")
    shown.add_column("removed", justify="right")
    total = 0
    with console.status(f"removing {device} from {out} ..."):
        for one in forget(out, rows, logs, landed):
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
            f"{count:,} messages in raw still have {device} in their payload, on {some}: name "
            "those that are the device's with --topic",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    return 0 if total else 1
