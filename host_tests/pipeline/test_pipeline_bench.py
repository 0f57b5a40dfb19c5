"""Test that the measurements of the pipeline say what they measure."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

import sizes
from flatmq_rigs.__main__ import main as cli
from flatmq_rigs.pipeline.bench import chains, command, receivers
from flatmq_rigs.pipeline.bench.figures import BenchError, Figure

COUNT = 2000


def test_every_part_of_the_ingest_is_measured() -> None:
    parts = sizes.sample(receivers.RECEIVERS, 3)
    found = command.measure(COUNT, 1, parts)
    assert list(found) == parts
    for (figure,) in found.values():
        assert figure.messages == COUNT
        assert figure.cpu["receiver"] > 0
        assert figure.seconds > 0


@pytest.mark.proof
def test_pipelines_are_measured_with_their_parts() -> None:
    """Both sources, the files, the jobs and the log are measured.

    Each has all messages in its table, and the parts that work in it have CPU time. What the
    other parts have is next to nothing: processes that the chain before has left end late.
    """
    found = command.measure_chains(COUNT, 1)
    works = {
        "source": {"receiver", "JVM", "workers"},
        "source-paho": {"receiver", "JVM", "workers"},
        "files": {"receiver", "JVM"},
        "jobs": {"receiver", "JVM", "workers"},
        "log": {"JVM"},
    }
    barely = {"broker": works.keys() - {"log"}, "workers": {"log"}}  # may take less than a tick
    assert list(found) == list(works)
    for name, (chain,) in found.items():
        assert chain.messages == COUNT
        used = {part: cpu for part, cpu in chain.cpu.items() if part != "driver"}
        assert all(used.pop(part) > 0 for part in works[name]), (name, chain)
        idle = [cpu for part, cpu in used.items() if name not in barely.get(part, ())]
        assert sum(idle) < 0.05 * sum(chain.cpu.values()), (name, chain)


@pytest.mark.proof
def test_what_fails_in_a_pipeline_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DIR", str(tmp_path / "missing"))
    with pytest.raises(BenchError, match=r"log: [\s\S]*missing/flatmq-bench-"):
        command.measure_chains(COUNT, 1, ["log"])


def _figures(*cpu: float) -> list[Figure]:
    return [Figure(1000, 1.0, {"receiver": each}) for each in cpu]


def _chains(*seconds: float) -> list[Figure]:
    return [Figure(100_000, s, {"JVM": 2 * s, "receiver": s}) for s in seconds]


def test_the_ratio_is_that_of_the_same_round() -> None:
    assert command.times({"flatmq": _figures(1, 2, 4), "paho": _figures(3, 8, 20)}) == 4


@pytest.mark.parametrize(
    ("cpu", "seconds", "missed"),
    [
        ({"memory": 1, "memory-5": 1.1}, None, False),
        ({"memory": 1, "memory-5": 1.3}, None, True),
        ({"flatmq": 1, "paho": 4}, 1.9, False),
        ({"flatmq": 1, "paho": 1.9}, 1.9, True),
        ({"flatmq": 1, "paho": 4}, 2.1, True),
    ],
)
def test_a_missed_goal_is_an_error_where_it_is_asked_for(
    cpu: dict[str, float],
    seconds: float | None,
    missed: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {name: _figures(each) for name, each in cpu.items()}
    ends = {} if seconds is None else {"source": _chains(seconds)}
    monkeypatch.setattr(command, "measure", lambda *_: found)
    monkeypatch.setattr(command, "measure_chains", lambda *_: ends)
    path = tmp_path / "results.md"
    with pytest.raises(BenchError, match="a goal is missed") if missed else nullcontext():
        assert command.main(1000, 1, (), True, path) == 0
    assert command.main(1000, 1, (), False, None) == 0
    said = " ".join(capsys.readouterr().out.split())
    written = path.read_text(encoding="utf-8")
    if "memory-5" in cpu:
        share = 1 / cpu["memory-5"]
        assert f"In MQTT 5 the ingest takes {share:.2f} times the rows per CPU second" in said
    else:
        told = f"flatmq takes {cpu['paho']:.1f} times the rows per CPU second of paho-mqtt"
        assert told in said
        assert "| flatmq |" in written
    if seconds is not None:
        assert f"{100_000 / seconds:,.0f} rows/s" in said
        assert f"| source | {100_000 / seconds:,.0f} | {seconds * 30:.2f} |" in written
        assert f"- source: {chains.LABELS['source']}" in written


def test_a_part_that_there_is_not_is_named() -> None:
    result = CliRunner().invoke(cli, ["pipeline-bench", "--only", "broker"])
    assert result.exit_code == 2
    assert "must be one of flatmq, flatmq-5, properties, paho" in result.output
