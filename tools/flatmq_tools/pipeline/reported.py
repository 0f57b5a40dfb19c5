"""Sinks that report some of the rows that they write."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from .sinks import Sink

WITHOUT_VALUE = (
    "values are null in measurements: they are numbers that no column can hold, such as NaN or "
    "1e400, or bytes that a mapping cannot decode"
)


class _Reported:
    """A sink around another one.

    noticed  called with the number of rows and one of them, when a batch has some
    """

    def __init__(self, sink: Sink, noticed: Callable[[int, str], None]) -> None:
        self._sink = sink
        self._noticed = noticed

    @property
    def rows(self) -> int:
        return self._sink.rows

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        return self._sink.has(query, batch_id, spark)


class Missing(_Reported):
    """A sink that reports the measurements without a value."""

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


class OutOfTime(_Reported):
    """A sink that reports all its rows, the readings whose time is far off.

    A batch without any leaves no trace: no folder, no file, no commit.
    """

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        one = rows.head()
        if one is not None:
            self._sink.write(rows, query, batch_id)
            example = f"such as {one['device']}: {one['time']}, received {one['received']}"
            self._noticed(rows.count(), example)
