"""Tables that have each batch exactly once for every reader, even after kills.

Spark writes a batch again after a crash. So a sink must write the whole batch or nothing, and
nothing the second time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from . import durable
from .delta import Delta, SinkError

__all__ = ["Delta", "SinkError", "into"]

_QUERY_ID = "sql.streaming.queryId"  # the local property in which Spark has it

Transform = Callable[[DataFrame], DataFrame]
Write = Callable[[DataFrame, int], None]
"""A function for `writeStream.foreachBatch`."""


def query_of(spark: SparkSession) -> str:
    """Return the identity of the query whose batch is being written. SinkError if none is."""
    query = spark.sparkContext.getLocalProperty(_QUERY_ID)
    if not query:
        raise SinkError("a sink writes batches of a streaming query: use foreachBatch")
    return query


def into(*tables: tuple[Transform, Delta], checkpoint: str | Path | None = None) -> Write:
    """Return a function for `writeStream.foreachBatch` that writes each batch into tables.

    tables      functions of a batch, and the table that their rows go to, unless it has the batch
                already
    checkpoint  the folder of the query's checkpoint, if it is on this machine. What Spark wrote
                there about a batch is synced to the disk before the batch is written, so a power
                cut cannot leave the batch without it
    """

    def write(batch: DataFrame, batch_id: int) -> None:
        if ".connect." in type(batch).__module__:
            raise SinkError(
                "Spark Connect cannot write these tables, because a batch is committed by the "
                "driver, which a client of Connect is not: start the query in a session of the "
                "cluster itself, with spark-submit for example"
            )
        query = query_of(batch.sparkSession)
        wanted = [each for each in tables if not each[1].has(query, batch_id)]
        if not wanted:
            # The run was killed after the last of them, before Spark recorded it. The query's
            # state must be computed from this batch again, or Spark ends the query every time.
            batch.write.format("noop").mode("overwrite").save()
        elif checkpoint is not None:
            durable.batch(Path(checkpoint), batch_id)
        several = len(wanted) > 1
        if several:
            batch.persist()
        try:
            for function, sink in wanted:
                sink.write(function(batch), query, batch_id)
        finally:
            if several:
                batch.unpersist()

    return write
