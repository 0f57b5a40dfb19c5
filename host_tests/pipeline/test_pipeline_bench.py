"""The measurements of the pipeline measure all of it."""

from __future__ import annotations

import pytest

from flatmq_rigs.pipeline.bench import chains, command
from flatmq_rigs.pipeline.bench.figures import Figure

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


def test_the_section_says_what_was_measured() -> None:
    cpu = {"memory": 1, "memory-5": 1.25, "source": 1, "source-paho": 4}
    found = {name: [Figure(100_000, 2, {"receiver": each})] for name, each in cpu.items()}
    text = command.section(found, 100_000, 1)
    assert "In MQTT 5 the ingest takes 0.80 times the rows per CPU second" in text
    assert "flatmq takes 4.0 times the rows per CPU second of paho-mqtt" in text
    assert "| source | 50,000 | 10.00 |" in text
