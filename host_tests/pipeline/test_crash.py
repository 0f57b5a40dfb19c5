"""kill -9 of the pipeline's parts: nothing is missing, and nothing is there twice."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from flatmq_tools.pipeline import crash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _tables(out: Path, numbers: list[int], offsets: list[int]) -> None:
    packs = [b'[{"bn":"crash/","n":"seq","v":%d}]' % n for n in numbers]
    raw = pa.table({"payload": pa.array(packs, pa.binary()), "offset": offsets})
    for name, table in {"raw": raw, "measurements": pa.table({"seq": numbers})}.items():
        (out / name / "batch=0").mkdir(parents=True)
        pq.write_table(table, out / name / "batch=0" / "part.parquet")
        write_deltalake(out / "delta" / name, table)


@pytest.mark.parametrize(
    ("numbers", "offsets", "raw", "measurements", "again"),
    [
        ([1, 2, 3], [0, 1, 2], (0, 0), (0, 0), 0),
        ([1, 3], [0, 1], (1, 0), (1, 0), 0),
        ([1, 2, 2, 3], [0, 1, 1, 2], (0, 1), (0, 1), 0),
        ([1, 2, 2, 3], [0, 1, 2, 3], (0, 0), (0, 1), 1),
    ],
)
def test_the_count_finds_what_is_wrong(
    numbers: list[int],
    offsets: list[int],
    raw: tuple[int, int],
    measurements: tuple[int, int],
    again: int,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    _tables(tmp_path, numbers, offsets)
    counts, delivered_again = crash.counted(tmp_path, 3, spark)
    assert delivered_again == again
    for name, count in counts.items():
        wanted = raw if name.startswith("raw") else measurements
        assert (count.missing, count.twice) == wanted, name
    good = crash.Result(["jvm"], 3, 1, again, 1.0, counts).good
    assert good == (raw == measurements == (0, 0))


def test_the_report_says_what_was_found() -> None:
    counts = {f"raw: {reader}": crash.Count(0, 0) for reader in crash.READERS}
    counts["raw: Delta, Spark"] = crash.Count(7, 5)
    one = crash.Result(["jvm"] * 8, 50_000, 8, 20, 99.0, counts)
    assert not one.good
    text = crash.report([one], 50_000, 8)
    assert "| jvm | 50,000 | 8 | 0 · 0 | 0 · 0 | 0 · 0 | 7 · 5 | 20 | 99 |" in text
    assert "flatmq pipeline crash --messages 50000 --kills 8 --part jvm`" in text
