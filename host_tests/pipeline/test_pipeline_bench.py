"""The measurements of the pipeline measure all of it, and say when a goal is missed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

import sizes
from flatmq_rigs import results
from flatmq_rigs.pipeline.bench import command, receivers
from flatmq_rigs.pipeline.bench.figures import BenchError, Figure

COUNT = 2000


def test_every_part_of_the_ingest_is_measured() -> None:
    parts = sizes.sample(receivers.RECEIVERS, 2)
    found = command.measure(COUNT, 1, parts)
    assert list(found) == parts
    for (figure,) in found.values():
        assert figure.messages == COUNT
        assert figure.cpu["receiver"] > 0
        assert figure.seconds > 0


@pytest.mark.proof
def test_pipelines_are_measured_with_their_parts() -> None:
    """Each has all messages in its table, and the parts that work in it have CPU time."""
    found = command.measure_chains(COUNT, 1)
    works = {
        "source": {"receiver", "JVM", "workers"},
        "source-paho": {"receiver", "JVM", "workers"},
        "ingest": {"receiver"},
        "jobs": {"driver", "JVM", "workers"},
        "log": {"JVM"},
    }
    assert list(found) == list(works)
    for name, (chain,) in found.items():
        assert chain.messages == COUNT
        assert all(chain.cpu[part] > 0 for part in works[name]), (name, chain)


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
    cpu: dict[str, float], seconds: float | None, missed: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found = {name: [Figure(1000, 1.0, {"receiver": each})] for name, each in cpu.items()}
    ends = {} if seconds is None else {"source": [Figure(100_000, seconds, {"JVM": 3 * seconds})]}
    monkeypatch.setattr(command, "measure", lambda *_: found)
    monkeypatch.setattr(command, "measure_chains", lambda *_: ends)
    path = tmp_path / "results.md"
    with pytest.raises(BenchError, match="a goal is missed") if missed else nullcontext():
        assert command.main(1000, 1, (), True, path) == 0
    assert command.main(1000, 1, (), False, None) == 0
    written = path.read_text(encoding="utf-8")
    if seconds is None:
        share = 1 / cpu["memory-5"]
        assert f"In MQTT 5 the ingest takes {share:.2f} times the rows per CPU second" in written
    else:
        ratio = f"flatmq takes {cpu['paho']:.1f} times the rows per CPU second of paho-mqtt"
        assert ratio in written
        (table, *_) = results.tables(path, command.NAME)
        assert ["source", f"{100_000 / seconds:,.0f}", f"{seconds * 30:.2f}"] in [
            line[:3] for line in results.rows(table)
        ]
