"""The bench measures every client over every link, and its report says what was measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatmq_rigs import bench, webassembly
from flatmq_rigs.bench import masked, peers, versions, work
from flatmq_rigs.bench.clients import CLIENTS, Client
from flatmq_rigs.bench.figures import CPU, HELD, OPERATIONS, RATE, Job
from flatmq_rigs.bench.runner import Runner
from flatmq_rigs.bench.source import Source
from flatmq_rigs.bench.versions import EXTRAS, NEW, OLD
from flatmq_rigs.bench.work import BITS, FLOOR, MIXES, UMQTT
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
