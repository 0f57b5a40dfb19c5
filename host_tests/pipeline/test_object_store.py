"""A run into an S3: each message is there once, and nothing on this machine.

The driver is killed meanwhile in test_crash.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flatmq_rigs.pipeline.bench.messages import payload
from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools.pipeline.run import Plan
from pipeline.landed import count, land_boards
from pipeline.mqtt import until
from pipeline.started import started
from pipeline.typed_here import shared

OUT = f"s3://{BUCKET}/fleet-1"
COUNT = 400  # messages


def _column(table: str, *names: str) -> list[tuple[object, ...]]:
    found = DeltaTable(f"{OUT}/{table}").to_pyarrow_table(columns=[*names])
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def test_each_message_is_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, jobs = tmp_path / "state", ("measurements", "health")
    with store() as environment, shared(spark, monkeypatch, environment):
        land_boards(OUT, COUNT, tmp_path / "log")
        with started(spark, Plan(state, url=OUT, jobs=jobs, trigger=0)) as running:
            until(lambda: running.look() or count(f"{OUT}/measurements") == COUNT)
            running.finish()
        assert Counter(_column("raw", "payload")) == Counter((payload(i),) for i in range(COUNT))
        assert {*Counter(_column("measurements", "device", "seq")).values()} == {1}
        assert count(f"{OUT}/health") == count(f"{OUT}/devices") == 200
        # By day of arrival; and nothing of the tables is on this machine.
        assert DeltaTable(f"{OUT}/raw").metadata().partition_columns == ["day"]
        assert not (state / "raw").exists()
