"""Small files become few, and every reader finds each row once: before, after, and in between."""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import sizes
from flatmq_tools.pipeline import exchange, layout, merge
from flatmq_tools.pipeline.batches import Pieces, Reader
from pipeline import days
from pipeline.survive import points

STEP = 1 if sizes.whole() else 11  # lines from a kill to the next one
SCHEMA = StructType([StructField("n", LongType()), StructField("name", StringType())])


def _reader(folder: Path, rows: int = 1000) -> Reader:
    return Reader(str(folder), SCHEMA, rows)


def _offset(batch: int) -> dict[str, object]:
    return {"query": "one", "batch": batch}


def _read(reader: Reader, first: int, end: int) -> list[int]:
    """The values of these batches, as a query that follows gets them."""
    found: list[int] = []
    for part in reader.partitions(_offset(first), _offset(end)):
        for batch in reader.read(part):
            found += batch.column("n").to_pylist()
    return sorted(found)


def test_a_day_becomes_few_files_and_the_newest_batch_stays(tmp_path: Path) -> None:
    days.prepared(tmp_path)
    newest = tmp_path / f"day={days.TODAY}" / "batch=5" / "part-0.parquet"
    inode = newest.stat().st_ino
    assert days.merger(tmp_path).merge() == 4
    assert days.folders(tmp_path, days.OLD) == ["batch=0"]
    assert days.folders(tmp_path, days.TODAY) == ["batch=2", "batch=5"]
    assert days.numbers(tmp_path) == list(range(days.PREPARED))
    assert newest.stat().st_ino == inode
    assert not list(tmp_path.glob(".merge-*"))
    assert days.merger(tmp_path).merge() == 0


def test_rows_keep_their_order_types_and_columns(tmp_path: Path) -> None:
    """A column that older files lack is null in their rows."""
    for batch in range(20):
        days.add(tmp_path, batch, {days.OLD: [[3 * batch, 3 * batch + 1, 3 * batch + 2]]})
    (file,) = (tmp_path / f"day={days.OLD}" / "batch=1").iterdir()
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.append_column("more", pa.array(["a", "b", "c"])), file)
    days.merger(tmp_path).merge()
    (merged,) = (tmp_path / f"day={days.OLD}" / "batch=0").glob("*.parquet")
    found = pq.read_table(merged, partitioning=None)
    assert found["n"].to_pylist() == list(range(57))
    assert found["more"].to_pylist() == [None] * 3 + ["a", "b", "c"] + [None] * 51
    assert found.drop(["more"]).schema.remove_metadata() == table.schema.remove_metadata()


def test_a_query_that_follows_finds_each_batch_whatever_was_merged(tmp_path: Path) -> None:
    """From any batch to any other, at any stage."""
    chance = random.Random(4)
    sizes = [chance.randrange(5) for _ in range(40)]
    ends = list(itertools.accumulate(sizes, initial=0))
    reader = _reader(tmp_path)
    for batch, size in enumerate(sizes):
        cut = chance.randrange(size + 1)
        values = list(range(ends[batch], ends[batch + 1]))
        rows = {days.OLD: [values[:cut]], days.TODAY: [values[cut:], []]}
        days.add(tmp_path, batch, {day: files for day, files in rows.items() if any(files)})
        if batch % 7 == 6:
            days.merger(tmp_path, many=2).merge()
        for record in (tmp_path / layout.RECORDS).glob("*.json"):
            if int(record.stem) < batch - 4:  # as the sink removes them
                record.unlink()
        first = chance.randrange(batch + 1)
        end = chance.randrange(first, batch + 2)
        assert _read(reader, first, end) == list(range(ends[first], ends[end]))
        assert reader.latestOffset(_offset(first)) == _offset(batch + 1)
    assert reader.latestOffset(_offset(len(sizes))) == _offset(len(sizes))
    assert days.numbers(tmp_path) == list(range(ends[-1]))


def test_a_trigger_is_bounded_in_rows_also_within_a_merged_file(tmp_path: Path) -> None:
    for batch in range(10):
        days.add(tmp_path, batch, {days.OLD: [[10 * batch + n for n in range(10)]]})
    days.merger(tmp_path).merge()
    for record in range(8):
        (tmp_path / layout.RECORDS / f"{record}.json").unlink()
    reader = _reader(tmp_path, rows=25)
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(_offset(1), limit) == _offset(3)
    assert _read(reader, 1, 3) == list(range(10, 30))


def test_rows_that_are_merged_before_they_are_read_are_found_again(tmp_path: Path) -> None:
    days.prepared(tmp_path)
    reader = _reader(tmp_path)
    parts = reader.partitions(_offset(0), _offset(6))
    days.merger(tmp_path).merge()
    found = [
        row for part in parts for batch in reader.read(part) for row in batch["n"].to_pylist()
    ]
    assert sorted(found) == list(range(days.PREPARED))
    assert all(isinstance(part, Pieces) for part in parts)


def test_what_is_large_is_linked_and_not_written_again(tmp_path: Path) -> None:
    days.prepared(tmp_path)
    big = tmp_path / f"day={days.OLD}" / "batch=0" / "part-0.parquet"
    chance = random.Random(1)
    table = pa.table({"n": pa.array([chance.getrandbits(62) for _ in range(30_000)])})
    pq.write_table(table, big)
    inode = big.stat().st_ino
    assert days.merger(tmp_path, target=400_000).merge() > 0
    assert days.folders(tmp_path, days.OLD) == ["batch=0", "batch=1"]
    assert big.stat().st_ino == inode


def test_whoever_lists_the_table_meanwhile_finds_each_row_once(tmp_path: Path) -> None:
    """At each line of a merge."""
    days.prepared(tmp_path)
    looks = 0

    def look(_frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal looks
        looks += 1
        assert days.numbers(tmp_path) == list(range(days.PREPARED))
        return look

    sys.settrace(lambda frame, *_: look if frame.f_code.co_filename == merge.__file__ else None)
    try:
        assert days.merger(tmp_path).merge() == 4
    finally:
        sys.settrace(None)
    assert looks > 100


def test_a_reader_may_take_as_long_as_it_likes_between_a_day_and_its_folders(
    tmp_path: Path,
) -> None:
    """Many readers pass over a folder that they have listed and that is gone."""
    days.prepared(tmp_path)
    day = tmp_path / f"day={days.TODAY}"
    at_work = days.merger(tmp_path, many=2)
    looks = [(days.PREPARED, list(day.iterdir()))]
    for batch in range(6, 40):
        days.add(tmp_path, batch, {days.TODAY: [[3 * batch, 3 * batch + 1, 3 * batch + 2]]})
        looks.append((3 * batch + 3, list(day.iterdir())))
        at_work.merge()
        for rows, listed in looks:
            there = [file for path in listed for file in path.glob("*.parquet")]
            tables = [pq.read_table(file, columns=["n"], partitioning=None) for file in there]
            found = [n for table in tables for n in table["n"].to_pylist()]
            assert len(found) == len(set(found))
            assert set(range(8, rows)) <= set(found)


def test_a_day_merged_by_an_earlier_version(tmp_path: Path) -> None:
    """It has the number of the last of its batches."""
    days.prepared(tmp_path)
    days.merger(tmp_path).merge()
    for day, first, last in ((days.OLD, 0, 2), (days.TODAY, 2, 4)):
        folder = tmp_path / f"day={day}"
        (folder / f"batch={first}").rename(folder / f"batch={last}")
    reader = _reader(tmp_path)

    for batch in range(6, 11):
        for begin, end in itertools.combinations(range(batch + 1), 2):
            assert _read(reader, begin, end) == list(range(3 * begin, 3 * end)), (begin, end)
        rows = [3 * batch, 3 * batch + 1, 3 * batch + 2]
        days.add(tmp_path, batch, {days.OLD: [rows[:1]], days.TODAY: [rows[1:]]})
        days.merger(tmp_path, many=2).merge()
    assert days.numbers(tmp_path) == list(range(33))


def test_only_neighbours_are_merged(tmp_path: Path) -> None:
    """A large folder is not merged, and stays between its neighbours."""
    for batch in range(6):
        days.add(tmp_path, batch, {days.OLD: [[10 * batch + n for n in range(5)]]})
    chance = random.Random(1)
    table = pa.table({"n": pa.array([chance.getrandbits(62) for _ in range(30_000)])})
    pq.write_table(table, tmp_path / f"day={days.OLD}" / "batch=2" / "part-0.parquet")
    for _ in range(2):
        days.merger(tmp_path, target=400_000).merge()
        assert days.folders(tmp_path, days.OLD) == ["batch=0", "batch=2", "batch=3", "batch=5"]
    assert _read(_reader(tmp_path), 3, 5) == [*range(30, 35), *range(40, 45)]


def test_a_kill_at_any_point_leaves_each_row_once(tmp_path: Path) -> None:
    killed = 0
    for point, (status, _) in enumerate(points("merged", tmp_path, STEP)):
        folder = tmp_path / str(point)
        assert days.numbers(folder) == list(range(days.PREPARED)), point
        assert _read(_reader(folder), 0, 6) == list(range(days.PREPARED)), point
        days.merger(folder).merge()
        assert not list(folder.glob(".merge-*"))
        assert days.numbers(folder) == list(range(days.PREPARED)), point
        assert days.folders(folder, days.OLD) == ["batch=0"]
        killed += status == -signal.SIGKILL
    assert killed > 50 // STEP


def test_a_merge_that_is_stopped_changes_nothing(tmp_path: Path) -> None:
    days.prepared(tmp_path)
    stop = threading.Event()
    stop.set()
    assert merge.Merger(tmp_path, threading.Lock(), many=2, stop=stop).merge() == 0
    assert len(days.folders(tmp_path, days.OLD)) == 3
    assert not list(tmp_path.glob(".merge-*"))


def test_a_system_without_that_step_is_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert merge.can_merge(tmp_path)

    def cannot(one: Path, other: Path) -> None:
        raise exchange.ExchangeError(95, "not supported")

    monkeypatch.setattr(merge, "exchange", cannot)
    assert not merge.can_merge(tmp_path)
    assert not list(tmp_path.iterdir())


def test_two_folders_are_exchanged(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of-{name}").touch()
    exchange.exchange(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one" / "of-two").exists() and (tmp_path / "two" / "of-one").exists()
    with pytest.raises(FileNotFoundError):
        exchange.exchange(tmp_path / "one", tmp_path / "three")
