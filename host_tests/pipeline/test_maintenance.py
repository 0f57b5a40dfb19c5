"""The tables of a run: few files, no old days, and nothing that is still to be read is removed."""

import datetime
import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flatmq_rigs.pipeline.bench.messages import payload
from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools.pipeline import delta, maintenance
from flatmq_tools.pipeline.delta_batches import Reader
from flatmq_tools.pipeline.maintenance import Maintenance
from flatmq_tools.pipeline.run import Plan
from pipeline.messages import count, land_boards, values_of
from pipeline.mqtt import until
from pipeline.runs import shared, started

NOW = datetime.datetime.now(datetime.timezone.utc)
OLD = NOW - datetime.timedelta(days=10)
QUERY = "a-query"


def _add(out: Path | str, number: int, at: datetime.datetime = NOW, name: str = "raw") -> None:
    """Add two rows, as the sink of a run does."""
    rows = pa.table(
        {"n": [2 * number, 2 * number + 1], "timestamp": pa.array([at] * 2, pa.timestamp("us"))}
    )
    rows = rows.cast(pa.schema([("n", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))]))
    delta.Delta(f"{out}/{name}", by_day="timestamp").add([rows], rows.schema, QUERY, number)


def _numbers(out: Path | str, name: str = "raw") -> list[int]:
    return sorted(DeltaTable(f"{out}/{name}").to_pyarrow_table()["n"].to_pylist())


def _age(table: Path, seconds: int = 2 * 86_400) -> None:
    """Let time pass for the files of a table, and for what its log says of them."""
    then = time.time() - seconds
    for path in table.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def _work(out: Path | str, **more: Any) -> list[str]:
    """Maintain the tables once, and return what is said."""
    lines: list[str] = []
    notes = more.pop("notes", None) or Path(out) / "checkpoints"
    at_work = Maintenance(str(out), notes, lines.append, more.pop("keep", None))
    at_work.work(**more)
    at_work.close()
    return lines


def _checkpoint(out: Path, query: str, offset: dict[str, Any], done: int = 3) -> None:
    """The checkpoint of a query that has read up to an offset."""
    folder = out / "checkpoints" / query
    for name, text in (("commits", "v1\n{}"), ("offsets", f"v1\n{{}}\n{json.dumps(offset)}")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / str(done)).write_text(text)


def _reader(out: Path) -> Reader:
    return Reader(f"{out}/raw", 1000)


def _read(out: Path, start: dict[str, Any]) -> list[int]:
    """Return what a query reads that goes on there."""
    reader = _reader(out)
    parts = reader.partitions(start, reader.latestOffset(start))
    return values_of(reader, parts, "n")


def test_each_row_is_there_once_before_and_after(tmp_path: Path) -> None:
    """Also if two maintain the table at once."""
    for number in range(12):
        _add(tmp_path, number)
    begun = DeltaTable(f"{tmp_path}/raw")
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(_work, [tmp_path] * 2)] == [[], []]
    now = DeltaTable(f"{tmp_path}/raw")
    assert _numbers(tmp_path) == list(range(24)) and len(now.file_uris()) == 1
    # Whoever began before goes on with the old files, and the sink knows which batches are there.
    assert begun.to_pyarrow_table().num_rows == 24
    assert now.transaction_version(QUERY) == 11


def test_what_replaces_something_is_on_the_disk_before_that_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake syncs nothing: after a power cut, a table without its log would be lost."""
    for number in range(3):
        _add(tmp_path, number)
    steps: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: steps.append("sync"))
    for name in ("vacuum", "create_checkpoint", "cleanup_metadata"):
        method = getattr(DeltaTable, name)

        def noted(*args: Any, name: str = name, method: Any = method, **more: Any) -> Any:
            steps.append(name)
            return method(*args, **more)

        monkeypatch.setattr(DeltaTable, name, noted)
    _work(tmp_path)
    assert steps == ["sync", "vacuum", "create_checkpoint", "sync", "cleanup_metadata"]


def test_a_run_goes_on_meanwhile(tmp_path: Path) -> None:
    _add(tmp_path, 0)

    def write() -> None:
        for number in range(1, 30):
            _add(tmp_path, number)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            maintenance.merge(f"{tmp_path}/raw")
        writing.result()
    assert _numbers(tmp_path) == list(range(60))


def test_what_a_query_has_still_to_read_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged or too old, it is read as it was; and it goes once it was read."""
    monkeypatch.setattr(delta, "GRACE", 0)
    monkeypatch.setattr(delta, "LOG_GRACE", 0)
    for number in range(3):
        _add(tmp_path, number, OLD)
    place = _reader(tmp_path).latestOffset()
    for number in range(3, 6):
        _add(tmp_path, number, OLD)
    _add(tmp_path, 6)
    _checkpoint(tmp_path, "measurements", place)
    (line,) = _work(tmp_path, keep=86_400.0)
    assert line.startswith("removed 1 day before ") and line.endswith("from raw (--keep 1d)")
    assert _numbers(tmp_path) == [12, 13]
    _add(tmp_path, 7)
    _work(tmp_path, keep=86_400.0)
    assert _read(tmp_path, place) == list(range(6, 16))
    # The rows before it, too: a state that is lost is made again of them.
    before = [*_reader(tmp_path).before(place)]
    assert len(before) == 3
    # One that has begun and finished nothing may need any file.
    (tmp_path / "checkpoints" / "health").mkdir()
    _checkpoint(tmp_path, "measurements", _reader(tmp_path).latestOffset(place))
    _work(tmp_path)
    assert _read(tmp_path, place) == list(range(6, 16))
    (tmp_path / "checkpoints" / "health").rmdir()
    (tmp_path / "raw" / "killed.parquet").write_bytes(b"of a batch that was not committed")
    _work(tmp_path)
    assert len([*(tmp_path / "raw").rglob("day=*/*.parquet")]) == 1
    assert not (tmp_path / "raw" / "killed.parquet").exists()


def test_old_entries_of_the_log_go_once_they_were_read(tmp_path: Path) -> None:
    for number in range(3):
        _add(tmp_path, number)
    place = _reader(tmp_path).latestOffset()
    _add(tmp_path, 3)
    DeltaTable(tmp_path / "raw").create_checkpoint()
    for is_read in (False, True):
        _age(tmp_path / "raw")
        offset = _reader(tmp_path).latestOffset(place) if is_read else place
        _checkpoint(tmp_path, "measurements", offset)
        _work(tmp_path)
        assert (tmp_path / "raw" / "_delta_log" / f"{2:020}.json").exists() is not is_read
    assert _numbers(tmp_path) == list(range(8))
    _add(tmp_path, 4)
    assert _read(tmp_path, offset) == [8, 9]


def test_tables_of_an_object_store(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run writes each message once, and nothing on this machine."""
    state, out, messages = tmp_path / "state", f"s3://{BUCKET}/fleet-1", 400

    def column(table: str, *names: str) -> Counter[tuple[object, ...]]:
        found = DeltaTable(f"{out}/{table}").to_pyarrow_table(columns=[*names])
        return Counter(zip(*(found[name].to_pylist() for name in names), strict=True))

    with store() as environment, shared(spark, monkeypatch, environment):
        land_boards(out, messages, tmp_path / "log")
        plan = Plan(state, url=out, jobs=("measurements", "health"), trigger=0)
        with started(spark, plan) as running:
            until(lambda: running.look() or count(f"{out}/measurements") == messages)
            running.finish()
        assert column("raw", "payload") == Counter((payload(i),) for i in range(messages))
        assert {*column("measurements", "device", "seq").values()} == {1}
        assert count(f"{out}/health") == count(f"{out}/devices") == 200
        assert DeltaTable(f"{out}/raw").metadata().partition_columns == ["day"]
        assert not (state / "raw").exists()

        out = f"s3://{BUCKET}/out"
        for number, at in enumerate((OLD, NOW, NOW)):
            _add(out, number, at)
        (line,) = _work(out, keep=86_400.0, notes=tmp_path / "notes")
        assert line.startswith("removed 1 day before ")
        assert _numbers(out) == [2, 3, 4, 5]
        assert len(DeltaTable(f"{out}/raw").file_uris()) == 1


def test_a_full_disk_loses_old_days_and_nothing_is_merged(tmp_path: Path) -> None:
    for number, at in enumerate((OLD, NOW, NOW)):
        _add(tmp_path, number, at)
    (line,) = _work(tmp_path, is_full=True, keep=86_400.0)
    assert line.startswith("removed 1 day before ")
    assert len(DeltaTable(f"{tmp_path}/raw").file_uris()) == 2


def test_a_clock_that_jumps_ahead_takes_no_days(tmp_path: Path) -> None:
    """Also if something came since. They go once that is older than --keep, too."""
    past = NOW - datetime.timedelta(days=1000)
    _add(tmp_path, 0, past - datetime.timedelta(days=1))
    for number, at in enumerate((past, NOW), 1):
        _add(tmp_path, number, at)
        (line,) = _work(tmp_path, keep=86_400.0)
        assert line.startswith(f"after {past.date()} nothing came for longer than --keep 1d: ")
        assert _numbers(tmp_path) == list(range(2 * number + 2))
    _add(tmp_path, 3, NOW - datetime.timedelta(days=5))
    (line,) = _work(tmp_path, keep=86_400.0)
    assert line.startswith("removed 3 days before ")
    assert _numbers(tmp_path) == [4, 5]


@pytest.mark.parametrize(
    "broken", [f"raw/_delta_log/{1:020}.json", "checkpoints/health/offsets/3"]
)
def test_a_broken_table_does_not_stop_the_others(broken: str, tmp_path: Path) -> None:
    for name in ("measurements", "raw"):
        for number in range(3):
            _add(tmp_path, number, name=name)
    _checkpoint(tmp_path, "health", _reader(tmp_path).latestOffset())
    (tmp_path / broken).write_text("no JSON")
    (line,) = _work(tmp_path)
    assert line.startswith(f"{tmp_path}/raw cannot be maintained: ") and "\n" not in line
    assert len(DeltaTable(f"{tmp_path}/measurements").file_uris()) == 1


def test_a_run_removes_old_days_and_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "FIRST", 0.0)
    monkeypatch.setattr(maintenance, "EVERY", 0.0)
    out, now = tmp_path / "out", time.time_ns() // 1000
    land_boards(out, 5, tmp_path / "old", now - 10 * 86_400 * 1_000_000)
    lines: list[str] = []
    plan = Plan(out, jobs=["measurements"], trigger=0.3, keep=86_400.0)
    with started(spark, plan, say=lines.append) as running:
        until(lambda: running.look() or running.rows == 5)
        # All but three of these are copies, also of what is no longer there.
        for messages in (8, 3):
            land_boards(out, messages, tmp_path / "new", now)
        until(lambda: running.look() or running.rows == 16)
        until(lambda: running.look() or count(out / "measurements") == 3)
        running.finish()
    assert count(out / "raw") == 11
    assert any(line.startswith("removed 1 day before ") for line in lines)


def test_a_table_that_is_replaced_has_a_short_log(tmp_path: Path) -> None:
    """So to replace it takes as long after a thousand times."""
    log = tmp_path / "devices" / "_delta_log"
    for _ in range(25):
        delta.Delta(log.parent).replace(pa.table({"n": [1]}))
    last = json.loads((log / "_last_checkpoint").read_text())
    assert DeltaTable(log.parent).version() - last["version"] < 10
    _age(log.parent, 7200)
    assert _work(tmp_path) == []
    assert len([*log.iterdir()]) < 5
