"""Tables of Delta: each batch is there once, and a query that follows finds each row once."""

import datetime
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flatmq_tools.pipeline import delta, delta_batches
from flatmq_tools.pipeline.delta import arrow
from flatmq_tools.pipeline.delta_batches import BYTES, BatchesError, Reader
from flatmq_tools.pipeline.sinks import Delta
from pipeline.messages import read, values_of
from pipeline.runs import written

Batches = Callable[..., None]


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> Batches:
    """Run the query for so many batches of a row each; the last again if it lacks a commit."""
    (tmp_path / "in").mkdir()

    def run(wanted: int, checkpoint: str = "checkpoint", state: bool = False) -> None:
        for n in range(wanted):
            (tmp_path / "in" / f"{n}.txt").write_text(f"{n}\n")
        stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        rows = stream.text(str(tmp_path / "in")).selectExpr("value", "current_timestamp() AS at")
        if state:
            rows = rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["value"])
        both = Delta(tmp_path / "d"), Delta(tmp_path / "e")
        written(rows, tmp_path / checkpoint, *both)

    return run


def _found(folder: Path, name: str = "d") -> list[str]:
    """The values in a table."""
    return sorted(row["value"] for row in read(folder / name))


def _uncommit(folder: Path, batch: int) -> None:
    """As after a crash before Spark noted that the batch was done."""
    (folder / "checkpoint" / "commits" / str(batch)).unlink()
    (folder / "checkpoint" / "commits" / f".{batch}.crc").unlink()


def test_a_batch_that_is_done_again_is_there_once(
    spark: SparkSession, tmp_path: Path, batches: Batches
) -> None:
    batches(2)
    _uncommit(tmp_path, 1)
    batches(3)
    assert _found(tmp_path) == _found(tmp_path, "e") == ["0", "1", "2"]

    # One sink had the batch when the crash came, and the other was in the middle of it.
    (tmp_path / "d" / "_delta_log" / f"{2:020}.json").unlink()
    assert _found(tmp_path) == ["0", "1"]
    _uncommit(tmp_path, 2)
    batches(3)
    assert _found(tmp_path) == _found(tmp_path, "e") == ["0", "1", "2"]


def test_a_batch_with_state_that_all_sinks_have_is_done_again_for_its_state(
    spark: SparkSession, tmp_path: Path, batches: Batches
) -> None:
    batches(2, state=True)
    # A batch without rows, which moves the watermark, may be the last.
    commits = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    _uncommit(tmp_path, max(int(commit.name) for commit in commits))
    batches(3, state=True)
    assert _found(tmp_path) == _found(tmp_path, "e") == ["0", "1", "2"]


def _on_sync(monkeypatch: pytest.MonkeyPatch, note: Callable[[int], object]) -> None:
    """Note the inode of each file that is synced."""
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: fsync(file) or note(os.fstat(file).st_ino))


def test_a_batch_is_on_the_disk_before_readers_see_it(
    spark: SparkSession, tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what Spark wrote about it, which might otherwise put more into the same batch."""
    table, commits = tmp_path / "d", tmp_path / "checkpoint" / "commits"
    entry = table / "_delta_log" / f"{1:020}.json"
    synced: list[tuple[int, bool, bool]] = []  # inode; whether readers see it; Spark's commit
    batches(1)
    _on_sync(monkeypatch, lambda n: synced.append((n, entry.exists(), (commits / "1").exists())))
    batches(2)

    def inodes(*paths: Path) -> set[int]:
        return {path.stat().st_ino for path in paths}

    before = {inode for inode, seen, _ in synced if not seen}
    [file] = {*DeltaTable(table).file_uris()} - {*DeltaTable(table, 0).file_uris()}
    assert inodes(Path(file), table) <= before
    checkpoint = tmp_path / "checkpoint"
    known = [checkpoint / "offsets" / "1", checkpoint / "sources" / "0" / "1", commits / "0"]
    assert inodes(*known, *(path.parent for path in known)) <= before
    # The commit, before Spark goes on.
    after = {inode for inode, seen, committed in synced if seen and not committed}
    assert inodes(entry, entry.parent) <= after


def test_every_file_of_a_table_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could open a table whose last checkpoint is torn. There is one every ten commits."""
    synced: set[int] = set()
    _on_sync(monkeypatch, synced.add)
    rows = pa.table({"n": [1, 2], "part": [1, 2]})
    grows, replaced = Delta(tmp_path / "grows"), Delta(tmp_path / "re placed")
    for number in range(11):
        grows.add([rows], rows.schema, "one", number)
    for _ in range(11):
        replaced.replace(rows, by="part")
    for table in (grows, replaced):
        files = [*Path(table.folder).rglob("*")]
        assert any(file.name.endswith(".checkpoint.parquet") for file in files)
        left = {file.name for file in files if file.stat().st_ino not in synced}
        assert left == {"_last_checkpoint"}  # readers do without it


def test_a_snapshot_takes_the_place_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """Its times are in UTC, whatever the zone of the session."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for rows in (5, 3):
            table = spark.range(rows).selectExpr("timestamp_seconds(86400) AS at")
            Delta(tmp_path / "now").replace(arrow(table))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    times = [row["at"] for row in read(tmp_path / "now")]
    assert [at.isoformat() for at in times] == ["1970-01-02T00:00:00+00:00"] * 3


AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.timezone.utc)


class Table:
    """A Delta table, and what follows it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._commits = 0

    def add(self, *parts: list[int]) -> None:
        """Add a commit, with a row group for each of these."""
        tables = [
            pa.table({"n": pa.array(values, pa.int64()),
                      "at": pa.array([AT] * len(values), pa.timestamp("us", "UTC"))})
            for values in parts
        ]  # fmt: skip
        self._commits += 1
        delta.Delta(self.name).add(tables, tables[0].schema, "one", self._commits)

    def reader(self, rows: int = 1000, size: int = BYTES) -> Reader:
        return Reader(self.name, rows, size)


def _values(reader: Reader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    return values_of(reader, reader.partitions(start, end), "n")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(str(tmp_path / "table"))


def test_each_row_comes_once(table: Table) -> None:
    """Whatever is merged, or deleted, meanwhile."""
    reader = table.reader()
    none = reader.latestOffset(reader.initialOffset())
    assert reader.partitions(none, none) == []
    table.add([1, 2], [3])
    table.add([4])
    one = reader.latestOffset(none)
    assert _values(reader, none, one) == [1, 2, 3, 4]
    assert DeltaTable(table.name).optimize.compact()["numFilesRemoved"] == 2
    DeltaTable(table.name).delete("n = 2")
    assert table.reader().is_read(one)
    table.add([5])
    assert not table.reader().is_read(one)
    two = table.reader().latestOffset(one)
    assert _values(table.reader(), one, two) == [5]
    # Who begins now begins with what there is.
    late = table.reader()
    start = late.initialOffset()
    assert _values(late, start, late.latestOffset(start)) == [1, 3, 4, 5]


def test_a_commit_while_others_change_the_table(table: Table) -> None:
    """Others may add a batch meanwhile; but not the same one, and no batch adds a column."""
    table.add([1])
    rows = pa.table({"n": [3]})

    def meanwhile(writer: str, number: int) -> Iterator[pa.Table]:
        delta.Delta(table.name).add([rows], rows.schema, writer, number)
        yield rows

    sink = delta.Delta(table.name)
    assert sink.add(meanwhile("another", 1), rows.schema, "two", 1) == 1
    with pytest.raises(delta.SinkError, match="another process writes batches of two"):
        sink.add(meanwhile("two", 2), rows.schema, "two", 2)
    assert sorted(DeltaTable(table.name).to_pyarrow_table()["n"].to_pylist()) == [1, 3, 3, 3]
    more = pa.table({"more": ["two"]})
    with pytest.raises(delta.SinkError, match="the table has no column more: write to another"):
        sink.add([more], more.schema, "two", 3)


@pytest.mark.parametrize(
    ("limits", "largest"), [({"rows": 4}, 5), ({"rows": 1000, "size": 200}, 5)]
)
def test_a_batch_is_bounded_in_rows_and_in_bytes(
    limits: dict[str, int], largest: int, table: Table
) -> None:
    """Also of what was there before, and within a file; a single row group may be larger."""
    for values in ([1, 2], [3, 4], [5, 6, 7, 8, 9]):
        table.add(values)
    DeltaTable(table.name).optimize.compact()
    table.add([10], [11], [12, 13], [14], [15], [16])
    at = table.reader().initialOffset()
    table.add([17], [18])
    seen = []
    limit = table.reader(**limits).getDefaultReadLimit()
    while (end := table.reader(**limits).latestOffset(at, limit)) != at:
        seen.append(_values(table.reader(), at, end))
        before = [unit.rows for unit in table.reader().before(end)]
        assert sum(before) == sum(map(len, seen))
        at = end
    assert sorted(n for values in seen for n in values) == list(range(1, 19))
    assert len(seen) > 3 and max(map(len, seen[1:])) <= largest


def test_a_first_batch_that_is_done_again_has_what_it_had(table: Table) -> None:
    """Spark asks again where the table begins, and that has grown meanwhile."""
    none = table.reader().latestOffset(table.reader().initialOffset())
    table.add([1])
    one = table.reader().latestOffset(table.reader().initialOffset())
    table.add([2])
    table.add([3])
    again = table.reader()
    assert _values(again, again.initialOffset(), none) == []
    assert _values(again, again.initialOffset(), one) == [1]
    for version in range(3):
        end = {**none, "table": one["table"], "version": version}
        assert _values(again, again.initialOffset(), end) == list(range(1, version + 1))
    assert _values(again, none, again.latestOffset(none)) == [1, 2, 3]
    assert _values(again, one, again.latestOffset(one)) == [2, 3]


def test_a_table_that_was_cut_or_made_again_is_an_error(table: Table) -> None:
    for n in range(3):
        table.add([n])
    offset = {**table.reader().initialOffset(), "version": 1, "whole": False}
    end = table.reader().latestOffset(offset)
    [file] = {*DeltaTable(table.name, 1).file_uris()} - {*DeltaTable(table.name, 0).file_uris()}
    Path(file).rename(f"{file}-away")
    with pytest.raises(BatchesError, match=r"\.parquet was removed before it was read"):
        table.reader().partitions(offset, end)
    DeltaTable(table.name).create_checkpoint()
    Path(table.name, "_delta_log", f"{1:020d}.json").unlink()
    with pytest.raises(BatchesError, match="version 1 of the log was removed before it was read"):
        table.reader().latestOffset(offset)
    shutil.rmtree(table.name)
    table.add([1])
    with pytest.raises(BatchesError, match="another table than before: remove what was made"):
        table.reader().latestOffset(offset)


def test_a_sink_and_a_follower_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """By the day of arrival, with a column that the table gets later."""
    (tmp_path / "in").mkdir()
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    for days in ([1, 2], [2, 3]):
        rows = pa.table({"at": [AT + datetime.timedelta(days=n) for n in days], "n": days})
        pq.write_table(rows, tmp_path / "in" / f"{days}.parquet")
        stream = spark.readStream.schema("at timestamp, n bigint").parquet(str(tmp_path / "in"))
        written(stream, tmp_path / "one", Delta(first, by_day="at"))
    found = DeltaTable(first)
    assert found.metadata().partition_columns == ["day"]
    days = found.to_pyarrow_table()["day"].to_pylist()
    assert sorted(day.day for day in days) == [3, 4, 4, 5]
    schema = "n bigint, at timestamp, more string"
    for _ in range(2):
        followed = delta_batches.follow(spark, first, schema)
        written(followed, tmp_path / "two", Delta(second))
    copied = DeltaTable(second).to_pyarrow_table()
    assert sorted(copied["n"].to_pylist()) == [1, 2, 2, 3]
    assert copied["more"].null_count == 4
    end = Reader(first, 1, 1)
    parts = delta_batches.before(spark, first, end.latestOffset(), 2)
    assert [part.count() for part in parts] == [2, 2]
