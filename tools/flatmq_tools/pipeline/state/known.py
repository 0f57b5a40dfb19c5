"""The knowledge of a run about its fleet: state, writer, and tables in the background."""

from __future__ import annotations

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
    out     the folder or URL of the tables health, devices and gaps
    every   s between two refreshes of these tables, and more if one takes more than a tenth
    unsure  called with the number of packs of a batch that may be copies, and are written
    bounds  how far the time of a reading may be from its arrival
    """

    def __init__(
        self, file: Path, out: str, every: float,
        unsure: Callable[[int], None], bounds: Bounds | None = None,
    ) -> None:  # fmt: skip
        self._bounds = bounds
        self._file = file
        self._snapshots = Snapshots(file, out)
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
        self._once = Once(
            self._file, raw, str(checkpoint.absolute()), parse, write, unsure=self._unsure,
            bounds=self._bounds,
        )  # fmt: skip
        return self._once

    def came(self, batch: int) -> int:
        """Return how many messages were in one of the newest batches."""
        return 0 if self._once is None else self._once.came.get(batch, 0)

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
