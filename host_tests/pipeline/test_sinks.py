"""Tables that have each batch once: what a crash leaves behind at any point, and is done again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from flatmq_tools.pipeline import visible
from flatmq_tools.pipeline.sinks import Delta, Parquet, into, replace, replace_delta
from pipeline.mqtt import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Callable[..., None]


@pytest.fixture
def batches(spark: SparkSession, tmp_path: Path) -> Batches:
    """Run the query for a number of batches, of a row each.

    The last is done again when its commit is missing.
    """
    (tmp_path / "in").mkdir()

    def run(wanted: int, checkpoint: str = "checkpoint", state: bool = False) -> None:
        for n in range(wanted):
            (tmp_path / "in" / f"{n}.txt").write_text(f"{n}\n")
        stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        rows = stream.text(str(tmp_path / "in")).selectExpr("value", "current_timestamp() AS at")
        if state:
            rows = rows.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["value"])
        query = (
            rows.writeStream.foreachBatch(
                into(
                    (lambda rows: rows, [Parquet(tmp_path / "p"), Delta(tmp_path / "d")]),
                    checkpoint=tmp_path / checkpoint,
                )
            )
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        until(lambda: not query.isActive)
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]

    return run


def _found(folder: Path) -> list[list[str]]:
    """The values in the Parquet and in the Delta table."""
    parquet = ds.dataset(folder / "p", format="parquet").to_table()
    tables = [parquet, DeltaTable(str(folder / "d")).to_pyarrow_table()]
    return [sorted(table["value"].to_pylist()) for table in tables]


def _uncommit(folder: Path, batch: int) -> None:
    """As after a crash before Spark noted that the batch was done."""
    (folder / "checkpoint" / "commits" / str(batch)).unlink()
    (folder / "checkpoint" / "commits" / f".{batch}.crc").unlink()


def test_a_batch_that_is_done_again_is_there_once(
    spark: SparkSession, tmp_path: Path, batches: Batches
) -> None:
    """Another query is kept out of the folder."""
    batches(2)
    with pytest.raises(Exception, match=r"is of query .* name another folder"):
        batches(2, checkpoint="another")
    before = sorted((tmp_path / "p").rglob("*.parquet"))
    _uncommit(tmp_path, 1)
    batches(3)
    assert _found(tmp_path) == [["0", "1", "2"]] * 2
    assert set(before) < set((tmp_path / "p").rglob("*.parquet"))  # no reader saw one go

    # One sink had the batch when the crash came, and the other was in the middle of it.
    shutil.move(tmp_path / "p" / "batch=2", tmp_path / "p" / ".batch=2-left")
    assert _found(tmp_path) == [["0", "1"], ["0", "1", "2"]]
    _uncommit(tmp_path, 2)
    batches(3)
    assert _found(tmp_path) == [["0", "1", "2"]] * 2
    assert not list((tmp_path / "p").glob(".batch=*"))


def test_a_batch_with_state_that_all_sinks_have_is_done_again_for_its_state(
    spark: SparkSession, tmp_path: Path, batches: Batches
) -> None:
    batches(2, state=True)
    # A batch without rows, which moves the watermark, may be the last.
    commits = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    _uncommit(tmp_path, max(int(commit.name) for commit in commits))
    batches(3, state=True)
    assert _found(tmp_path) == [["0", "1", "2"]] * 2


def test_a_batch_is_on_the_disk_before_readers_see_it(
    spark: SparkSession, tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there with what Spark wrote about it.

    Otherwise, after a power cut, Spark might put more into a batch of which the sink then says
    that it is there.
    """
    table, commits = tmp_path / "p", tmp_path / "checkpoint" / "commits"
    synced: list[tuple[int, bool, bool]] = []  # inode; whether it had its name, and was committed
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        seen = (table / "batch=1").exists(), (commits / "1").exists()
        synced.append((os.fstat(file).st_ino, *seen))

    batches(1)
    monkeypatch.setattr(os, "fsync", noted)
    batches(2)

    def inodes(*paths: Path) -> set[int]:
        return {path.stat().st_ino for path in paths}

    before = {inode for inode, named, _ in synced if not named}
    written = [table / "batch=1", *(table / "batch=1").iterdir()]
    assert len(written) > 2 and inodes(*written) <= before
    checkpoint = tmp_path / "checkpoint"
    known = [checkpoint / "offsets" / "1", checkpoint / "sources" / "0" / "1", commits / "0"]
    assert inodes(*known, *(path.parent for path in known)) <= before
    # Its name, before Spark goes on and the log may let go of it.
    after = {inode for inode, named, committed in synced if named and not committed}
    assert inodes(table) <= after


def test_rows_that_the_driver_cannot_read_are_not_committed(
    spark: SparkSession, tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an executor writes to a disk of its own: one file of a batch is not there."""
    counts = visible.counts

    def one_less(session: SparkSession, folder: str) -> dict[str, int]:
        for file in Path(folder).glob("*.parquet"):
            file.rename(tmp_path / file.name)
        return counts(session, folder)

    batches(1)
    with monkeypatch.context() as patch:
        patch.setattr(visible, "counts", one_less)
        with pytest.raises(Exception, match="can read 0 of the 1 rows that were written"):
            batches(2)
        with pytest.raises(visible.SinkError, match="now: the driver can read 0 of the 7 rows"):
            replace(spark.range(7), tmp_path / "now")
    assert _found(tmp_path)[0] == ["0"]
    assert not (tmp_path / "now").exists()
    batches(2)
    assert _found(tmp_path) == [["0", "1"]] * 2


def test_a_snapshot_takes_the_place_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """Its times are in UTC, whatever the zone of the session."""
    (tmp_path / ".now-new-left").mkdir()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for rows in (5, 3):
            table = spark.range(rows).selectExpr("timestamp_seconds(86400) AS at")
            replace(table, tmp_path / "now")
            replace_delta(table, tmp_path / "delta")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert ds.dataset(tmp_path / "now", format="parquet").count_rows() == 3
    times = DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()["at"].to_pylist()
    assert [at.isoformat() for at in times] == ["1970-01-02T00:00:00+00:00"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta", "now"]
