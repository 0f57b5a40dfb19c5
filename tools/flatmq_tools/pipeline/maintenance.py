"""Keep the files of a run's tables few, and no older than it says, in the background.

`deltalake` does the work: it merges small files, removes old days, and then files and entries of
the log that nobody needs any more, once the queries of the run have read past them.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from . import checkpoints, delta, delta_files, room, tables
from .delta_batches import Position
from .in_use import MAINTENANCE, InUseError, lock

FIRST = 60.0
"""s from the start of a run to the first time,"""
EVERY = 3600.0
"""and from one to the next."""
_TARGET = 256 << 20  # bytes of a merged file, about
_TRIES = 5  # if another process writes to the table meanwhile
_BEHIND = 200  # versions that a query may be behind before files are removed
_ROW_GROUP = 16 << 20  # bytes
_ROWS = 100_000
_DAY = 86_400.0  # s
_PAUSE = 14 * _DAY  # s: after a longer one, the clock may be wrong


class Maintenance:
    """Maintains the tables of a run in a thread, one after the other.

    out   the folder or URL of the tables
    notes folder of the checkpoints of the queries that read the tables
    say   takes a line for people
    keep  seconds after their end for which days are kept; None: for ever
    """

    def __init__(
        self, out: str, notes: Path, say: Callable[[str], None], keep: float | None = None
    ) -> None:
        self._out = out
        self._notes = notes
        self._say = say
        self._keep = keep
        self._broken: dict[str, str] = {}  # why, by table
        self._paused: datetime.date | None = None  # the last day before that which was reported
        self._ending = False
        self._worker = ThreadPoolExecutor(1, "maintenance")
        self._working: Future[None] | None = None
        self._due = time.monotonic() + FIRST

    def look(self, is_full: bool = False) -> bool:
        """Have the tables maintained in the background if that is due.

        On a disk that `is_full`, no file is written. Returns whether that has ended, and raises
        what it has raised.
        """
        done = self._working
        ended = done is not None and done.done()
        if done is not None and ended:
            self._working = None
            done.result()
        if self._working is None and time.monotonic() > self._due:
            self._due = time.monotonic() + EVERY
            self._working = self._worker.submit(self.work, is_full)
        return ended

    def work(self, is_full: bool = False) -> None:
        """Maintain each table once, unless another process does.

        Two that merge the same files with deltalake 1.6 both succeed: then each row is there
        twice.
        """
        with contextlib.suppress(InUseError), lock(self._notes.parent, MAINTENANCE):
            self._work(is_full)

    def _work(self, is_full: bool) -> None:
        gone: dict[str, int] = {}
        day = self._oldest()
        for name in (*tables.BY_DAY, *tables.SNAPSHOTS):
            if self._ending:
                return
            folder = tables.of(self._out, name)
            try:
                if DeltaTable.is_deltatable(folder):
                    gone[name] = self._maintain(name, folder, is_full, day)
            except BaseException as error:  # of what is damaged, or a panic: the others go on
                if room.is_full(error):
                    raise
                reason = tables.reason(error)
                if self._broken.get(name) != reason:
                    self._broken[name] = reason
                    self._say(f"{folder} cannot be maintained: {reason}")
        days = max(gone.values(), default=0)
        if days and self._keep is not None:
            names = ", ".join(sorted(name for name, count in gone.items() if count))
            some = "1 day" if days == 1 else f"{days} days"
            self._say(f"removed {some} before {day} from {names} (--keep {self._keep / _DAY:g}d)")

    def _oldest(self) -> datetime.date | None:
        """Return the oldest day that is kept; None if all are, or if raw cannot be read."""
        if self._keep is None:
            return None
        try:
            came = _days(DeltaTable(tables.of(self._out, "raw")))
        except BaseException:  # a panic, too: it is reported when it is the turn of raw
            return None
        day, paused = oldest(self._keep, map(datetime.date.fromisoformat, came))
        if paused not in (None, self._paused):
            self._say(
                f"after {paused} nothing came for longer than --keep {self._keep / _DAY:g}d: is "
                f"this machine's clock right? The days up to it, from {day} on, stay for now"
            )
        self._paused = paused
        return day

    def _maintain(self, name: str, folder: str, is_full: bool, day: datetime.date | None) -> int:
        """Maintain a table, and return how many days before `day` were removed."""
        days = 0
        # One that has read nothing begins with what the table has then.
        is_read = None not in checkpoints.readers(self._notes, name)
        if day is not None and name in tables.BY_DAY and is_read:
            days = expire(folder, day)
        if not is_full and name in tables.BY_DAY:
            merge(folder)
        _sync(folder)
        if not self._ending:
            clean(folder, checkpoints.readers(self._notes, name))
        return days

    def close(self) -> None:
        """Wait for the table that is under way."""
        self._ending = True
        self._worker.shutdown()


def oldest(
    keep: float, came: Iterable[datetime.date]
) -> tuple[datetime.date, datetime.date | None]:
    """Return the oldest day, in UTC, that is kept for `keep` seconds after its end.

    came  the days on which messages came

    If none came for longer than `keep`, the clock may have jumped ahead. Then the days are counted
    from the last one before that pause, which is returned too, until what came since is older
    than `keep`.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    period = datetime.timedelta(seconds=keep)
    day, today = (now - period).date(), now.date()
    known = [each for each in sorted(came) if each <= today]
    for before, after in itertools.pairwise([*known, today]):
        if after >= day and (after - before).total_seconds() > max(keep, _PAUSE):
            return before - period, before
    return day, None


def _days(table: DeltaTable) -> set[str]:
    return {str(each["day"]) for each in table.partitions() if each["day"]}


def expire(folder: str, day: datetime.date) -> int:
    """Remove the days before `day` from a table, and return how many there were.

    Their files stay for the queries that have still to read them.
    """
    table = DeltaTable(folder)
    old = [each for each in _days(table) if each < str(day)]
    if old:
        with contextlib.suppress(CommitFailedError):  # the run has added a batch; the next time
            table.delete(f"day < '{day}'")
            return len(old)
    return 0


def writing(table: DeltaTable) -> WriterProperties:
    """Return how files of a table are written that take the place of others."""
    actions = pa.table(table.get_add_actions()).select(["num_records", "size_bytes"])
    rows = sum(count or 0 for count in actions["num_records"].to_pylist())
    size = sum(actions["size_bytes"].to_pylist())
    # What is compressed takes some times as many bytes.
    group = max(1, min(_ROWS, _ROW_GROUP * rows // max(1, 4 * size)))
    return WriterProperties(compression="ZSTD", max_row_group_size=group)


def merge(folder: str) -> None:
    """Rewrite the small files of a table as a few large ones, in one step."""
    for left in reversed(range(_TRIES)):
        table = DeltaTable(folder)
        how = writing(table)
        try:
            table.optimize.compact(target_size=_TARGET, writer_properties=how)
            return
        except CommitFailedError:
            if not left:
                raise


def clean(folder: str, readers: list[dict[str, Any] | None]) -> None:
    """Remove files and entries of the log that are replaced and that nobody has still to read.

    readers  the offsets of the queries that read the table; None for one that has read nothing
    """
    table = DeltaTable(folder)
    now = table.version()
    # With the version before, the rows that were read can be read again.
    positions = [None if each is None else Position.of(each).version - 1 for each in readers]
    if None in positions:
        return
    first = max(0, min((each for each in positions if each is not None), default=now))
    if now - first > _BEHIND:
        return
    table.vacuum(
        dry_run=False, enforce_retention_duration=False, full=True,
        keep_versions=list(range(first, now + 1)),
    )  # fmt: skip
    table = DeltaTable(folder)
    table.create_checkpoint()
    _sync(folder)
    if first >= now or _age(folder, first) < delta.LOG_GRACE * 3600:
        table.cleanup_metadata()


def _sync(folder: str) -> None:
    """Sync what deltalake wrote, which does not: only then may what it replaces be removed."""
    if "://" not in folder:
        os.sync()


def _age(folder: str, version: int) -> float:
    """Return how many seconds ago a version was committed."""
    found = delta_files.store(folder).get_file_info(f"_delta_log/{version:020d}.json")
    return 0.0 if found.mtime is None else time.time() - found.mtime.timestamp()
