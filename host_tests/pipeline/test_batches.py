"""A query that follows a table of batches or a Delta table finds each row once."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql.types import LongType, StringType, StructField, StructType

from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools.pipeline import batches, delta_batches
from flatmq_tools.pipeline.batches import BatchesError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.timezone.utc)
SCHEMA = StructType([StructField("n", LongType())])
WITH_MORE = StructType([*SCHEMA, StructField("later", StringType())])


def _rows(values: list[int]) -> pa.Table:
    times = pa.array([AT] * len(values), pa.timestamp("us", "UTC"))
    return pa.table({"other": ["x"] * len(values), "n": pa.array(values, pa.int64()), "at": times})


class Batches:
    """The table of a sink of another query."""

    def __init__(self, name: str) -> None:
        self.folder = Path(name)
        self._batches = 0

    def begin(self, query: str = "one") -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "_query.json").write_text(json.dumps({"query": query}))

    def add(self, *files: list[int]) -> None:
        """Add a batch of these files, with times as Spark writes them."""
        self.begin()
        batch = self.folder / f"batch={self._batches}"
        batch.mkdir()
        self._batches += 1
        for i, values in enumerate(files):
            target = batch / f"part-{i}.parquet"
            pq.write_table(_rows(values), target, use_deprecated_int96_timestamps=True)

    def disturb(self) -> list[int]:
        """Do what adds no row; return which rows are gone."""
        (self.folder / f".batch={self._batches}-unfinished").mkdir()
        self.add([])
        return []

    def reader(self, rows: int = 1000) -> Any:
        return batches.Reader(str(self.folder), SCHEMA, rows)


class Delta:
    """A Delta table."""

    def __init__(self, name: str) -> None:
        self.name = name

    def add(self, *files: list[int]) -> None:
        write_deltalake(self.name, _rows([n for values in files for n in values]), mode="append")

    def disturb(self) -> list[int]:
        """Compact it, and rewrite a file without a row."""
        assert DeltaTable(self.name).optimize.compact()["numFilesRemoved"] == 2
        DeltaTable(self.name).delete("n = 2")
        return [2]

    def reader(self, rows: int = 1000) -> Any:
        return delta_batches.Reader(self.name, WITH_MORE, rows, None)


def _values(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    parts = reader.partitions(start, end)
    return sorted(n for part in parts for rows in reader.read(part) for n in rows["n"].to_pylist())


@pytest.fixture(params=["batches", "delta"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Batches | Delta:
    return {"batches": Batches, "delta": Delta}[request.param](str(tmp_path / "table"))


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Delta]:
    with store() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield Delta(f"s3://{BUCKET}/a/table")


def test_each_row_comes_once(table: Batches | Delta) -> None:
    reader = table.reader()
    none = reader.latestOffset(reader.initialOffset())
    assert reader.partitions(none, none) == []
    table.add([1, 2], [3])
    table.add([4])
    one = reader.latestOffset(none)
    assert _values(reader, none, one) == [1, 2, 3, 4]
    gone = table.disturb()
    table.add([5])
    two = table.reader().latestOffset(one)
    assert _values(table.reader(), one, two) == [5]
    # Who begins now begins with what there is.
    late = table.reader()
    start = late.initialOffset()
    found = _values(late, start, late.latestOffset(start))
    assert found == [n for n in range(1, 6) if n not in gone]


def test_each_row_comes_once_from_s3(on_s3: Delta) -> None:
    test_each_row_comes_once(on_s3)


def test_a_batch_is_bounded_also_of_what_was_there_before(table: Batches | Delta) -> None:
    for values in ([1, 2], [3, 4], [5, 6, 7, 8, 9], [10]):
        table.add(values)
    at = table.reader().initialOffset()
    table.add([11])
    seen = []
    limit = table.reader(4).getDefaultReadLimit()
    while (end := table.reader(4).latestOffset(at, limit)) != at:
        seen.append(_values(table.reader(4), at, end))
        at = end
    assert sorted(n for values in seen for n in values) == list(range(1, 12))
    assert max(map(len, seen)) == 5 and len(seen) > 2


def test_a_table_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    table = Batches(str(tmp_path / "table"))
    reader = table.reader()
    start = reader.initialOffset()
    assert reader.latestOffset(start) == start == {"query": None, "batch": 0}
    table.begin()
    assert reader.latestOffset(start) == {"query": "one", "batch": 0}
    table.add([1])
    assert reader.latestOffset(start) == {"query": "one", "batch": 1}


def test_a_first_batch_that_is_done_again_has_what_it_had(tmp_path: Path) -> None:
    """Spark asks again where the table begins, and that has grown meanwhile."""
    table = Delta(str(tmp_path / "table"))
    none = table.reader().latestOffset(table.reader().initialOffset())
    table.add([1])
    one = table.reader().latestOffset(table.reader().initialOffset())
    table.add([2])
    table.add([3])
    again = table.reader()
    assert _values(again, again.initialOffset(), none) == []
    assert _values(again, again.initialOffset(), one) == [1]
    assert _values(again, none, again.latestOffset(none)) == [1, 2, 3]
    assert _values(again, one, again.latestOffset(one)) == [2, 3]


def test_batches_that_were_removed_or_made_again_are_an_error(tmp_path: Path) -> None:
    table = Batches(str(tmp_path / "table"))
    for n in range(3):
        table.add([n])
    begun = table.reader()
    start = begun.initialOffset()
    end = begun.latestOffset(start)
    assert end == {"query": "one", "batch": 3}
    shutil.rmtree(table.folder / "batch=0")
    with pytest.raises(BatchesError, match="batch=0 was removed before it was read"):
        begun.partitions(start, end)
    with pytest.raises(BatchesError, match="begins with batch 1: 0 was removed"):
        table.reader().latestOffset(start)
    # Who begins later begins with what there is.
    assert table.reader().initialOffset() == {"query": "one", "batch": 1}
    table.begin("two")
    with pytest.raises(BatchesError, match="of another query than before: remove what was made"):
        table.reader().latestOffset(end)


def test_a_delta_table_that_was_cut_or_made_again_is_an_error(tmp_path: Path) -> None:
    table = Delta(str(tmp_path / "table"))
    for n in range(3):
        table.add([n])
    offset = {**table.reader().initialOffset(), "version": 1, "whole": False}
    DeltaTable(table.name).create_checkpoint()
    (tmp_path / "table" / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(BatchesError, match="version 1 of the log was removed before it was read"):
        table.reader().latestOffset(offset)
    shutil.rmtree(table.name)
    table.add([1])
    with pytest.raises(BatchesError, match="another table than before: remove what was made"):
        table.reader().latestOffset(offset)


def test_a_long_table_costs_a_trigger_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Batches(str(tmp_path / "table"))
    for n in range(50):
        table.add([n])
    reader = table.reader()
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


# In Spark


def test_batches_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = Batches(str(tmp_path / "table"))
    found: list[list[int]] = []

    def take(batch: Any, _: int) -> None:
        rows = batch.orderBy("n").collect()
        assert all(row.at.astimezone(datetime.timezone.utc) == AT for row in rows)
        found.append([row.n for row in rows])

    for values in ([1, 2], [3, 4, 5]):
        table.add(values)
        frame = batches.follow(spark, str(table.folder), "at timestamp, n bigint", 1000)
        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
    assert found == [[1, 2], [3, 4, 5]]


def test_a_sink_and_a_follower_of_delta_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """By the day of arrival, with a column that the table gets later."""
    from flatmq_tools.pipeline import sinks

    def run(source: Any, name: str, sink: sinks.Delta) -> None:
        query = (
            source.writeStream.foreachBatch(sinks.into((lambda rows: rows, [sink])))
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)

    (tmp_path / "in").mkdir()
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    for days in ([1, 2], [2, 3]):
        rows = pa.table({"at": [AT + datetime.timedelta(days=n) for n in days], "n": days})
        pq.write_table(rows, tmp_path / "in" / f"{days}.parquet")
        stream = spark.readStream.schema("at timestamp, n bigint").parquet(str(tmp_path / "in"))
        run(stream, "one", sinks.Delta(first, by_day="at"))
    table = DeltaTable(first)
    assert table.metadata().partition_columns == ["day"]
    days = table.to_pyarrow_table()["day"].to_pylist()
    assert sorted(day.day for day in days) == [3, 4, 4, 5]
    schema = "n bigint, at timestamp, more string"
    for _ in range(2):
        run(delta_batches.follow(spark, first, schema), "two", sinks.Delta(second))
    copied = DeltaTable(second).to_pyarrow_table()
    assert sorted(copied["n"].to_pylist()) == [1, 2, 2, 3]
    assert copied["more"].null_count == 4
    assert delta_batches.table(spark, first, schema).count() == 4
