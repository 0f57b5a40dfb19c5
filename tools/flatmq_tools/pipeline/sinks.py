"""Tables that have every batch once, whoever reads them, also after kills.

Spark writes a batch again after a crash: what a sink writes has to be the whole of a batch or
nothing, and nothing the second time.
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
"""What `writeStream.foreachBatch` takes."""


SinkError = visible.SinkError


class Sink(Protocol):
    """A table that takes a batch."""

    @property
    def rows(self) -> int:
        """Rows written since this was made."""

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        """Whether the batch of that query is in it already."""

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        """Add the batch, whole or not at all."""


class Parquet:
    """A folder with a folder `batch=N` of Parquet files for each batch: a path, or a URL that
    Hadoop knows.

    A batch is written under a hidden name, its rows are counted by the driver, its files are
    synced to the disk (on a local file system), and only then it gets its name: it is there whole
    or not, and its files never change. That needs a file system that renames a folder in one step:
    a local one, NFS, HDFS. An object store copies instead, so it is refused: use Delta there.
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
        """Claim the folder for a query, whose batches alone are numbered from 0, and remove
        what earlier runs of it left unfinished."""
        claim(self.folder, query, spark)
        files, drafts = file_system(spark, f"{self.folder}/.batch=*")
        for left in files.globStatus(drafts):
            files.delete(left.getPath(), True)


def into(*tables: tuple[Transform, Sequence[Sink]], checkpoint: str | Path | None = None) -> Write:
    """What `writeStream.foreachBatch` takes: writes what each function makes of a batch into each
    of its sinks, unless it is there already.

    checkpoint  the folder of the query's checkpoint, if it is on this machine: what Spark wrote
                there of a batch is synced to the disk before the batch is written, so that a power
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
            # Killed after the last of them, before Spark noted it. What the query keeps as its
            # state has to come of this batch again, or Spark ends the query, now and each time.
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
    """Have the Parquet table in `folder` be these rows alone. Readers see the old table or the new
    one, or none for the moment between two renames."""
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
