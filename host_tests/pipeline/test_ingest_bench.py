"""Does the comparison of the ingest measure what it says?"""

from __future__ import annotations

from pathlib import Path

import pytest

from flatmq_tools.pipeline import bench


def test_every_part_is_measured_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, list[bench.Figure]] = {}
    measure = bench.measure

    def kept(*options) -> dict[str, list[bench.Figure]]:
        found.update(measure(*options))
        return found

    monkeypatch.setattr(bench, "measure", kept)
    monkeypatch.setattr(bench, "GOAL", 1e9)
    path = tmp_path / "results.md"
    with pytest.raises(bench.BenchError, match="the goal is 1e\\+09 times"):
        bench.main(2000, 1, (), True, path)
    assert list(found) == list(bench.RECEIVERS)
    for (figure,) in found.values():
        assert figure.messages == 2000
        assert figure.cpu > 0
        assert figure.seconds > 0
    said = capsys.readouterr().out
    assert "times the rows per CPU second of paho-mqtt" in said
    written = path.read_text(encoding="utf-8")
    assert all(f"| {label} |" in written for label in bench.LABELS.values())


def test_the_ratio_is_that_of_the_same_round() -> None:
    def figures(*cpu: float) -> list[bench.Figure]:
        return [bench.Figure(1000, 1.0, c) for c in cpu]

    assert bench.times({"flatmq": figures(1, 2, 4), "paho": figures(3, 8, 20)}) == 4
