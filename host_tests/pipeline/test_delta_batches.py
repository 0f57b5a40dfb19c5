"""A query that follows a Delta table, on a disk and on S3: each row once, whatever happens."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools.pipeline.batches import BatchesError
from flatmq_tools.pipeline.delta_batches import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.timezone.utc)


def _add(table: str, values: list[int]) -> None:
    rows = {
        "n": pa.array(values, pa.int64()),
        "at": pa.array([AT] * len(values), pa.timestamp("us", "UTC")),
    }
    write_deltalake(table, pa.table(rows), mode="append")


def _reader(table: str, rows: int = 1000) -> Reader:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    fields = [StructField("n", LongType()), StructField("later", StringType())]
    return Reader(table, StructType(fields), rows, None)


def _values(reader: Reader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    parts = reader.partitions(start, end)
    return sorted(n for part in parts for rows in reader.read(part) for n in rows["n"].to_pylist())


@pytest.fixture(params=["disk", "s3"])
def table(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    if request.param == "disk":
        yield str(tmp_path / "table")
    else:
        with store() as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            yield f"s3://{BUCKET}/a/table"


def test_each_row_comes_once(table: str) -> None:
    reader = _reader(table)
    none = reader.latestOffset(reader.initialOffset())
    assert reader.partitions(none, none) == []
    _add(table, [1, 2])
    _add(table, [3])
    one = reader.latestOffset(none)
    assert _values(reader, none, one) == [1, 2, 3]
    # What is compacted is not new, and neither is what is rewritten without a row.
    assert DeltaTable(table).optimize.compact()["numFilesRemoved"] == 2
    DeltaTable(table).delete("n = 2")
    _add(table, [4])
    two = _reader(table).latestOffset(one)
    assert _values(_reader(table), one, two) == [4]
    # Who begins now begins with what there is.
    late = _reader(table)
    start = late.initialOffset()
    assert _values(late, start, late.latestOffset(start)) == [1, 3, 4]


def test_a_first_batch_that_is_done_again_has_what_it_had(tmp_path: Path) -> None:
    """Spark asks again where the table begins, and that has grown meanwhile."""
    table = str(tmp_path / "table")
    none = _reader(table).latestOffset(_reader(table).initialOffset())
    _add(table, [1])
    one = _reader(table).latestOffset(_reader(table).initialOffset())
    _add(table, [2])
    _add(table, [3])
    again = _reader(table)
    assert _values(again, again.initialOffset(), none) == []
    assert _values(again, again.initialOffset(), one) == [1]
    assert _values(again, none, again.latestOffset(none)) == [1, 2, 3]
    assert _values(again, one, again.latestOffset(one)) == [2, 3]


def test_a_batch_is_bounded_also_of_what_was_there_before(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    table = str(tmp_path / "table")
    for values in ([1, 2], [3, 4], [5, 6, 7, 8, 9], [10]):
        _add(table, values)
    reader = _reader(table)
    at = reader.initialOffset()
    _add(table, [11])
    seen = []
    while (end := _reader(table).latestOffset(at, ReadMaxRows(4))) != at:
        seen.append(_values(_reader(table), at, end))
        at = end
    assert sorted(n for values in seen for n in values) == list(range(1, 12))
    assert max(map(len, seen)) == 5 and len(seen) > 2


def test_what_was_removed_or_made_again_is_an_error(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for n in range(3):
        _add(str(table), [n])
    reader = _reader(str(table))
    offset = {**reader.initialOffset(), "version": 1, "whole": False}
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(BatchesError, match="version 1 of the log was removed before it was read"):
        _reader(str(table)).latestOffset(offset)
    shutil.rmtree(table)
    _add(str(table), [1])
    with pytest.raises(BatchesError, match="another table than before: remove what was made"):
        _reader(str(table)).latestOffset(offset)


def test_a_sink_and_a_follower_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """By the day of arrival, with a column that the table gets later."""
    from flatmq_tools.pipeline import delta_batches
    from flatmq_tools.pipeline.sinks import Delta, into

    def run(source: Any, name: str, sink: Delta) -> None:
        query = (
            source.writeStream.foreachBatch(into((lambda rows: rows, [sink])))
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
        run(stream, "one", Delta(first, by_day="at"))
    table = DeltaTable(first)
    assert table.metadata().partition_columns == ["day"]
    days = table.to_pyarrow_table()["day"].to_pylist()
    assert sorted(day.day for day in days) == [3, 4, 4, 5]
    schema = "n bigint, at timestamp, more string"
    run(delta_batches.follow(spark, first, schema), "two", Delta(second))
    run(delta_batches.follow(spark, first, schema), "two", Delta(second))
    copied = DeltaTable(second).to_pyarrow_table()
    assert sorted(copied["n"].to_pylist()) == [1, 2, 2, 3]
    assert copied["more"].null_count == 4
    assert delta_batches.table(spark, first, schema).count() == 4
