"""The knowledge of a run about its fleet: state, writer, and tables in the background."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from .once import Once
from .snapshots import Snapshots

_SHARE = 10  # times what a refresh took pass before the next one


class Known:
    """The state of a run.

    file   of the state
    out    the folder or URL of the tables health, devices and gaps
    every  s between two refreshes of these tables, and more if one takes more than a tenth
    """

    def __init__(self, file: Path, out: str, every: float) -> None:
        self.file = file
        self._snapshots = Snapshots(file, out)
        self._every = every
        self._once: Once | None = None
        self._worker = ThreadPoolExecutor(1, "health")
        self._refreshing: Future[float] | None = None
        self._due = time.monotonic() + every

    def writes(self, once: Once) -> Once:
        """Note who writes the state now; the one from before is of no use then."""
        if self._once is not None:
            self._once.close()
        self._once = once
        return once

    def look(self) -> None:
        """Have the tables refreshed in the background, if they are due.

        StateError and OSError of the refresh before.
        """
        done = self._refreshing
        if done is not None and done.done():
            self._refreshing = None
            self._due = time.monotonic() + self._every  # also if it has failed
            self._due = time.monotonic() + max(self._every, _SHARE * done.result())
        if self._refreshing is None and time.monotonic() > self._due:
            self._refreshing = self._worker.submit(self._snapshots.refresh)

    def refresh(self) -> None:
        """Write the tables as they are now."""
        self._snapshots.refresh()

    def close(self) -> None:
        """Wait for a refresh that is under way, and close the file."""
        self._worker.shutdown()
        if self._once is not None:
            self._once.close()
