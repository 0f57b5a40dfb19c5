"""The rig that loads a run as a busy fleet does finds every message, and finds what is missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from flatmq_rigs.__main__ import main
from flatmq_rigs.pipeline import live

ARGUMENTS = ("live", "--rate", "400", "--steady", "2", "--topics", "300", "--retained", "200")


def test_every_message_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = live.count
    lost: list[live.Figures] = []

    def count(raw: Path, found: list[live.Figures], size: int) -> None:
        counted(raw, found, size)
        assert [(one.missing, one.twice) for one in found] == [(0, 0)] * 4
        assert [one.messages for one in found] == [200, 300, 1, 800]
        assert all(0 <= one.at_end <= one.largest <= one.messages for one in found)
        for file in raw.glob("day=*/batch=*/*.parquet"):
            if "dev/r0/telemetry" in pq.read_table(file, columns=["topic"])["topic"].to_pylist():
                file.unlink()
        lost.extend(live.Figures(one.name, one.messages, 0, 0, 0, 0) for one in found)
        counted(raw, lost, 0)

    monkeypatch.setattr(live, "count", count)
    results = tmp_path / "results.md"
    done = CliRunner().invoke(main, [*ARGUMENTS, "--size", "100000", "--results", str(results)])
    assert done.exit_code == 0, done.output
    assert "| message of 100,000 bytes | 1 | 0 | 0 |" in results.read_text()
    assert lost[0].missing > 0
