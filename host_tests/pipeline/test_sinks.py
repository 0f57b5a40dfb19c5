"""Tables that have each batch once: what a crash leaves behind at any point, and is done again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flatmq_tools.pipeline.delta import arrow, replace
from flatmq_tools.pipeline.sinks import Delta, into
from pipeline.landed import read
from pipeline.mqtt import until

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
                    (lambda rows: rows, Delta(tmp_path / "d")),
                    (lambda rows: rows, Delta(tmp_path / "e")),
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


def test_a_batch_is_on_the_disk_before_readers_see_it(
    spark: SparkSession, tmp_path: Path, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there with what Spark wrote about it.

    Otherwise, after a power cut, Spark might put more into a batch of which the sink then says
    that it is there.
    """
    table, commits = tmp_path / "d", tmp_path / "checkpoint" / "commits"
    entry = table / "_delta_log" / f"{1:020}.json"
    synced: list[tuple[int, bool, bool]] = []  # inode; whether readers see it; Spark's commit
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        seen = entry.exists(), (commits / "1").exists()
        synced.append((os.fstat(file).st_ino, *seen))

    batches(1)
    monkeypatch.setattr(os, "fsync", noted)
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


def test_a_snapshot_takes_the_place_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """Its times are in UTC, whatever the zone of the session."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        for rows in (5, 3):
            table = spark.range(rows).selectExpr("timestamp_seconds(86400) AS at")
            replace(arrow(table), tmp_path / "now")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    times = [row["at"] for row in read(tmp_path / "now")]
    assert [at.isoformat() for at in times] == ["1970-01-02T00:00:00+00:00"] * 3
