"""Packs of a batch that came before, in it or in an earlier one.

A copy has the device, boot and number of a pack that is known. Neither its time nor its delay
plays a part.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from . import boots
from .job import Made
from .table import File, Table

MARKS = ("fresh", "unsure", "reordered", "island", "missing", "bucket")
"""The columns that are added to packs; `fresh` are those that are no copies."""
_SMALL = 20_000  # devices, up to which all are written again with each batch
_BATCHES = 16  # whose changes to the state lie beside it, at most


class Counts(NamedTuple):
    """The counts of a batch."""

    packs: int
    fresh: int
    dead: int
    unsure: int
    last: datetime.datetime | None
    """When the newest pack with numbers came."""
    buckets: list[int]
    """Those of the state that may have closed boots of these packs."""


Transform = Callable[[DataFrame], DataFrame]
Outputs = Callable[[DataFrame, DataFrame, Counts], dict[str, DataFrame | None]]
"""Makes the rows of each output, of the messages of a batch and its marked packs."""


class Copies:
    """The work of a job that drops copies.

    state    the table of boots
    parse    turns messages into packs, as `measurements.packs` does
    statuses  returns the newest status of each device in messages, as `pace.STATUS`
    outputs  makes rows of the marked packs
    unsure   is called with how many packs of a batch may be copies and were kept
    close    s, at least, between two batches that close boots, as each writes many files
    """

    def __init__(
        self, state: Table, parse: Transform, statuses: Transform, outputs: Outputs,
        unsure: Callable[[int], None] = lambda count: None, close: float = 600.0,
    ) -> None:  # fmt: skip
        self._state = state
        self._parse = parse
        self._statuses = statuses
        self._outputs = outputs
        self._unsure = unsure
        self._close_every = close
        self._due = time.monotonic()

    @contextmanager
    def __call__(self, messages: DataFrame, end: int) -> Iterator[Made]:
        files = self._state.files()
        open_, closed = (
            [file for file in files if (file.partition["bucket"] == boots.OPEN) is is_open]
            for is_open in (True, False)
        )
        parts = int(messages.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
        # Dead letters have no device, and would all be in one part.
        key = F.coalesce("device", F.pmod("offset", F.lit(64)).cast("string"))
        packs = self._parse(messages).withColumnRenamed("told", "timed")
        packs = packs.withColumn("device", key).repartition(parts, "device")
        heads = boots.newest(self._state, open_)
        known = boots.newest(self._state, open_, boots.MARKING)
        frame = marked(packs, known).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = _counted(frame)
            of = [file for file in closed if file.partition["bucket"] in counts.buckets]
            if of:
                devices = frame.where("bucket IS NOT NULL").select("device").distinct()
                heads = boots.reopened(self._state, heads, of, devices, end).persist()
                heads.count()
                frame.unpersist()
                frame = marked(packs, heads).persist(StorageLevel.MEMORY_AND_DISK)
                counts = _counted(frame)
            rows = self._outputs(messages, frame, counts)
            state, replaced = self._changed(
                frame, heads, self._statuses(messages), open_, counts, end
            )
            yield Made(rows, state, replaced)
            if counts.unsure:
                self._unsure(counts.unsure)
        finally:
            frame.unpersist()
            heads.unpersist()

    def _changed(
        self,
        frame: DataFrame,
        heads: DataFrame,
        statuses: DataFrame,
        open_: list[File],
        counts: Counts,
        end: int,
    ) -> tuple[DataFrame | None, list[File]]:
        """Return the rows for the state, and the files that they replace."""
        whole, *more = boots.versions(open_).values() or [0]
        if len(more) < _BATCHES and sum(more) < whole and whole > _SMALL:
            return boots.changed(frame, heads, statuses, end), []
        close = time.monotonic() >= self._due
        if close:
            self._due = time.monotonic() + self._close_every
        now = counts.last if close else None
        return boots.changed(frame, heads, statuses, end, now, every=True), open_


def marked(packs: DataFrame, heads: DataFrame) -> DataFrame:
    """Return packs with MARKS.

    packs  in parts by device
    heads  the newest row of the state of each device

    Of packs with the same number in a batch, the first to arrive is no copy. `unsure` are packs
    whose numbers are below those that are known one by one. `reordered` are fresh packs that came
    after one with a larger number. Fresh packs with the same `island` have numbers that follow
    each other. `missing` is how many numbers more are missing with a pack, but for those before
    the first of its boot. `bucket` is where a closed boot of that number may be.
    """
    over = "OVER (PARTITION BY device, boot ORDER BY seq DESC, timestamp, offset"
    return packs.sparkSession.sql(
        f"""
        WITH joined AS (
            SELECT /*+ SHUFFLE_HASH(h) */ p.*, get(h.boots, size(h.boots) - 1).boot AS newest,
                get(filter(h.boots, b -> b.boot = p.boot), 0) AS was
            FROM {{packs}} p LEFT JOIN {{heads}} h ON h.device = p.device
        ), known AS (
            SELECT * EXCEPT (was, newest), was.highest AS known_highest,
                was.lowest AS known_lowest, was.floor AS known_floor,
                coalesce(exists(was.ranges, r -> seq BETWEEN r.lo AND r.hi), false) AS known,
                CASE WHEN boot IS NOT NULL AND was IS NULL AND coalesce(boot < newest, true)
                    THEN {boots.BUCKET} END AS bucket
            FROM joined
        ), ordered AS (
            SELECT *, lag(seq) {over}) AS above, min(struct(timestamp, offset)) {over}
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS sooner
            FROM known
        ), flagged AS (
            SELECT * EXCEPT (known, above, sooner, known_floor),
                reason IS NULL AND (boot IS NULL OR NOT (known OR above <=> seq)) AS fresh,
                coalesce(seq <= known_floor, false) AS below,
                coalesce(seq < known_highest, false)
                    OR coalesce(sooner < struct(timestamp, offset), false) AS after
            FROM ordered
        )
        SELECT * EXCEPT (below, after, known_highest, known_lowest), fresh AND below AS unsure,
            fresh AND after AND boot IS NOT NULL AS reordered,
            IF(fresh AND NOT below, seq + count_if(fresh AND NOT below) {over}), NULL) AS island,
            CASE WHEN NOT fresh OR boot IS NULL THEN 0L
                WHEN known_highest IS NULL OR seq > known_highest THEN coalesce(seq - 1 - greatest(
                    lead(IF(fresh, seq, NULL)) IGNORE NULLS {over}), known_highest), 0L)
                WHEN seq < known_lowest THEN least(
                    lag(IF(fresh, seq, NULL)) IGNORE NULLS {over}), known_lowest) - 1 - seq
                ELSE -1L END AS missing
        FROM flagged
        """,
        packs=packs, heads=heads,
    )  # fmt: skip


def _counted(frame: DataFrame) -> Counts:
    numbered = F.col("boot").isNotNull()
    row = frame.agg(
        F.count_if(numbered), F.count_if("fresh"), F.count_if(F.col("reason").isNotNull()),
        F.count_if("unsure"), F.max(F.when(numbered, F.col("timestamp"))), F.collect_set("bucket"),
    ).first()  # fmt: skip
    assert row is not None
    return Counts(*row)
