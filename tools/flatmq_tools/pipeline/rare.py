"""A table that seldom gets a row, and whose rows are reported."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from .sinks import Sink


class Rare:
    """A sink in which a batch without rows leaves no trace: no folder, no file, no commit.

    noticed  called with the number of rows and one of them, when a batch has some
    """

    def __init__(self, sink: Sink, noticed: Callable[[int, dict[str, object]], None]) -> None:
        self._sink = sink
        self._noticed = noticed

    @property
    def rows(self) -> int:
        return self._sink.rows

    def has(self, query: str, batch_id: int, spark: SparkSession) -> bool:
        return self._sink.has(query, batch_id, spark)

    def write(self, rows: DataFrame, query: str, batch_id: int) -> None:
        one = rows.head()
        if one is not None:
            self._sink.write(rows, query, batch_id)
            self._noticed(rows.count(), one.asDict())
