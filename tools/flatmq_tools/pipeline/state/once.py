"""Write the packs of a streaming query without copies, at any delay and with any clock.

The state in the driver's file includes the batches of the query in their order. A batch is marked
against the state, written, and then included with its number. After a crash in between it is
marked against the same state again, so its rows are the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from .. import checkpoints, delta_batches, delta_files, durable
from ..delta import Delta
from ..delta_files import Added, Files
from ..jobs.limits import Bounds
from ..jobs.parsing import Reads
from ..mapping.births import Births
from ..sinks import query_of
from . import taking
from .arrivals import State
from .batch import Batch
from .store import Place, StateError, Store
from .taking import SCHEMAS, Fix, Taken, Task

_ROWS = 1_000_000  # of raw that are read again at a time
_MADE = ("measurements", "dead_letters")
"""Tables that the first batch makes, also without rows."""


class Once:
    """A function for `writeStream.foreachBatch`, for a query of the row groups of the table raw.

    file        the state; a path on this machine
    raw         the table raw: a path or URL
    checkpoint  the checkpoint of the query: a path on this machine
    tables      by name, some of `taking.SCHEMAS`: what the rows of each batch are added to
    reads       how messages are read
    births      the birth certificates of Sparkplug B that are known
    bounds      how far the time of a reading may be from its arrival
    say         called with a text for people, how often, and an example: see `batch`

    If the state is missing or older than the query, the missing batches are read from raw.
    """

    def __init__(
        self, file: Path, raw: str, checkpoint: Path, tables: Mapping[str, Delta],
        reads: Reads | None = None, births: Births | None = None, bounds: Bounds | None = None,
        say: Callable[[str, int, str], None] = lambda text, count, example: None,
    ) -> None:  # fmt: skip
        self._state = State(Store(file))
        self._raw = raw
        self._checkpoint = checkpoint
        self._tables = tables
        self._files: dict[str, Files] = {}
        self._reads = reads or Reads()
        self._births = births
        self._bounds = bounds or Bounds()
        self._say = say
        self._last: tuple[str, int] | None = None
        """The query and number of the last batch that this has done whole."""

    def __call__(self, batch: DataFrame, batch_id: int) -> int:
        """Write a batch, and return how many messages are in it."""
        spark = batch.sparkSession
        query = query_of(spark)
        place = self._state.store.place()
        if place is None or (place.query, place.batch) not in (
            (query, batch_id), (query, batch_id - 1),
        ):  # fmt: skip
            self._catch_up(spark, query, batch_id)
        elif place.batch == batch_id:
            return 0  # The run was killed before Spark recorded that the batch is done.
        wanted = self._wanted(query, batch_id)
        batched = Batch(self._state, self._taken(batch, wanted))
        # A batch of the same number may not have other rows after a power cut.
        durable.batch(self._checkpoint, batch_id)
        if wanted:
            self._write(batched, wanted, query, batch_id, spark)
        self._state.commit(batched.marked, Place(query, batch_id, None))
        self._last = query, batch_id
        for text, count, example in batched.odd():
            if count:
                self._say(text, count, example)
        return batched.messages

    def close(self) -> None:
        """Close the file."""
        self._state.store.close()

    def _wanted(self, query: str, batch_id: int) -> list[str]:
        """Return the tables that lack a batch: only the first one may be there already."""
        if self._last == (query, batch_id - 1):
            return [*self._tables]
        return [n for n, table in self._tables.items() if not table.has(query, batch_id)]

    def _taken(self, units: DataFrame, tables: Sequence[str]) -> list[Taken]:
        """Have the tasks read the row groups, and write what becomes of them."""
        for name in tables:
            if name not in self._files:
                self._files[name] = self._tables[name].writing(SCHEMAS[name])
        reads = self._reads
        if reads.mapping is not None and reads.mapping.births:
            births = Births() if self._births is None else self._births
            read = partial(taking.certificates, self._raw, reads.mapping)
            found = [row for part in delta_batches.work(units, read) for row in part]
            births.add(sorted(found, key=lambda row: row[2:]))
            reads = dataclasses.replace(reads, sessions=births.sessions())
        files = {name: self._files[name] for name in tables}
        task = Task(self._raw, reads, self._bounds, files)
        return delta_batches.work(units, partial(taking.take, task))

    def _write(
        self, batched: Batch, tables: Sequence[str], query: str, batch_id: int,
        spark: SparkSession,
    ) -> None:  # fmt: skip
        """Add the rows of a batch to these tables, without those that came before."""
        wrong = [fix for fix in batched.fixes() if fix.table in tables]
        again = self._fixed(spark, wrong)
        for name in tables:
            files = batched.files(name, again)
            if files or (not batch_id and name in _MADE):
                self._tables[name].commit(files, SCHEMAS[name], query, batch_id)
        for fix in wrong:
            with contextlib.suppress(OSError):
                delta_files.store(self._tables[fix.table].folder).delete_file(fix.path)

    def _fixed(self, spark: SparkSession, wrong: list[Fix]) -> dict[str, list[Added]]:
        """Have tasks write files again; return the new ones by the path of each old one."""
        if not wrong:
            return {}
        files = self._files

        def again(rows: list[tuple[bytes]]) -> list[tuple[str, list[Added]]]:
            each = [pickle.loads(data) for (data,) in rows]
            return [(fix.path, taking.fixed(files[fix.table], fix)) for fix in each]

        tasks = min(len(wrong), spark.sparkContext.defaultParallelism)
        rows = spark.createDataFrame([(pickle.dumps(fix),) for fix in wrong], "fix binary")
        parts = delta_batches.work(rows.repartition(tasks), again)
        return dict(itertools.chain.from_iterable(parts))

    # From raw, if the state is older than the query

    def _catch_up(self, spark: SparkSession, query: str, batch_id: int) -> None:
        """Include the batches that the query read before this one, without writing them."""
        self._state.clear()
        if not batch_id:
            return
        until = checkpoints.offset(self._checkpoint, batch_id - 1)
        if until is None:
            raise StateError(
                f"{self._state.store.file} lacks the batches before {batch_id}, and they cannot "
                f"be read again from raw: restore the file, or remove the tables made from raw, "
                f"with their checkpoint {self._checkpoint}, and start again"
            )
        for part in delta_batches.before(spark, self._raw, until, _ROWS):
            marked = Batch(self._state, self._taken(part, ())).marked
            self._state.commit(marked, Place(query, None, None))
