"""The measurements of the pipeline measure all of it, and say when a goal is missed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from flatmq_rigs import results
from flatmq_rigs.pipeline.bench import chains, command
from flatmq_rigs.pipeline.bench.figures import BenchError, Figure

COUNT = 2000
WORKS = {
    "source": {"receiver", "JVM", "workers"},
    "source-paho": {"receiver", "JVM", "workers"},
    "ingest": {"receiver"},
    "jobs": {"driver", "JVM", "workers"},
    "log": {"JVM"},
    "memory": {"receiver"},
    "memory-5": {"receiver"},
}


@pytest.mark.parametrize(
    "names", [["memory", "memory-5"], pytest.param([*WORKS], marks=pytest.mark.proof)], ids=len
)
def test_pipelines_are_measured_with_their_parts(names: list[str]) -> None:
    """Each takes all messages, and the parts that work in it have CPU time."""
    assert list(chains.CHAINS) == list(WORKS)
    found = command.measure(COUNT, 1, names)
    assert list(found) == names
    for name, (chain,) in found.items():
        assert chain.messages == COUNT and chain.seconds > 0
        assert all(chain.cpu[part] > 0 for part in WORKS[name]), (name, chain)


@pytest.mark.parametrize(
    ("cpu", "seconds", "missed"),
    [
        ({"memory": 1, "memory-5": 1.1}, 1, False),
        ({"memory": 1, "memory-5": 1.3}, 1, True),
        ({"source": 1, "source-paho": 4}, 1.9, False),
        ({"source": 1, "source-paho": 1.9}, 1.9, True),
        ({"source": 1, "source-paho": 4}, 2.1, True),
    ],
)
def test_a_missed_goal_is_an_error_where_it_is_asked_for(
    cpu: dict[str, float], seconds: float, missed: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found = {name: [Figure(100_000, seconds, {"receiver": each})] for name, each in cpu.items()}
    monkeypatch.setattr(command, "measure", lambda *_: found)
    path = tmp_path / "results.md"
    with pytest.raises(BenchError, match="a goal is missed") if missed else nullcontext():
        assert command.main(1000, 1, (), True, path) == 0
    assert command.main(1000, 1, (), False, None) == 0
    written = path.read_text(encoding="utf-8")
    if "memory" in cpu:
        share = 1 / cpu["memory-5"]
        assert f"In MQTT 5 the ingest takes {share:.2f} times the rows per CPU second" in written
    else:
        ratio = f"flatmq takes {cpu['source-paho']:.1f} times the rows per CPU second of paho-mqtt"
        assert ratio in written
        (table, *_) = results.tables(path, command.NAME)
        assert ["source", f"{100_000 / seconds:,.0f}", "10.00"] in [
            line[:3] for line in results.rows(table)
        ]
