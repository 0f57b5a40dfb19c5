"""Write the packs of a streaming query without copies, however late they come and whatever the
clock says.

The state in the driver's file includes the batches of the query in their order. A batch is marked
against the state, written, and then included with its number. After a crash in between it is
marked against the same state again, so its rows are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StructType

from .. import batches
from ..jobs import columns
from .arrivals import Arrivals, Marked, State, Status
from .store import Place, StateError, Store
from .unnumbered import Unnumbered

_QUERY = "sql.streaming.queryId"  # the local property in which Spark has it
_FEW = 1000  # copies that go into the plan of a query; more go as a table
_STATUS = 32  # characters of a status that are kept
_ROW = "row"
_ROWS = 1_000_000  # of raw that are read again at a time
_MESSAGE = ", ".join(f"{name} {kind}" for name, kind in columns.MESSAGE.items())

Parse = Callable[[DataFrame], DataFrame]
Write = Callable[[DataFrame, int], None]


class Once:
    """What `writeStream.foreachBatch` takes, for a query that follows the table raw.

    file        the state; a path on this machine
    raw         the table raw: a path or URL
    checkpoint  that of the query: a path or URL
    parse       makes packs of messages, as `measurements.packs` does
    write       takes the packs of a batch without copies, and its number; it has to write a batch
                once, as `sinks.into` does
    status      topic filters of statuses; the second level names the device
    unsure      called with the number of packs of a batch that were written though they may be
                copies: their boot has more gaps than the state keeps

    A state that is missing, or behind the query, is brought up to it from the table raw.
    """

    def __init__(
        self, file: Path, raw: str, checkpoint: str, parse: Parse, write: Write,
        status: Sequence[str] = columns.STATUS,
        unsure: Callable[[int], None] = lambda count: None,
    ) -> None:  # fmt: skip
        self._state = State(Store(file))
        self._raw = raw
        self._checkpoint = checkpoint
        self._parse = parse
        self._write = write
        self._status = status
        self._unsure = unsure

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        query = spark.sparkContext.getLocalProperty(_QUERY)
        if not query:
            raise StateError("copies are dropped of a streaming query: use foreachBatch")
        place = self._state.store.place()
        if place is None or (place.query, place.batch) not in (
            (query, batch_id), (query, batch_id - 1),
        ):  # fmt: skip
            self._catch_up(spark, query, batch_id)
        elif place.batch == batch_id:
            return  # Killed before Spark noted that the batch is done.
        marked = self._take(batch, lambda packs: self._write(packs, batch_id))
        self._state.commit(marked, Place(query, batch_id, self._end(batch_id), None))
        if marked.unsure:
            self._unsure(marked.unsure)

    def close(self) -> None:
        """Close the file."""
        self._state.store.close()

    def _take(self, batch: DataFrame, write: Callable[[DataFrame], None] | None) -> Marked:
        """Mark a batch, and write what is no copy."""
        packs = self._parse(batch).withColumn(_ROW, F.monotonically_increasing_id())
        packs = packs.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            keys = _keys(packs).toArrow()
            numbered = keys["boot"].is_valid()
            arrivals = Arrivals.of(keys.filter(numbered))
            others = Unnumbered.of(keys.filter(pc.invert(numbered)))
            statuses, now = self._heard(batch)
            marked = self._state.mark(arrivals, statuses, now, others)
            if write is not None:
                write(_without(packs, marked.copies.tolist()).drop(_ROW))
        finally:
            packs.unpersist()
        return marked

    def _heard(self, batch: DataFrame) -> tuple[list[Status], int | None]:
        """The newest status of each device, and when the newest of all messages came."""
        is_status = columns.matched(F.col("topic"), self._status)
        device = F.when(is_status, F.get(F.split("topic", "/"), F.lit(1)))
        text = F.substring(F.make_valid_utf8(F.col("payload").cast("string")), 1, _STATUS)
        at = _micros("timestamp")
        rows = (
            batch.select(
                device.alias("device"), at.alias("at"), "offset",
                F.when(is_status, text).alias("status"),
            )
            .groupBy("device")
            .agg(
                F.max("at").alias("now"),
                F.max_by(F.struct("status", "at", "offset"), F.struct("at", "offset")).alias("s"),
            )
            .toArrow()
            .to_pylist()
        )  # fmt: skip
        statuses = [
            Status(row["device"], row["s"]["status"] or None, row["s"]["at"], row["s"]["offset"])
            for row in rows
            if row["device"] is not None
        ]
        return statuses, max((row["now"] for row in rows), default=None)

    # From raw, where the state is behind

    def _catch_up(self, spark: SparkSession, query: str, batch_id: int) -> None:
        """Include what the query read before this batch, without writing it."""
        place = self._state.store.place()
        until = self._end(batch_id - 1) if batch_id else None
        if batch_id and until is None:
            raise StateError(
                f"{self._state.store.file} lacks what was before batch {batch_id}, and it cannot "
                f"be read again from raw: put the file back, or remove what was made of raw, with "
                f"its checkpoint {self._checkpoint}, and start again"
            )
        begin = None if place is None else place.next
        known = place is not None and place.query == query
        behind = place is not None and (place.batch is None or place.batch < batch_id)
        if until is None:  # nothing was before; raw may be a table of Delta, too
            self._state.store.clear()
            self._state.forget_names()
            return
        reader = batches.Reader(self._raw, StructType(), _ROWS)
        if begin is None or not (known and behind and begin <= until):
            self._state.store.clear()
            self._state.forget_names()
            begin = int(reader.initialOffset()["batch"])
        while begin < until:
            start = {"query": None, "batch": begin}
            end = min(int(reader.latestOffset(start, ReadMaxRows(_ROWS))["batch"]), until)
            if end <= begin:
                break  # What is left was removed.
            folders = [f"{self._raw}/{batches.PREFIX}{n}" for n in range(begin, end)]
            marked = self._take(spark.read.schema(_MESSAGE).parquet(*folders), None)
            self._state.commit(marked, Place(query, None, end, None))
            begin = end

    def _end(self, batch_id: int) -> int | None:
        """The batch of raw that comes after one of the query; None if Spark has not noted it, or
        if raw has no such numbers."""
        try:
            with fsspec.open(f"{self._checkpoint}/offsets/{batch_id}", "rt") as file:
                offset = json.loads(file.read().splitlines()[-1])
        except FileNotFoundError:
            return None
        batch = offset.get("batch")
        return None if batch is None else int(batch)


def _keys(packs: DataFrame) -> DataFrame:
    """The columns of Arrivals and of Unnumbered."""
    delay = _micros("timestamp") - _micros("time")
    return packs.where("reason is null").select(
        _ROW, "device", "boot", "seq", _micros("timestamp").alias("at"), "offset",
        F.when(F.col("told"), delay).alias("delay"), "retain", "dup",
    )  # fmt: skip


def _without(packs: DataFrame, copies: list[int]) -> DataFrame:
    if not copies:
        return packs
    if len(copies) <= _FEW:
        return packs.where(~F.col(_ROW).isin(copies))
    table = packs.sparkSession.createDataFrame(pa.table({_ROW: pa.array(copies, pa.int64())}))
    return packs.join(F.broadcast(table), _ROW, "left_anti")


def _micros(column: str) -> Column:
    return F.unix_micros(column)
