"""Rows of measurements without a value, counted as they are written."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from .sinks import Sink

NOTICE = (
    "values are null in measurements: they are numbers that no column can hold, such as NaN or "
    "1e400, or bytes that a mapping cannot decode"
)


class Missing:
    """A sink that reports the rows without a value.

    noticed  called with their number and one of them, when a batch has some
    """

    def __init__(self, sink: Sink, noticed: Callable[[int, str], None]) -> None:
        self._sink = sink
        self._noticed = noticed

    @property
    def rows(self) -> int:
        return self._sink.rows

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        return self._sink.has(query, batch_id, spark)

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        # Counted on their way into the table: no job more.
        seen = Observation()
        missing = F.coalesce("value", "total").isNull() & F.isnull("text") & F.isnull("flag")
        example = F.max(F.when(missing, F.concat_ws(": ", "device", "quantity")))
        counted = rows.observe(seen, F.count_if(missing).alias("count"), example.alias("example"))
        self._sink.write(counted, query, batch_id)
        found = seen.get
        if found["count"]:
            self._noticed(found["count"], f"such as {found['example']}")
