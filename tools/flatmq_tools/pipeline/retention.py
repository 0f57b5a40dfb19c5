"""Remove the days of a run's tables that are older than the run keeps.

A Parquet day gets a hidden name in one step and is deleted then, so a reader finds the whole day
or nothing of it. A kill in between leaves the hidden folder, which the next run removes.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import uuid
from pathlib import Path
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from . import durable
from .layout import DAY, RECORDS, Table

HIDDEN = ".expired-"
FOLLOWERS = {"raw": ("measurements", "health"), "measurements": ("windows",)}
"""The queries of a run that read a table, and whose checkpoints have these names."""


def oldest(keep: float) -> datetime.date:
    """Return the oldest day, in UTC, that is kept for `keep` seconds after its end."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now - datetime.timedelta(seconds=keep)).date()


def read(checkpoint: Path) -> int | None:
    """Return the first batch of its table that a query has not read; None without a checkpoint.

    Only batches whose rows are written and that Spark has recorded as done count as read.
    """
    if not checkpoint.is_dir():
        return None
    done = [int(path.name) for path in checkpoint.glob("commits/[0-9]*") if path.name.isdecimal()]
    with contextlib.suppress(FileNotFoundError):  # Spark removes old ones
        if done:
            text = (checkpoint / "offsets" / str(max(done))).read_text()
            return int(json.loads(text.splitlines()[-1])["batch"])
    return 0


def unread(checkpoints: Path, table: str) -> int | None:
    """Return the first batch of a table that some query of the run has not read.

    None if no query reads the table.
    """
    found = [read(checkpoints / name) for name in FOLLOWERS.get(table, ())]
    return min((batch for batch in found if batch is not None), default=None)


def clear(folder: Path) -> None:
    """Remove what a kill left of the days that were removed from a Parquet table."""
    for left in folder.glob(f"{HIDDEN}*"):
        shutil.rmtree(left)


def expire(folder: Path, day: datetime.date, until: int | None, moving: Lock) -> list[str]:
    """Remove the days before `day` from a Parquet table, and return their names.

    folder  of the table
    until   the first batch that a query has still to read: days with that batch or later ones
            stay; None if no query reads the table
    moving  held by the sink while it adds a batch to a day

    The day of the newest batch stays, too: the sink looks there after a crash.
    """
    clear(folder)
    newest = max((int(path.stem) for path in (folder / RECORDS).glob("[0-9]*.json")), default=-1)
    first = newest if until is None else min(until, newest)
    gone = []
    for path in sorted(folder.glob(f"{DAY}*")):
        if path.name >= f"{DAY}{day}":
            break
        with moving:
            if Table(str(folder)).of_days(first, None, [path.name]):
                continue
            hidden = folder / f"{HIDDEN}{uuid.uuid4().hex}"
            path.rename(hidden)
            durable.path(folder)
        shutil.rmtree(hidden)
        gone.append(path.name)
    return gone


def expire_delta(folder: Path, day: datetime.date) -> bool:
    """Remove the days before `day` from a Delta table, and return whether it had any.

    The files stay for readers until the table is compacted. A table without days is left alone,
    and one that has no commit yet. Raises DeltaError if the table cannot be read.
    """
    if not DeltaTable.is_deltatable(str(folder)):
        return False
    table = DeltaTable(str(folder))
    if table.metadata().partition_columns != ["day"]:
        return False
    days = {partition["day"] for partition in table.partitions()}
    if not any(each and str(each) < str(day) for each in days):
        return False
    with contextlib.suppress(CommitFailedError):  # the run has added a batch; the next time
        table.delete(f"day < '{day}'")
        return True
    return False
