"""Tables that have each batch exactly once for every reader, even after kills.

Spark writes a batch again after a crash. So a sink must write the whole batch or nothing, and
nothing the second time.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from . import durable, visible
from .delta import Delta
from .delta import replace as replace_delta
from .hadoop import file_system, local
from .layout import PREFIX
from .owner import claim

__all__ = [
    "Delta", "Parquet", "Sink", "SinkError", "into", "replace", "replace_delta",
]  # fmt: skip

_QUERY_ID = "sql.streaming.queryId"  # the local property in which Spark has it

Transform = Callable[[DataFrame], DataFrame]
Write = Callable[[DataFrame, int], None]
"""A function for `writeStream.foreachBatch`."""


SinkError = visible.SinkError


class Sink(Protocol):
    """A table that batches are written to."""

    @property
    def rows(self) -> int:
        """Rows written since this was made."""

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        """Return whether the table has that batch of the query."""

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Add the batch: all of it or nothing."""


class Parquet:
    """A Parquet table with a folder `batch=N` for each batch.

    folder  a path, or a URL that Hadoop knows

    A batch is written under a hidden name, the driver counts its rows, and its files are synced to
    the disk (on a local file system). Only then does it get its name. So the batch is there in
    full or not at all, and its files never change. This needs a file system that renames a folder
    in one step: a local one, NFS, HDFS. An object store copies instead, so it is refused: use
    Delta there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self._mine = ""
        self.rows = 0
        """Rows written since this was made."""

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        if self._mine != query:
            self._own(query, spark)
            self._mine = query
        files, path = file_system(spark, self._batch(batch_id))
        return bool(files.exists(path))

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        spark = rows.sparkSession
        hidden = f"{self.folder}/.batch={batch_id}-{uuid.uuid4().hex}"
        count = sum(visible.write(rows, hidden, self.folder).values())
        files, old = file_system(spark, hidden)
        _, new = file_system(spark, self._batch(batch_id))
        on_disk = local(files, old)
        if on_disk is not None:
            durable.tree(on_disk)
        if files.exists(new) or not files.rename(old, new):
            raise SinkError(f"{self._batch(batch_id)} is there: does another query write here?")
        if on_disk is not None:
            durable.entry(on_disk)
        self.rows += count

    def _batch(self, batch_id: int) -> str:
        return f"{self.folder}/{PREFIX}{batch_id}"

    def _own(self, query: str, spark: SparkSession) -> None:
        """Claim the folder for a query, and remove what its earlier runs left unfinished.

        Two queries would have batches with the same numbers.
        """
        claim(self.folder, query, spark)
        files, drafts = file_system(spark, f"{self.folder}/.batch=*")
        for left in files.globStatus(drafts):
            files.delete(left.getPath(), True)


def into(*tables: tuple[Transform, Sequence[Sink]], checkpoint: str | Path | None = None) -> Write:
    """Return a function for `writeStream.foreachBatch` that writes each batch into tables.

    tables      functions of a batch, and the sinks that their rows go to, unless the sink has the
                batch already
    checkpoint  the folder of the query's checkpoint, if it is on this machine. What Spark wrote
                there about a batch is synced to the disk before the batch is written, so a power
                cut cannot leave the batch without it
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        if ".connect." in type(batch).__module__:
            raise SinkError(
                "Spark Connect cannot write these tables, because a batch is committed by the "
                "driver's JVM, which a client of Connect does not have: start the query in a "
                "session of the cluster itself, with spark-submit for example"
            )
        spark = batch.sparkSession
        query = spark.sparkContext.getLocalProperty(_QUERY_ID)
        if not query:
            raise SinkError("a sink writes batches of a streaming query: use foreachBatch")
        wanted = [
            (function, [sink for sink in sinks if not sink.has(query, batch_id, spark)])
            for function, sinks in tables
        ]
        count = sum(len(sinks) for _, sinks in wanted)
        if not count:
            # The run was killed after the last of them, before Spark recorded it. The query's
            # state must be computed from this batch again, or Spark ends the query every time.
            batch.write.format("noop").mode("overwrite").save()
        elif checkpoint is not None:
            durable.batch(Path(checkpoint), batch_id)
        several = count > 1
        if several:
            batch.persist()
        try:
            for function, sinks in wanted:
                for sink in sinks:
                    sink.write(function(batch), query, batch_id)
        finally:
            if several:
                batch.unpersist()

    return write


def replace(rows: DataFrame, folder: str | Path) -> None:
    """Replace the rows of the Parquet table in `folder` by these.

    Readers see the old table or the new one, or none for the moment between two renames.
    """
    spark, name = rows.sparkSession, str(folder).rstrip("/")
    parent, _, last = name.rpartition("/")
    files, table = file_system(spark, name)
    for left in files.globStatus(file_system(spark, f"{parent}/.{last}-*")[1]):
        files.delete(left.getPath(), True)
    mark = uuid.uuid4().hex
    _, new = file_system(spark, f"{parent}/.{last}-new-{mark}")
    _, old = file_system(spark, f"{parent}/.{last}-old-{mark}")
    visible.write(rows, str(new), name)
    if files.exists(table) and not files.rename(table, old):
        raise SinkError(f"{name} cannot be renamed")
    if not files.rename(new, table):
        raise SinkError(f"{name} cannot be made: does another process write it?")
    files.delete(old, True)
