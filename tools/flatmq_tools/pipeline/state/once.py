"""Write the packs of a streaming query without copies, at any delay and with any clock.

The state in the driver's file includes the batches of the query in their order. A batch is marked
against the state, written, and then included with its number. After a crash in between it is
marked against the same state again, so its rows are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from .. import checkpoints, delta_batches
from ..jobs import columns, measurements
from . import history
from .arrivals import Arrivals, Marked, State, Status
from .history import Came, Dead
from .store import Place, StateError, Store
from .unnumbered import Unnumbered

_QUERY = "sql.streaming.queryId"  # the local property in which Spark has it
_FEW = 1000  # copies that go into the plan of a query; more go as a table
_STATUS = 32  # characters of a status that are kept
_TOPIC = 200  # characters of the topic name of a dead letter that are kept
_ROW = "row"
_NEWEST = 100  # batches
_ROWS = 1_000_000  # of raw that are read again at a time
_MESSAGE = ", ".join(f"{name} {kind}" for name, kind in columns.MESSAGE.items())

Parse = Callable[[DataFrame], DataFrame]
Write = Callable[[DataFrame, int, bool], None]
"""Takes the packs of a batch without copies, the number of the batch, and whether it is plain:
nothing in it is a dead letter, and all readings are in time."""


class Once:
    """A function for `writeStream.foreachBatch`, for a query that follows the table raw.

    file        the state; a path on this machine
    raw         the table raw: a path or URL
    checkpoint  the checkpoint of the query: a path on this machine
    parse       turns messages into packs, as `measurements.packs` does
    write       writes each batch once, as `sinks.into` does; not called again for one that is
                included
    status      topic filters of statuses; the second level names the device
    unsure      is called with the number of packs in a batch that may be copies and were written,
                because their boot has more gaps than the state keeps
    bounds      how far the time of a reading may be from its arrival

    If the state is missing or older than the query, the missing batches are read from raw.
    """

    def __init__(
        self, file: Path, raw: str, checkpoint: str, parse: Parse, write: Write,
        status: Sequence[str] = columns.STATUS,
        unsure: Callable[[int], None] = lambda count: None,
        bounds: measurements.Bounds | None = None,
    ) -> None:  # fmt: skip
        self._bounds = bounds or measurements.Bounds()
        self._state = State(Store(file))
        self._raw = raw
        self._checkpoint = checkpoint
        self._parse = parse
        self._write = write
        self._status = status
        self._unsure = unsure
        self._messages = 0  # in the last batch
        self.came: dict[int, int] = {}
        """Messages in each of the newest batches: Spark counts those that it reads twice twice."""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        query = spark.sparkContext.getLocalProperty(_QUERY)
        if not query:
            raise StateError("copies are removed from a streaming query: use foreachBatch")
        place = self._state.store.place()
        if place is None or (place.query, place.batch) not in (
            (query, batch_id), (query, batch_id - 1),
        ):  # fmt: skip
            self._catch_up(spark, query, batch_id)
        elif place.batch == batch_id:
            return  # The run was killed before Spark recorded that the batch is done.
        marked = self._take(batch, lambda packs, plain: self._write(packs, batch_id, plain))
        self.came.pop(batch_id - _NEWEST, None)
        self.came[batch_id] = self._messages
        self._state.commit(marked, Place(query, batch_id, None, None))
        if marked.unsure:
            self._unsure(marked.unsure)

    def close(self) -> None:
        """Close the file."""
        self._state.store.close()

    def _take(self, batch: DataFrame, write: Callable[[DataFrame, bool], None] | None) -> Marked:
        """Mark a batch, and write the packs that are not copies."""
        packs = self._parse(batch).withColumn(_ROW, F.monotonically_increasing_id())
        packs = packs.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            keys = _keys(packs, self._bounds).toArrow()
            alive = keys["reason"].is_null()
            counting = pc.and_(keys["boot"].is_null(), keys["seq"].is_valid())
            counted, counters = self._state.numbered(keys.filter(counting))
            numbered = pc.and_(alive, keys["seq"].is_valid())
            known = keys.filter(pc.and_(numbered, keys["boot"].is_valid()))
            arrivals = Arrivals.of(pa.concat_tables([known, counted]))
            others = Unnumbered.of(keys.filter(pc.and_not(alive, numbered)))
            statuses, now, came = self._heard(batch)
            self._messages = int(came.messages.sum())
            came.dead = _dead(keys.filter(pc.invert(alive)))
            marked = self._state.mark(arrivals, statuses, now, others, came)
            marked.counters = counters
            if write is not None:
                fresh = _without(_with_boots(packs, counted), marked.copies.tolist()).drop(_ROW)
                write(fresh, pc.all(keys["plain"], min_count=0).as_py())
        finally:
            packs.unpersist()
        return marked

    def _heard(self, batch: DataFrame) -> tuple[list[Status], int | None, Came]:
        """Return what is known of a batch without parsing it.

        This is the newest status of each device, the arrival of the newest message, and the number
        of messages in each second.
        """
        is_status = columns.matched(F.col("topic"), self._status)
        device = F.when(is_status, F.get(F.split("topic", "/"), F.lit(1)))
        text = F.substring(F.make_valid_utf8(F.col("payload").cast("string")), 1, _STATUS)
        at = _micros("timestamp")
        rows = (
            batch.select(
                device.alias("device"), at.alias("at"), "offset",
                F.when(is_status, text).alias("status"),
            )
            .groupBy("device", F.floor(F.col("at") / history.SECOND).alias("second"))
            .agg(
                F.count("*").alias("messages"),
                F.min("at").alias("first"),
                F.max("at").alias("last"),
                F.max_by(F.struct("status", "at", "offset"), F.struct("at", "offset")).alias("s"),
            )
            .toArrow()
        )  # fmt: skip
        newest: dict[str, Status] = {}
        for row in rows.filter(rows["device"].is_valid()).to_pylist():
            said, known = row["s"], newest.get(row["device"])
            if known is None or (said["at"], said["offset"]) > (known.at, known.offset):
                newest[row["device"]] = Status(
                    row["device"], said["status"] or None, said["at"], said["offset"]
                )
        first, last, messages = (
            rows[name].to_numpy().astype(np.int64) for name in ("first", "last", "messages")
        )
        now = int(last.max()) if len(last) else None
        return list(newest.values()), now, Came(first, messages, first, last)

    # From raw, if the state is older than the query

    def _catch_up(self, spark: SparkSession, query: str, batch_id: int) -> None:
        """Include the batches that the query read before this one, without writing them."""
        self._state.store.clear()
        self._state.forget_names()
        if not batch_id:
            return
        until = checkpoints.offset(self._checkpoint, batch_id - 1)
        if until is None:
            raise StateError(
                f"{self._state.store.file} lacks the batches before {batch_id}, and they cannot "
                f"be read again from raw: restore the file, or remove the tables made from raw, "
                f"with their checkpoint {self._checkpoint}, and start again"
            )
        for part in delta_batches.before(spark, self._raw, _MESSAGE, until, _ROWS):
            self._state.commit(self._take(part, None), Place(query, None, None, None))


def _keys(packs: DataFrame, bounds: measurements.Bounds) -> DataFrame:
    """Return the columns of Arrivals, of Unnumbered and of Dead."""
    delay = _micros("timestamp") - _micros("time")
    is_dead = F.col("reason").isNotNull()
    # Records have the time of arrival where the device says none.
    said = F.xxhash64(
        F.when(F.col("told"), F.col("time")),
        F.transform("records", lambda record: record.dropFields("time")),
    )
    return packs.select(
        _ROW, "device", "boot", "seq", _micros("timestamp").alias("at"), "offset",
        F.when(F.col("told"), delay).alias("delay"), "retain", "dup", "reason",
        F.when(F.col("boot").isNull() & F.col("seq").isNotNull(), said).alias("said"),
        F.when(is_dead, measurements.kind(F.col("reason"))).alias("kind"),
        F.when(is_dead, F.substring("topic", 1, _TOPIC)).alias("topic"),
        (~is_dead & measurements.all_in_time(bounds)).alias("plain"),
    )  # fmt: skip


def _dead(rows: pa.Table) -> list[Dead]:
    names = ("kind", "reason", "topic", "at", "offset")
    return [Dead(*row) for row in zip(*(rows[n].to_pylist() for n in names), strict=True)]


def _with_boots(packs: DataFrame, counted: pa.Table) -> DataFrame:
    """Return packs with the boots of those that do not have one themselves."""
    if not len(counted):
        return packs
    boots = pa.table({_ROW: counted[_ROW], "found": counted["boot"]})
    rows = packs.join(F.broadcast(packs.sparkSession.createDataFrame(boots)), _ROW, "left")
    return rows.withColumn("boot", F.coalesce("boot", "found")).drop("found")


def _without(packs: DataFrame, copies: list[int]) -> DataFrame:
    if not copies:
        return packs
    if len(copies) <= _FEW:
        return packs.where(~F.col(_ROW).isin(copies))
    table = packs.sparkSession.createDataFrame(pa.table({_ROW: pa.array(copies, pa.int64())}))
    return packs.join(F.broadcast(table), _ROW, "left_anti")


def _micros(column: str) -> Column:
    return F.unix_micros(column)
