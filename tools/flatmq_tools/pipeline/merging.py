"""Keep the files of a run's tables few, and no older than it says, in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

from deltalake.exceptions import DeltaError

from . import retention
from .compact import CompactError, compact
from .merge import Merger, can_merge
from .tables import Tables

EVERY = 60.0
"""s between two looks for what is to be merged."""
_DELTA_EVERY = 3600.0  # s between two compactions of the tables of Delta
_EXPIRE_EVERY = 600.0  # s between two looks for days that are too old
_DAY = 86_400.0  # s
_SHARE = 4  # times what a merge took pass before the next one


class Merging:
    """Merges the tables of a run in a thread, one after the other.

    tables       those of Parquet by day, and those of Delta beside them
    say          takes a line for people
    keep         seconds after their end for which days are kept; None: for ever
    checkpoints  folder of the checkpoints of the queries that read the tables
    """

    def __init__(
        self, tables: Tables, say: Callable[[str], None], every: float = EVERY,
        keep: float | None = None, checkpoints: Path | None = None,
    ) -> None:  # fmt: skip
        self._keep = keep
        self._checkpoints = checkpoints
        self._expire_due = time.monotonic()
        self._tables = tables
        self._say = say
        self._every = every
        self._stop = Event()
        self._mergers: dict[str, Merger] = {}
        self._cannot = False
        self._broken: set[Path] = set()  # Delta tables that cannot be read
        self._worker = ThreadPoolExecutor(1, "merging")
        self._working: Future[None] | None = None
        self._due = time.monotonic() + every
        self._delta_due = time.monotonic() + _DELTA_EVERY

    def look(self, is_full: bool = False) -> None:
        """Have old days removed and the tables merged in the background, if that is due.

        On a disk that `is_full`, only remove old days. Raises the OSError of the merge before.
        """
        done = self._working
        if done is not None and done.done():
            self._working = None
            done.result()
        if self._working is None and time.monotonic() > self._due:
            self._working = self._worker.submit(self._work, is_full)

    def _work(self, is_full: bool) -> None:
        begun = time.monotonic()
        try:
            if self._keep is not None and begun > self._expire_due:
                self._expire(self._keep)
            if is_full:
                return
            self._parquet()
            if self._tables.delta is not None and time.monotonic() > self._delta_due:
                self._delta(self._tables.delta)
        finally:
            now = time.monotonic()
            self._due = now + max(self._every, _SHARE * (now - begun))

    def _expire(self, keep: float) -> None:
        """Remove the days that are over for longer than `keep` and that every query has read."""
        day = retention.oldest(keep)
        self._expire_due = time.monotonic() + _EXPIRE_EVERY
        gone: dict[str, set[str]] = {}
        for name, sink in list(self._tables.by_day.items()):
            until = None
            if self._checkpoints is not None:
                until = retention.unread(self._checkpoints, name)
            if Path(sink.folder).is_dir():
                for each in retention.expire(Path(sink.folder), day, until, sink.moving):
                    gone.setdefault(each, set()).add(name)
        if self._tables.delta is not None and "://" not in self._tables.delta:
            for path in sorted(Path(self._tables.delta).glob("*/_delta_log")):
                try:
                    retention.expire_delta(path.parent, day)
                except DeltaError as error:
                    self._cannot_expire(path.parent, error)
        if gone:
            names = ", ".join(sorted(set().union(*gone.values())))
            days = "1 day" if len(gone) == 1 else f"{len(gone)} days"
            self._say(f"removed {days} before {day} from {names} (--keep {keep / _DAY:g}d)")

    def _cannot_expire(self, folder: Path, error: DeltaError) -> None:
        """Report once that a Delta table keeps its old days."""
        if folder not in self._broken:
            self._broken.add(folder)
            reason = next(iter(str(error).splitlines()), "")  # a stack trace follows
            self._say(f"old days stay in {folder}: {reason}")

    def _parquet(self) -> None:
        for name, sink in list(self._tables.by_day.items()):
            folder = Path(sink.folder)
            if self._cannot or not folder.is_dir():
                continue
            if name not in self._mergers:
                retention.clear(folder)  # an earlier run may have had --keep
                if not can_merge(folder):
                    self._cannot = True
                    self._say(
                        f"small files of {folder.parent} are not merged: the file system cannot "
                        "exchange two folders in one step"
                    )
                    return
                self._mergers[name] = Merger(folder, sink.moving, stop=self._stop)
            self._mergers[name].merge()

    def _delta(self, folder: str) -> None:
        try:
            for _ in compact(folder):
                if self._stop.is_set():
                    return
        except CompactError as error:
            self._say(f"tables of Delta are not merged: {error}")
        self._delta_due = time.monotonic() + _DELTA_EVERY

    def close(self) -> None:
        """Stop a merge that is under way. The next run begins it again."""
        self._stop.set()
        self._worker.shutdown()
