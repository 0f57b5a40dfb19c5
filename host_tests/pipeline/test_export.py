"""`flatmq pipeline export`, and the examples of docs/tables.md that read the tables."""

from __future__ import annotations

import datetime
import math
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake

from flatmq_tools.pipeline.delta import Delta
from pipeline.landed import land, read
from pipeline.messages import reading
from pipeline.typed_here import typed

DOCS = Path(__file__).parents[2] / "docs" / "tables.md"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A table that grows, with two days, and one that is written again."""
    land(tmp_path / "out", [reading("a", 1, n, n * 40_000.0) for n in range(3)])
    rows = {"device": ["a", "b"], "silent": [False, True]}
    write_deltalake(tmp_path / "out" / "devices", pa.table(rows))
    return tmp_path / "out"


def _export(*arguments: object) -> tuple[int, str]:
    done = typed(["export", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_plain_parquet(out: Path, tmp_path: Path) -> None:
    target = tmp_path / "plain"
    assert _export(out, target)[0] == 0
    rows = ds.dataset(target / "raw", format="parquet", partitioning="hive").to_table()
    assert sorted(rows["payload"].to_pylist()) == sorted(r["payload"] for r in read(out / "raw"))
    assert {path.name for path in (target / "raw").iterdir()} == {
        "day=2026-03-01", "day=2026-03-02",
    }  # fmt: skip
    assert ds.dataset(target / "devices", format="parquet").count_rows() == 2
    # What is there is not mixed with it.
    status, text = _export(out, target, "--table", "devices")
    assert status == 1 and "exists: name another TARGET" in text
    status, text = _export(out, target, "--table", "windows")
    assert status == 1 and "has none of the tables windows" in text
    (out / "raw" / "_delta_log" / f"{0:020}.json").write_text("torn")
    for words in (["export", out, target / "2"], ["forget", "a", out],
                  ["report", target, "--from-raw", "--tables", out]):  # fmt: skip
        done = typed(words)
        assert done.exit_code == 1 and f"Error: {out}/raw is damaged: " in done.output


def test_readers_that_skip_files_find_every_row(tmp_path: Path) -> None:
    """With texts of any length, values without an order, and columns without a value."""
    now = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc)
    columns = {
        "topic": ["a", "é", "t" * 40, "t" * 5000, "", None],
        "flag": [True, False, None, None, True, False],
        "value": [1.5, math.inf, math.nan, -math.inf, 1e308, None],
        "number": [1, -1, 1 << 62, None, 0, 7],
        "at": [now + datetime.timedelta(microseconds=n) for n in range(6)],
        "nothing": pa.nulls(6, pa.string()),
    }
    rows = pa.table(columns)
    for name, commits in (("one", [rows]), ("each", [rows.slice(n, 1) for n in range(6)])):
        table = Delta(tmp_path / name)
        for number, part in enumerate(commits):
            table.add([part], rows.schema, "test", number)
        read = DeltaTable(tmp_path / name).to_pyarrow_dataset()
        for column in ("topic", "flag", "value", "number", "at"):
            for n, value in enumerate(rows[column].to_pylist()):
                if value is None or (column == "value" and not math.isfinite(value)):
                    continue
                found = read.to_table(filter=ds.field(column) == value)
                assert rows.slice(n, 1)["at"][0] in found["at"], (name, column, value)


@pytest.mark.parametrize("library", ["duckdb", "polars", "pandas"])
def test_an_example_reads_a_table(library: str, out: Path) -> None:
    pytest.importorskip(library)
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    [code] = [block for block in blocks if re.search(rf"\b{library}\b", block)]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=out.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "b" in done.stdout.split()
