"""The knowledge of a run about its fleet: state, writer, and tables in the background."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ..jobs.measurements import Bounds
from .once import Once, Parse, Write
from .snapshots import Snapshots

_SHARE = 10  # times what a refresh took pass before the next one


class Known:
    """The state of a run.

    file    of the state
    folder  where the tables health, devices and gaps are; on this machine
    delta   the folder or URL of Delta tables of the same names; None for none
    every   s between two refreshes of these tables, and more if one takes more than a tenth
    unsure  called with the number of packs of a batch that may be copies, and are written
    bounds  how far the time of a reading may be from its arrival
    """

    def __init__(
        self, file: Path, folder: Path, delta: str | None, every: float,
        unsure: Callable[[int], None], bounds: Bounds | None = None,
    ) -> None:  # fmt: skip
        self._bounds = bounds
        self._file = file
        self._snapshots = Snapshots(file, folder, delta)
        self._every = every
        self._unsure = unsure
        self._once: Once | None = None
        self._worker = ThreadPoolExecutor(1, "health")
        self._refreshing: Future[float] | None = None
        self._due = time.monotonic() + every

    def once(self, raw: str, checkpoint: Path, parse: Parse, write: Write) -> Once:
        """Return what `foreachBatch` takes; the one from before is of no use then."""
        if self._once is not None:
            self._once.close()
        # An earlier version had Spark keep what it knew of copies in its checkpoint.
        shutil.rmtree(checkpoint / "state", ignore_errors=True)
        self._once = Once(
            self._file, raw, str(checkpoint.absolute()), parse, write, unsure=self._unsure,
            bounds=self._bounds,
        )  # fmt: skip
        return self._once

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
