"""Keep the files of a run's tables few, in the background."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

from .compact import CompactError, compact
from .merge import Merger, can_merge
from .tables import Tables

EVERY = 60.0
"""s between two looks for what is to be merged."""
_DELTA_EVERY = 3600.0  # s between two compactions of the tables of Delta
_SHARE = 4  # times what a merge took pass before the next one


class Merging:
    """Merges the tables of a run in a thread, one after the other.

    tables  those of Parquet by day, and those of Delta beside them
    say     takes a line for people
    """

    def __init__(self, tables: Tables, say: Callable[[str], None], every: float = EVERY) -> None:
        self._tables = tables
        self._say = say
        self._every = every
        self._stop = Event()
        self._mergers: dict[str, Merger] = {}
        self._cannot = False
        self._worker = ThreadPoolExecutor(1, "merging")
        self._working: Future[None] | None = None
        self._due = time.monotonic() + every
        self._delta_due = time.monotonic() + _DELTA_EVERY

    def look(self) -> None:
        """Have the tables merged in the background, if that is due.

        Raises the OSError of the merge before.
        """
        done = self._working
        if done is not None and done.done():
            self._working = None
            done.result()
        if self._working is None and time.monotonic() > self._due:
            self._working = self._worker.submit(self._work)

    def _work(self) -> None:
        begun = time.monotonic()
        try:
            self._parquet()
            if self._tables.delta is not None and time.monotonic() > self._delta_due:
                self._delta(self._tables.delta)
        finally:
            now = time.monotonic()
            self._due = now + max(self._every, _SHARE * (now - begun))

    def _parquet(self) -> None:
        for name, sink in list(self._tables.by_day.items()):
            folder = Path(sink.folder)
            if self._cannot or not folder.is_dir():
                continue
            if name not in self._mergers:
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
            self._say(f"the tables of Delta are not merged: {error}")
        self._delta_due = time.monotonic() + _DELTA_EVERY

    def close(self) -> None:
        """Stop a merge that is under way. The next run begins it again."""
        self._stop.set()
        self._worker.shutdown()
