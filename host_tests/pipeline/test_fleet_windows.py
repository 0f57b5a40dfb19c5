"""Windows of Delta tables come out as docs/pipeline.md says, each once, in any batches."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from flatmq_tools.pipeline.fleet import windows
from flatmq_tools.pipeline.fleet.job import Job
from flatmq_tools.pipeline.fleet.table import Table
from flatmq_tools.pipeline.fleet.versions import Versions
from flatmq_tools.pipeline.open_windows import State, step
from pipeline.test_fleet import Killed
from pipeline.test_windows import SIZES, Row, keyed, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stream:
    """A table of measurements, and the job that makes windows of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.too_late = 0

    def land(self, rows: Sequence[Row]) -> None:
        write_deltalake(self.folder / "measurements", table(rows), mode="append")

    def job(self, make: type[Table] = Table) -> Job:
        state = make(self.spark, self.folder / "state", windows.STATE, windows.BY)
        out = make(self.spark, self.folder / "windows", windows.WINDOWS, {"day": "date"})

        def too_late(count: int, device: str) -> None:
            assert device
            self.too_late += count

        work = windows.Windows(state, too_late=too_late)
        source = Versions(self.folder / "measurements")
        return Job("windows", source, windows.READ, {windows.OUTPUT: out}, state, work)

    def run(self) -> None:
        for _ in self.job().steps():
            pass

    def out(self) -> dict[tuple[str, float], dict[str, Any]]:
        found = DeltaTable(self.folder / "windows").to_pyarrow_table().drop(["day"])
        windows = keyed(found)
        assert len(windows) == len(found)  # none twice
        return windows


def measured(drawn: random.Random) -> list[Row]:
    """Some boards are late, one is ahead, one falls silent, and the receiver was away."""
    rows: list[Row] = []
    for number in range(5):
        at, ahead = drawn.uniform(0, 60), 3000 if number == 1 else 0
        while at < 9000:
            at += drawn.choice([5, 20, 200])
            if (number == 2 and at > 2500) or 4000 < at < 4900:
                continue
            late = drawn.choice([0, 0, 0, 30, 900, 1500])
            rows.append((f"d{number}", at + ahead - late, at, drawn.randint(-99, 99) / 4))
    return sorted(rows, key=lambda row: row[2])


def test_windows_of_any_batches_and_a_kill(spark: SparkSession, tmp_path: Path) -> None:
    drawn = random.Random(7)
    rows = measured(drawn)
    cuts = [0, *sorted(drawn.sample(range(1, len(rows)), 3)), len(rows)]
    stream, state, too_late, wanted = Stream(spark, tmp_path), State(*SIZES), 0, {}
    for n, (a, b) in enumerate(itertools.pairwise(cuts)):
        stream.land(rows[a:b])
        done = step(state, table(rows[a:b]))
        state, too_late = done.state, too_late + done.too_late
        wanted |= keyed(done.windows)
        if n == 1:  # the windows are committed, and the state is not

            class Mortal(Table):
                """It dies before it commits the state."""

                def commit(self, *args: Any, **more: Any) -> int:
                    if more.get("always"):
                        raise Killed
                    return super().commit(*args, **more)

            with pytest.raises(Killed):
                stream.job(Mortal).step()
        stream.run()
    found = stream.out()
    assert found.keys() == wanted.keys() and len(wanted) > 100
    for key, row in wanted.items():
        assert found[key] == row | {"mean": pytest.approx(row["mean"])}
    assert stream.too_late == too_late > 0
