"""Iceberg tables have each batch once: after a crash at any point, and beside other writers."""

from __future__ import annotations

import datetime
import os
import threading
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from flatmq_tools.pipeline import iceberg
from flatmq_tools.pipeline.iceberg import Iceberg, local_catalog
from flatmq_tools.pipeline.sinks import SinkError, into
from pipeline.called import as_query
from pipeline.landed import land
from pipeline.messages import Message, reading
from pipeline.mqtt import until

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

pytest.importorskip("pyiceberg", reason="needs the extra iceberg")


class Rows:
    """The part of a DataFrame that a sink uses."""

    def __init__(self, **columns: Any) -> None:
        self._table = pa.table(columns)

    def toArrow(self) -> pa.Table:
        return self._table


def table(folder: Path, name: str = "fleet.t") -> Table:
    """The table as any reader of the catalog finds it."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("flatmq", **local_catalog(folder)).load_table(name)


def values(folder: Path) -> list[Any]:
    return sorted(table(folder).scan().to_arrow()["value"].to_pylist())


def test_a_batch_is_there_once_and_is_known_when_its_snapshots_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "_EXPIRE", 2)
    monkeypatch.setattr(iceberg, "_HISTORY", datetime.timedelta(0))
    for n in range(3):
        sink: Any = Iceberg("fleet.t", local_catalog(tmp_path))
        assert not sink.has("q", n, None)
        sink.write(Rows(value=[n, n + 10]), "q", n)
        assert sink.has("q", n, None) and not sink.has("other", n, None)
        sink.write(Rows(value=[n, n + 10]), "q", n)
        assert sink.rows == 2
    assert values(tmp_path) == [0, 1, 2, 10, 11, 12]
    found = table(tmp_path)
    assert len(found.snapshots()) < 3
    assert "commit.retry.num-retries" not in found.properties, "other writers keep theirs"
    sink.write(Rows(value=[7]), "other", 0)
    sink.write(Rows(value=[8]), "q", 2)
    assert values(tmp_path) == [0, 1, 2, 7, 10, 11, 12]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the catalog is the point from which the batch is there."""
    from pyiceberg.catalog.sql import SqlCatalog

    sink: Any = Iceberg("fleet.t", local_catalog(tmp_path))
    sink.write(Rows(value=[0]), "q", 0)
    commit = SqlCatalog.commit_table

    def killed(self: Any, *args: Any) -> Any:
        if when == "after":
            commit(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", killed)
        with pytest.raises(KeyboardInterrupt):
            sink.write(Rows(value=[1]), "q", 1)
    again: Any = Iceberg("fleet.t", local_catalog(tmp_path))
    assert again.has("q", 1, None) == (when == "after")
    assert values(tmp_path) == [0, 1][: 1 + (when == "after")]
    again.write(Rows(value=[1]), "q", 1)
    assert values(tmp_path) == [0, 1]


def test_two_drivers_of_one_query_and_one_of_another(tmp_path: Path) -> None:
    """Whoever comes second with a batch finds that it is there."""
    failures: list[BaseException] = []
    Iceberg("fleet.t", local_catalog(tmp_path)).write(Rows(value=[-1]), "first", 0)  # type: ignore[arg-type]
    start = threading.Barrier(3)

    def drive(query: str, base: int) -> None:
        try:
            sink: Any = Iceberg("fleet.t", local_catalog(tmp_path))
            for n in range(6):
                start.wait(60)
                sink.write(Rows(value=[base + n]), query, n)
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [
        threading.Thread(target=drive, args=args) for args in (("q", 0), ("q", 0), ("r", 100))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert values(tmp_path) == [-1, *range(6), *range(100, 106)]


def test_columns_are_added_where_that_is_asked_for(tmp_path: Path) -> None:
    sink: Any = Iceberg("fleet.t", local_catalog(tmp_path))
    more: Any = Iceberg("fleet.t", local_catalog(tmp_path), add_columns=True)
    sink.write(Rows(value=[1]), "q", 0)
    with pytest.raises(SinkError, match=r"fleet\.t does not take the columns of the batch"):
        sink.write(Rows(value=[2], unit=["Cel"]), "q", 1)
    assert values(tmp_path) == [1]
    more.write(Rows(value=[2], unit=["Cel"]), "q", 1)
    sink.write(Rows(value=[3]), "q", 2)
    found = table(tmp_path).scan().to_arrow().sort_by("value").to_pylist()
    assert found == [
        {"value": 1, "unit": None}, {"value": 2, "unit": "Cel"}, {"value": 3, "unit": None},
    ]  # fmt: skip


def test_the_tables_of_a_run_open_a_new_catalog_at_once(tmp_path: Path) -> None:
    """It makes tables in its database, each of them once."""
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        sinks: list[Any] = [Iceberg(f"fleet.t{n}", local_catalog(folder)) for n in range(8)]
        start = threading.Barrier(len(sinks))

        def has(sink: Any, start: threading.Barrier = start) -> bool:
            start.wait()
            return bool(sink.has("first", 0, None))

        with futures.ThreadPoolExecutor(len(sinks)) as pool:
            assert list(pool.map(has, sinks)) == [False] * len(sinks)


def test_files_are_synced_before_the_catalog_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    synced: set[str] = set()
    sync, commit = os.fsync, SqlCatalog.commit_table
    left: list[set[str]] = []

    def noted(file: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    def files() -> set[str]:
        found = (tmp_path / "fleet").rglob("*")
        return {str(path) for path in found if path.is_file()}

    def checked(self: Any, *args: Any) -> Any:
        left.append(files() - synced)
        return commit(self, *args)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(SqlCatalog, "commit_table", checked)
    sink: Any = Iceberg("fleet.t", local_catalog(tmp_path))
    sink.write(Rows(value=[1]), "q", 0)
    assert left == [set()]
    assert files() <= synced and any(name.endswith(".parquet") for name in synced)


# In Spark


def test_a_batch_of_spark_that_is_done_again_is_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    def batch(number: int) -> None:
        rows = spark.range(1).selectExpr(
            f"'{number}' AS value", "timestamp_seconds(86400) AS at",
            f"array(struct('{number}' AS name)) AS more",
        )  # fmt: skip
        sinks: list[Any] = [Iceberg("fleet.t", local_catalog(tmp_path))]
        into((lambda rows: rows, sinks))(rows, number)

    with as_query(spark):
        batch(0)
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            for number in (1, 1):
                batch(number)
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert values(tmp_path) == ["0", "1"]
    rows = table(tmp_path).scan().to_arrow().to_pylist()
    assert {row["at"].isoformat() for row in rows} == {"1970-01-02T00:00:00+00:00"}
    assert sorted(row["more"][0]["name"] for row in rows) == ["0", "1"]


def test_a_run_writes_iceberg_beside_parquet(spark: SparkSession, tmp_path: Path) -> None:
    from flatmq_tools.pipeline.run import Plan, Run

    landed, out = tmp_path / "landed", tmp_path / "out"
    sent = [reading("a", 1, n, n) for n in range(5)] + [Message("x", b"", 7.0)]
    land(landed, sent)
    plan = Plan(out, landed=str(landed), jobs=["raw"], trigger=0.3, iceberg="fleet")
    running = Run(spark, plan)
    try:
        # A batch counts when it is in Parquet; Spark commits it when it is in Iceberg too.
        until(lambda: running.look() or [*out.rglob("commits/0")])
    finally:
        running.stop()
    parquet = ds.dataset(out / "raw", format="parquet").to_table()
    found = table(out / "iceberg", "fleet.raw").scan().to_arrow()
    assert found.column_names == parquet.column_names
    assert sorted(found["payload"].to_pylist()) == sorted(message.payload for message in sent)
