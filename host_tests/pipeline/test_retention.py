"""`flatmq pipeline run --keep`: old days leave the tables, unless they are still to be read."""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake

from flatmq_tools.pipeline import cli, merge, merging, retention
from flatmq_tools.pipeline.batches import BatchesError, Reader
from flatmq_tools.pipeline.by_day import ByDay
from flatmq_tools.pipeline.layout import Table
from flatmq_tools.pipeline.merging import Merging
from pipeline import days
from pipeline.landed import land_boards
from pipeline.mqtt import until as wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 60.0
DAY = datetime.date(2026, 6, 1)  # later than days.OLD


def _checkpoint(folder: Path, read: int, done: int = 3) -> None:
    """The checkpoint of a query that has read the batches before `read`."""
    for name, text in (("commits", "v1\n{}"), ("offsets", f'v1\n{{}}\n{{"batch": {read}}}')):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / str(done)).write_text(text)


def _expire(folder: Path, until: int | None = None, day: datetime.date = DAY) -> list[str]:
    return retention.expire(folder, day, until, threading.Lock())


def _merged(folder: Path) -> None:
    days.prepared(folder)
    days.merger(folder).merge()


OLDEST = datetime.date.fromisoformat(days.OLD)


@pytest.mark.parametrize("prepare", [days.prepared, _merged, days.prepared_with_devices])
@pytest.mark.parametrize(
    ("until", "day", "goes"),
    [
        (None, DAY, True), (None, OLDEST, False),  # which has not reached its end by then
        (0, DAY, False), (2, DAY, False), (3, DAY, True),  # once a query has read all of it
    ],
)  # fmt: skip
def test_an_old_day_goes_when_it_was_read_and_the_others_stay(
    prepare: Callable[[Path], None], until: int | None, day: datetime.date, goes: bool,
    tmp_path: Path,
) -> None:  # fmt: skip
    prepare(tmp_path)
    assert _expire(tmp_path, until, day) == [f"day={days.OLD}"] * goes
    assert days.numbers(tmp_path) == [*range(7 * goes, days.PREPARED)]
    assert not list(tmp_path.glob(".expired-*"))
    if goes:
        assert _expire(tmp_path, until, day) == []
        table = Table(str(tmp_path))
        assert (table.first(), max(table.of_days(0, None))) == (2, 5)


def _latest(folder: Path, batch: int) -> int:
    """Return up to where a query reads that starts again with this batch."""
    from pyspark.sql.types import StructType

    reader = Reader(str(folder), StructType(), 1000)
    return int(reader.latestOffset({"query": "one", "batch": batch})["batch"])


def test_a_query_goes_on_only_behind_batches_that_were_recorded_without_rows(
    tmp_path: Path,
) -> None:
    days.add(tmp_path, 0, {days.OLD: [[1]]})
    for empty in (1, 2):
        days.add(tmp_path, empty, {})
    days.add(tmp_path, 3, {days.TODAY: [[2]]})
    assert _expire(tmp_path, until=1) == [f"day={days.OLD}"]
    assert _latest(tmp_path, 1) == 4
    (tmp_path / "_batches" / "1.json").unlink()
    for batch, gone in ((0, 0), (1, 1)):
        with pytest.raises(BatchesError, match=f"begins with batch 3: {gone} was removed"):
            _latest(tmp_path, batch)


def test_the_newest_batch_stays(tmp_path: Path) -> None:
    days.add(tmp_path, 0, {"2026-01-01": [[1]]})
    days.add(tmp_path, 1, {"2026-01-02": [[2]]})
    assert _expire(tmp_path) == ["day=2026-01-01"]
    assert days.numbers(tmp_path) == [2]


def test_a_kill_leaves_nothing_that_a_reader_finds_and_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.prepared(tmp_path)

    def killed(_folder: Path) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(SystemExit):
            _expire(tmp_path)
    assert days.numbers(tmp_path) == [*range(7, days.PREPARED)]
    assert len(list(tmp_path.glob(".expired-*"))) == 1
    _expire(tmp_path)
    assert not list(tmp_path.glob(".expired-*"))


def test_what_a_query_has_read_is_in_its_checkpoint(tmp_path: Path) -> None:
    assert retention.unread(tmp_path, "raw") is None
    _checkpoint(tmp_path / "measurements", 7)
    assert retention.unread(tmp_path, "raw") == 7
    _checkpoint(tmp_path / "health", 5, done=9)
    under_way = tmp_path / "health" / "offsets" / "10"
    under_way.write_text(f"v1\n{{}}\n{json.dumps({'batch': 6})}")
    assert retention.unread(tmp_path, "raw") == 5
    assert retention.unread(tmp_path, "measurements") is None
    (tmp_path / "windows").mkdir()  # it has begun, and read nothing
    assert retention.unread(tmp_path, "measurements") == 0
    assert retention.unread(tmp_path, "windows") is None


@pytest.mark.parametrize(
    ("column", "left"),
    [
        ([days.OLD, days.OLD, days.TODAY], [3]),
        (pa.array([OLDEST, DAY, None], pa.date32()), [2, 3]),  # as a run writes it
    ],
)
def test_a_delta_table(column: Any, left: list[int], tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, 3], "day": column})
    write_deltalake(tmp_path / "raw", rows, partition_by=["day"])
    assert retention.expire_delta(tmp_path / "raw", DAY)
    assert sorted(DeltaTable(tmp_path / "raw").to_pyarrow_table()["n"].to_pylist()) == left
    assert not retention.expire_delta(tmp_path / "raw", DAY)


def test_a_delta_table_without_its_first_commit_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "raw" / "_delta_log").mkdir(parents=True)  # a kill came first
    assert not retention.expire_delta(tmp_path / "raw", DAY)


def _looked(
    folder: Path, delta: Path | None = None, is_full: bool = False, **more: Any
) -> list[str]:
    """Return what a run says that looks at the table until a look is over, and then again."""
    tables: Any = SimpleNamespace(by_day={"raw": ByDay(folder, "at")}, delta=delta and str(delta))
    lines: list[str] = []
    at_work = Merging(tables, lines.append, 0.0, **more)
    end = time.monotonic() + PATIENCE
    # private access: a look that finds nothing leaves no trace
    while not ((work := at_work._working) and work.done()):
        assert time.monotonic() < end
        at_work.look(is_full=is_full)
        time.sleep(0.01)
    at_work.look(is_full=is_full)  # raises what the first one raised
    at_work.close()
    return lines


def test_a_full_disk_loses_old_days_and_nothing_is_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge.Merger.__init__, "__defaults__", (1 << 20, 3, 3, 600.0, None))
    days.prepared(tmp_path / "raw")
    days.add(tmp_path / "raw", 6, {"2026-01-02": [[18]]})
    days.add(tmp_path / "raw", 7, {days.TODAY: [[19]]})
    before = days.folders(tmp_path / "raw", days.TODAY)
    (line,) = _looked(tmp_path / "raw", is_full=True, keep=86_400.0)
    assert line.startswith("removed 2 days before ")
    assert days.folders(tmp_path / "raw", days.TODAY) == before


def test_a_broken_delta_table_does_not_end_the_run(tmp_path: Path) -> None:
    days.prepared(tmp_path / "raw")
    log = tmp_path / "delta" / "raw" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no commit")
    stays, removed = _looked(tmp_path / "raw", tmp_path / "delta", keep=86_400.0)
    assert stays.startswith(f"old days stay in {log.parent}: ")
    assert "\n" not in stays
    assert removed.startswith("removed 1 day before ")


def test_a_run_without_keep_removes_what_a_kill_left(tmp_path: Path) -> None:
    days.prepared(tmp_path / "raw")
    (tmp_path / "raw" / f"day={days.OLD}").rename(tmp_path / "raw" / f"{retention.HIDDEN}1")
    assert _looked(tmp_path / "raw", tmp_path / "delta") == []
    assert not list((tmp_path / "raw").glob(".expired-*"))


def test_a_run_says_what_it_removes(tmp_path: Path) -> None:
    days.prepared(tmp_path / "raw")
    (tmp_path / "delta").mkdir()
    checkpoints = tmp_path / "checkpoints"
    said = f"removed 1 day before {retention.oldest(86_400.0)} from raw (--keep 1d)"
    for read, lines in ((0, []), (6, [said])):
        _checkpoint(checkpoints / "measurements", read)
        more = {"keep": 86_400.0, "checkpoints": checkpoints}
        assert _looked(tmp_path / "raw", tmp_path / "delta", **more) == lines
    assert days.numbers(tmp_path / "raw") == [*range(7, days.PREPARED)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["out", "--keep", "12h"], "--keep must be at least 1d, not 43200s"),
        (["out", "--keep", "soon"], "a duration must be a number and"),
        (["s3://b/x", "--delta", "--state", "s", "--keep", "9d"], "--keep needs an OUT that is a"),
    ],
)
def test_what_is_refused(arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(cli.pipeline, ["run", *arguments, "--broker", "127.0.0.1"])
    assert found.exit_code == 2
    assert said in found.output


def test_a_run_removes_what_its_queries_have_read_and_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flatmq_tools.pipeline.run import Plan, Run

    monkeypatch.setattr(Merging.__init__, "__defaults__", (0.0, None, None))
    monkeypatch.setattr(merging, "_EXPIRE_EVERY", 0.0)
    out = tmp_path / "out"
    now = time.time_ns() // 1000
    then = now - 10 * 86_400 * 1_000_000
    old = f"day={datetime.datetime.fromtimestamp(then / 1e6, datetime.timezone.utc).date()}"

    def rows(name: str) -> int:
        count = 0
        for path in (out / name).glob("day=*/batch=*/*.parquet"):
            with contextlib.suppress(FileNotFoundError):  # its day is removed meanwhile
                count += pq.read_metadata(path).num_rows
        return count

    jobs = ["raw", "measurements"]
    lines: list[str] = []
    landed = land_boards(tmp_path, 5, then, "old")
    plan = Plan(out, landed=str(landed), jobs=jobs, trigger=0.3)
    running = Run(spark, plan, lines.append)
    wait_until(lambda: running.look() or rows("measurements") == 5)
    running.finish()
    running.stop()
    assert all((out / name / old).is_dir() for name in ("raw", "measurements"))
    newest = max(int(path.stem) for path in (out / "raw" / "_batches").glob("[0-9]*.json"))
    assert retention.unread(out / "checkpoints", "raw") == newest + 1

    # The first five of these are copies.
    land_boards(tmp_path, 8, now, "new")
    plan = Plan(out, landed=str(landed), jobs=jobs, trigger=0.3, keep=86_400.0)
    gone = [out / name / old for name in ("raw", "measurements")]
    running = Run(spark, plan, lines.append)
    for expected in (8, 11):
        wait_until(
            lambda expected=expected: (
                running.look()
                or (rows("raw") == expected and not any(path.exists() for path in gone))
            )
        )
        land_boards(tmp_path, 3, now, "newer")
    running.finish()
    running.stop()
    assert rows("measurements") == 3
    assert any(line.startswith("removed 1 day before ") for line in lines)
