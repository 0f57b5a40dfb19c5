"""The bench measures every client over every link, and its report says what was measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatmq_rigs import bench, webassembly
from flatmq_rigs.bench import masked, peers, versions, work
from flatmq_rigs.bench.clients import CLIENTS, Client
from flatmq_rigs.bench.figures import CPU, HELD, OPERATIONS, RATE, Job, Results
from flatmq_rigs.bench.report import Report
from flatmq_rigs.bench.runner import Runner
from flatmq_rigs.bench.source import Source
from flatmq_rigs.bench.targets import FLATMQ, TARGETS
from flatmq_rigs.bench.versions import EXTRAS, LIMIT, NEW, OLD, Versions
from flatmq_rigs.bench.work import BITS, FLOOR, MIXES, UMQTT, Work
from flatmq_tools import broker

MEASURED = ("flatmq", "umqtt.simple")
MILLISECONDS = 1  # of CPU: the figures do not matter here
ALL = (*work.OPERATIONS, *MIXES)


@pytest.fixture(scope="module")
def measured(bench_build: Path) -> Iterator[bench.Bench]:
    """A bench whose peer and broker run."""
    with Source() as source, broker.mosquitto() as running:
        yield bench.Bench(Runner(bench_build), source.port, running.port, bench_build)


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.name in MEASURED], ids=lambda c: c.name
)
def test_everything_is_measured(measured: bench.Bench, client: Client) -> None:
    assert measured.prepare(client), measured.results.failures
    for name in CPU:
        measured.timed(Job(client, name, "cpu", f"{name} {MILLISECONDS}"))
    measured.timed(Job(client, RATE, "rate", "100", broker=True))
    measured.once(Job(client, "calls publish", "calls", "publish"))
    for operation in OPERATIONS:
        measured.once(Job(client, f"alloc {operation}", "alloc", operation))
        asked = measured.results.once[client.key, f"alloc {operation}"][1]
        assert (asked == 0) == client.is_ours, operation
    assert not measured.results.failures
    for name in (*CPU, RATE):
        assert measured.results.median(client, name), name


def test_the_client_in_a_romfs_is_measured(measured: bench.Bench) -> None:
    (client,) = (client for client in CLIENTS if client.romfs)
    assert measured.prepare(client), measured.results.failures
    measured.once(Job(client, HELD, "held"))
    assert not measured.results.failures


def test_every_operation_over_a_link_in_memory(bench_build: Path) -> None:
    """Each of them checks itself that it did what it is timed for."""
    if webassembly.find() is None:
        pytest.fail(webassembly.MISSING)
    alone = work.measure(bench_build, 1)
    expected = {(b, c, o) for b in BITS for c in (FLOOR, work.FLATMQ, UMQTT) for o in ALL}
    assert set(alone.rounds) == set(alone.heap) == expected
    ours = {key: left for key, left in alone.heap.items() if key[1] == work.FLATMQ and left}
    assert {operation for _bits, _client, operation in ours} <= {"receive_bytes"}
    assert None not in {alone.worst(bits) for bits in BITS}
    assert alone.markdown().count("| eight topics in turn, four subscriptions |") == 2
    both = versions.measure(1)
    names = (*versions.OPERATIONS, *EXTRAS)
    assert set(both.rounds) == {(b, v, o) for b in BITS for v in (OLD, NEW) for o in names}
    assert {where: left for where, left in both.heap.items() if left} == {}
    # On a busy machine a difference of two times may have either sign.
    assert None not in {both.ratio_of(bits, name) for bits in BITS for name in names}


def test_what_takes_too_long_over_a_websocket_is_said() -> None:
    both = masked.measure(1)
    assert set(both.heap.values()) == {0}
    assert None not in {both.ratio_of(bits, name) for bits in BITS for name in masked.NAMES}
    for name in masked.NAMES:  # `make bench` holds them to it; a test may share the machine
        both.rounds["64-bit", masked.WEBSOCKET, name] = both.rounds["64-bit", work.FLATMQ, name]
    assert both.missed() == []
    both.rounds["64-bit", masked.WEBSOCKET, "publish"] = [
        3 * n for n in both.rounds["64-bit", work.FLATMQ, "publish"]
    ]
    (missed,) = both.missed()
    assert missed.endswith("over a WebSocket: 3 times TCP, more than 2.5")
    assert f"| {work.OPERATIONS['publish']}, 64-bit | 3 | 0 |" in both.markdown()


def test_ratios_are_medians_of_the_ratios_within_a_round() -> None:
    results = Results()
    assert not any(target.met(target.value(results)) for target in TARGETS)
    results.rounds[FLATMQ.key, "publish"] = [2.0, 12.0, 4.0]
    results.rounds["floor", "publish"] = [1.0, 3.0, 4.0]
    results.failures[FLATMQ.key, "held"] = "MemoryError: no room"
    assert results.ratio(FLATMQ, "publish") == 2.0
    assert results.median(FLATMQ, "publish") == 4.0
    written = Report([FLATMQ], results).markdown([], with_targets=True)
    assert "| publish QoS 0, each sent off with flush() | ≤ 3 × floor | 2 | met |" in written
    assert "| flatmq | 4 | 2 | - | - | - | - | - |" in written
    assert "- flatmq, held: MemoryError: no room" in written


def test_the_worst_ratio_is_that_of_the_slowest_operation() -> None:
    alone = Work()
    alone.add("64-bit", [f"@us {work.FLATMQ} idle 1", f"@us {UMQTT} idle 2"])
    assert alone.ratio("64-bit", work.FLATMQ, UMQTT, "idle") == 0.5
    assert alone.worst("64-bit") is None  # as long as one is missing
    alone = Work()
    for name in ALL:
        alone.add("64-bit", [f"@us {work.FLATMQ} {name} {n}" for n in (1, 9, 2)])
        alone.add("64-bit", [f"@us {UMQTT} {name} 4"])
    alone.add("64-bit", [f"@us {work.FLATMQ} ping 12"] * 4)
    assert alone.worst("64-bit") == 3
    found = [t for t in TARGETS if "link in memory" in t.text]
    assert [t.value(Results(work=alone)) for t in found] == [3, None]


def test_what_takes_more_at_mqtt_5_than_the_limit_is_said() -> None:
    both = Versions()
    times = {(OLD, "idle"): (-19, 2, 9), (NEW, "idle"): (-30, 2.5, 3)}
    for name in versions.OPERATIONS:
        both.add("64-bit", [f"@us {OLD} {name} {n}" for n in times.get((OLD, name), (2, 2, 4))])
        both.add("64-bit", [f"@us {NEW} {name} {n}" for n in times.get((NEW, name), (7, 2, 2))])
    # Of a difference the median counts: the least may be below 0 on a busy machine.
    assert both.ratio_of("64-bit", "idle") == 1.25
    idle = both.missed()
    assert len(idle) == 1 and "poll with nothing to do, 64-bit: 1.25 times" in idle[0]
    both.add("64-bit", [f"@us {OLD} receive 0.5", f"@us {NEW} receive 1"])
    for name in EXTRAS:  # what only MQTT 5 has has no limit
        both.add("64-bit", [f"@us {OLD} {name} 1", f"@us {NEW} {name} 9"])
    said = f"receive QoS 0, one at a time, 64-bit: 2 times 3.1.1, more than {LIMIT}"
    assert sorted(both.missed()) == sorted([*idle, said])
    for line in (
        "| receive QoS 0, one at a time | 0.5 | 1 | 2 | MISSED |",
        "| PINGREQ and PINGRESP | 2 | 2 | 1 | met |",
        "| publish QoS 0 with a topic alias | 1 | 9 | 9 |  |",
    ):
        assert line in both.markdown()


def test_a_cache_with_another_version_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(command: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        with Path(command[command.index("--target") + 1], "client.py").open("x") as module:
            module.write(command[-1])
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    old = tmp_path / "client"
    old.mkdir()
    (old / ".fetched").write_text("client==0")
    (old / "left_over.py").write_text("")
    for _ in range(2):
        assert peers.fetch(tmp_path, "client", (), ("client==1",)) == old
        assert (old / "client.py").read_text() == "client==1"
    assert not (old / "left_over.py").exists()
