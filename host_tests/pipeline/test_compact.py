"""Delta tables of many small files become such of few, and nobody notices."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools.pipeline import cli, compact

QUERY = "a-query"


def _append(table: Path | str, batch: int) -> None:
    """As the sink does it."""
    write_deltalake(
        table,
        pa.table({"n": [2 * batch, 2 * batch + 1]}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(QUERY, batch)]),
    )


def _numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["n"].to_pylist())


def test_each_row_is_there_once_before_and_after(tmp_path: Path) -> None:
    table = tmp_path / "delta" / "raw"
    for batch in range(12):
        _append(table, batch)
    begun = DeltaTable(str(table))
    (found,) = compact.compact(tmp_path / "delta")
    assert found == ("raw", 12, 1, 0)
    assert _numbers(table) == list(range(24))
    # Whoever began before goes on with the old files.
    assert begun.to_pyarrow_table().num_rows == 24
    # The sink knows still which batches are there.
    now = DeltaTable(str(table))
    assert now.transaction_version(QUERY) == 11
    assert [Path(file).suffix for file in now.file_uris()] == [".parquet"]


def test_what_nobody_reads_any_more_goes(tmp_path: Path) -> None:
    for batch in range(5):
        _append(tmp_path / "raw", batch)
    (found,) = compact.compact(tmp_path, keep=0)
    assert found == ("raw", 5, 1, 5)
    assert len(list((tmp_path / "raw").glob("*.parquet"))) == 1
    assert _numbers(tmp_path / "raw") == list(range(10))


def test_files_of_a_batch_that_was_not_committed_go_and_new_ones_stay(tmp_path: Path) -> None:
    _append(tmp_path / "raw", 0)
    old, new = (tmp_path / "raw" / name for name in ("old.parquet", "new.parquet"))
    for file in (old, new):
        file.write_bytes(b"of a run that was killed")
    os.utime(old, (0, 0))
    (found,) = compact.compact(tmp_path, keep=1)
    assert found.removed == 1
    assert not old.exists() and new.exists()


def test_tables_of_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    with store() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        out = f"s3://{BUCKET}/out"
        for name in ("raw", "windows"):
            for batch in range(3):
                _append(f"{out}/{name}", batch)
        found = list(compact.compact(out))
        assert found == [("raw", 3, 1, 0), ("windows", 3, 1, 0)]
        table = DeltaTable(f"{out}/raw").to_pyarrow_table()
        assert sorted(table["n"].to_pylist()) == list(range(6))


def test_a_run_goes_on_meanwhile(tmp_path: Path) -> None:
    table = tmp_path / "raw"
    _append(table, 0)
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for batch in range(1, 40):
                _append(table, batch)
        except BaseException as error:
            failed.append(error)

    run = threading.Thread(target=write)
    run.start()
    while run.is_alive():
        list(compact.compact(tmp_path))
    run.join()
    assert not failed
    assert _numbers(table) == list(range(80))
    list(compact.compact(tmp_path))
    assert len(DeltaTable(str(table)).file_uris()) == 1


def test_the_command_says_what_became_of_each_table(tmp_path: Path) -> None:
    for name in ("raw", "windows"):
        for batch in range(3):
            _append(tmp_path / name, batch)
    result = CliRunner().invoke(cli.pipeline, ["compact", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    for name in ("raw", "windows"):
        assert ["│", name, "│", "3", "│", "1", "│", "0", "│"] in lines


def test_a_broken_table_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in ("measurements", "raw", "windows"):
        for batch in range(3):
            _append(tmp_path / name, batch)
    (tmp_path / "raw" / "_delta_log" / f"{1:020}.json").write_text("no JSON")
    result = CliRunner().invoke(cli.pipeline, ["compact", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path / 'raw'}: " in result.output
    for name in ("measurements", "windows"):
        assert len(DeltaTable(str(tmp_path / name)).file_uris()) == 1
        assert any(line.split()[1:2] == [name] for line in result.output.splitlines())


def test_where_no_table_is_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(compact.CompactError, match="has no Delta table"):
        list(compact.compact(tmp_path))
