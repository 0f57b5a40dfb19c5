"""A query that follows a table of batches: each row once, and no more to do for a long table."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from flatmq_tools.pipeline.batches import BatchesError, Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.timezone.utc)


class _Table:
    """The table of a sink of another query."""

    def __init__(self, folder: Path, query: str = "one") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "_query.json").write_text(json.dumps({"query": query}))
        self.batches = 0

    def add(self, *files: list[int]) -> None:
        """A batch of so many files."""
        batch = self.folder / f"batch={self.batches}"
        batch.mkdir()
        self.batches += 1
        for i, values in enumerate(files):
            table = pa.table(
                {
                    "other": ["x"] * len(values),
                    "n": pa.array(values, pa.int64()),
                    "at": pa.array([AT] * len(values), pa.timestamp("us", "UTC")),
                }
            )
            # As Spark writes times.
            pq.write_table(
                table, batch / f"part-{i}.parquet", use_deprecated_int96_timestamps=True
            )


@pytest.fixture
def table(tmp_path: Path) -> _Table:
    return _Table(tmp_path / "table")


@pytest.fixture
def followed(spark: SparkSession, tmp_path: Path) -> Callable[..., list[list[int]]]:
    """Run the query until it has all there is; return the values of each of its batches."""
    from flatmq_tools.pipeline.batches import follow

    def run(rows: int = 1000) -> list[list[int]]:
        found: list[list[int]] = []

        def take(batch: Any, _: int) -> None:
            told = batch.orderBy("n").collect()
            assert all(row.at.astimezone(datetime.timezone.utc) == AT for row in told)
            found.append([row.n for row in told])

        frame = follow(spark, str(tmp_path / "table"), "at timestamp, n bigint", rows)
        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return found

    return run


def test_each_row_comes_once_also_after_a_restart(
    table: _Table, followed: Callable[..., list[list[int]]]
) -> None:
    table.add([1, 2], [3])
    table.add([4])
    (table.folder / ".batch=2-unfinished").mkdir()
    assert followed() == [[1, 2, 3, 4]]
    table.add([])
    table.add([5])
    assert followed() == [[5]]


def test_a_batch_is_bounded_and_goes_on_from_where_it_was(
    table: _Table, followed: Callable[..., list[list[int]]]
) -> None:
    for values in ([1, 2], [3, 4], [5, 6, 7, 8, 9], [10]):
        table.add(values)
    assert followed(rows=4) == [[1, 2, 3, 4], [5, 6, 7, 8, 9], [10]]


def _reader(folder: Path) -> Reader:
    from pyspark.sql.types import LongType, StructField, StructType

    return Reader(str(folder), StructType([StructField("n", LongType())]), 1000)


def test_a_table_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    reader = _reader(tmp_path / "table")
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start == {"query": None, "batch": 0}
    table = _Table(tmp_path / "table")
    assert reader.latestOffset(start) == {"query": "one", "batch": 0}
    table.add([1])
    assert reader.latestOffset(start) == {"query": "one", "batch": 1}


def test_what_was_removed_or_made_anew_is_told(table: _Table) -> None:
    for n in range(3):
        table.add([n])
    begun = _reader(table.folder)
    start = begun.initialOffset()
    end = begun.latestOffset(start)
    assert end == {"query": "one", "batch": 3}
    shutil.rmtree(table.folder / "batch=0")
    with pytest.raises(BatchesError, match="batch=0 was removed before it was read"):
        begun.partitions(start, end)
    with pytest.raises(BatchesError, match="begins with batch 1: 0 was removed"):
        _reader(table.folder).latestOffset(start)
    # Who begins later begins with what there is.
    assert _reader(table.folder).initialOffset() == {"query": "one", "batch": 1}
    shutil.rmtree(table.folder)
    _Table(table.folder, "two").add([1])
    with pytest.raises(BatchesError, match="of another query than before: remove what was made"):
        _reader(table.folder).latestOffset(end)


def test_a_long_table_costs_a_trigger_no_more(
    table: _Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(50):
        table.add([n])
    reader = _reader(table.folder)
    at = reader.latestOffset(reader.initialOffset())
    asked: list[str] = []
    ls = LocalFileSystem.ls

    def counted(self: LocalFileSystem, path: str, *rest: Any, **more: Any) -> Any:
        asked.append(Path(path).name)
        return ls(self, path, *rest, **more)

    monkeypatch.setattr(LocalFileSystem, "ls", counted)
    table.add([50])
    reader.partitions(at, reader.latestOffset(at))
    assert asked == ["batch=50", "batch=51", "batch=50"]
