"""The sink of tables by day: a batch over midnight, and a crash at any of its steps."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import sizes
from flatmq_tools.pipeline import durable, layout
from flatmq_tools.pipeline.merge import Merger
from pipeline.called import as_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flatmq_tools.pipeline.by_day import ByDay

MIDNIGHT = datetime.datetime(2026, 2, 1, tzinfo=datetime.timezone.utc)
BEFORE, AFTER = "day=2026-01-31", "day=2026-02-01"
Batches = Callable[..., "ByDay"]


class _Killed(Exception):
    pass


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> Iterator[Batches]:
    """Write the batches of a query up to a number, from one on, each with rows of two days."""
    from flatmq_tools.pipeline.by_day import ByDay
    from flatmq_tools.pipeline.sinks import into

    def run(wanted: int, first: int = 0) -> ByDay:
        sink = ByDay(tmp_path / "p", "at")
        write = into((lambda rows: rows, [sink]))
        for n in range(first, wanted):
            at = MIDNIGHT + datetime.timedelta(seconds=n)
            rows = [(2 * n, at - datetime.timedelta(days=1)), (2 * n + 1, at)]
            write(spark.createDataFrame(rows, "n bigint, at timestamp"), n)
        return sink

    with as_query(spark):
        yield run


def _found(folder: Path, *sparks: SparkSession) -> list[list[int]]:
    """The values that each reader finds: pyarrow, and Spark if given."""
    by_pyarrow = ds.dataset(folder, format="parquet").to_table(["n"])
    by_spark = [spark.read.parquet(str(folder)).select("n").toArrow() for spark in sparks]
    return [sorted(table["n"].to_pylist()) for table in (by_pyarrow, *by_spark)]


def _wanted(count: int) -> list[list[int]]:
    return [list(range(2 * count))] * 2


def _is_killed_at(
    step: int, table: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]
) -> bool:
    """Return whether the work has so many steps in the table; it ends before that one.

    Each step is followed by a sync.
    """
    left = [step]

    def ends(sync: Callable[[Path], None]) -> Callable[[Path], None]:
        def end(path: Path) -> None:
            if path.is_relative_to(table):
                if not left[0]:
                    raise _Killed
                left[0] -= 1
            sync(path)

        return end

    with monkeypatch.context() as patch:
        for name in ("tree", "entry", "path"):
            patch.setattr(durable, name, ends(getattr(durable, name)))
        try:
            work()
        except _Killed:
            return True
    return False


def test_rows_are_in_the_folder_of_their_day(
    spark: SparkSession, tmp_path: Path, batches: Batches
) -> None:
    table = tmp_path / "p"
    assert batches(2).rows == 4
    assert _found(table, spark) == _wanted(2)
    for day, odd in ((BEFORE, 0), (AFTER, 1)):
        found = ds.dataset(table / day, format="parquet").to_table()["n"].to_pylist()
        assert sorted(found) == [odd, 2 + odd]
    days_found = {row.day for row in spark.read.parquet(str(table)).select("day").collect()}
    assert days_found == {datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)}
    # What the sink says of the batches is true also when Spark asks again.
    batches(3, first=1)
    assert _found(table, spark) == _wanted(3)


def test_a_crash_between_any_two_steps_leaves_each_row_once(
    spark: SparkSession, tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "p"
    batches(1)
    for at in range(100):
        done = at + 1
        batch = partial(batches, done + 1, done)
        if not _is_killed_at(at, table, monkeypatch, batch):
            break
        found = ds.dataset(table, format="parquet").to_table(["n"])["n"].to_pylist()
        assert len(found) == len(set(found))
        batch()
        assert _found(table) == _wanted(done + 1)[:1], at
        assert not [*table.glob(".batch=*"), *table.glob(f"{layout.MOVING}*")]
    assert _found(table, spark) == _wanted(at + 2)
    assert at >= 6  # written, committed, two days, recorded, done


def test_a_batch_stays_known_after_it_was_merged_and_its_record_is_gone(
    spark: SparkSession, tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatmq_tools.pipeline import by_day

    monkeypatch.setattr(by_day, "RECENT", 2)
    table = tmp_path / "p"
    sink = batches(5)
    query = str(layout.Table(str(table)).owner())
    assert Merger(table, sink.moving, settled=0).merge() == 6
    assert layout.Table(str(table)).recorded() == [3, 4]
    assert all(by_day.ByDay(table, "at").has(query, n, spark) for n in range(5))
    assert not sink.has(query, 5, spark)
    assert _found(table, spark) == _wanted(5)
    batches(6, first=4)
    assert _found(table, spark) == _wanted(6)


def test_a_batch_without_rows_leaves_no_files_but_the_first_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By that one, readers find the columns."""
    from flatmq_tools.pipeline.by_day import ByDay

    table = tmp_path / "p"
    sink = ByDay(table, "at")
    none = spark.createDataFrame([], "n bigint, at timestamp")
    for batch in range(3):
        assert not sink.has("one", batch, spark)
        sink.write(none, "one", batch)
        assert sink.has("one", batch, spark)
    assert len(layout.files(table)) == 1
    assert spark.read.parquet(str(table)).drop("day", "batch").schema == none.schema


def test_a_table_of_an_earlier_version_is_moved_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is whole after a crash at any of the steps of that."""
    from flatmq_tools.pipeline.by_day import ByDay
    from flatmq_tools.pipeline.sinks import Parquet

    old, values = tmp_path / "old", []
    before = Parquet(old)
    for batch in range(4):
        many = 0 if batch == 2 else 3
        rows = [(10 * batch + n, MIDNIGHT + datetime.timedelta(hours=n - 2)) for n in range(many)]
        values += [n for n, _ in rows]
        assert not before.has("one", batch, spark)
        frame = spark.createDataFrame(rows, "n bigint, at timestamp").coalesce(1)
        before.write(frame, "one", batch)
    for at in range(0, 100, 1 if sizes.whole() else 4):
        table = tmp_path / f"table-{at}"
        shutil.copytree(old, table)
        is_killed = _is_killed_at(
            at, table, monkeypatch, partial(ByDay(table, "at").has, "one", 4, spark)
        )
        sink = ByDay(table, "at")
        assert all(sink.has("one", n, spark) for n in range(4))
        assert not sink.has("one", 4, spark)
        assert _found(table) == [values], at
        assert not list(table.glob("batch=*"))
        ours = ds.dataset(table / BEFORE, format="parquet").to_table()["at"].to_pylist()
        assert len(ours) == 6
        if not is_killed:
            break
    assert _found(table, spark) == [values, values]
    assert at > 10
