"""The bench measures every client over every link, and its report says what was measured."""

from pathlib import Path

import pytest
from rich.progress import Progress

from conftest import ROOT
from flatmq_rigs import bench, webassembly
from flatmq_rigs.bench import clients, work
from flatmq_rigs.bench.source import Source
from flatmq_rigs.bench.work import BITS, FIVE, UMQTT, WEBSOCKET
from flatmq_tools import broker

OURS = ("topics", "properties", "tagged", "1")
COMMON = [name for name in work.OPERATIONS if not any(part in name for part in OURS)]
PAIRS = [(work.FLATMQ, UMQTT), (FIVE, work.FLATMQ), (WEBSOCKET, work.FLATMQ)]


@pytest.fixture
def bench_build(tmp_path: Path) -> Path:
    """A folder for what the bench builds; the clients that it fetches are fetched once for all."""
    peers = ROOT / "build" / "peers"
    peers.mkdir(parents=True, exist_ok=True)
    (tmp_path / "peers").symlink_to(peers)
    return tmp_path


def test_every_client_over_a_socket(bench_build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of speed do not matter here, so little is measured for each."""
    monkeypatch.setattr(clients, "CPU_MS", 1)
    monkeypatch.setattr(clients, "RATE_MS", 100)
    with Source() as source, broker.mosquitto() as running, Progress(disable=True) as progress:
        measured = clients.Clients(bench_build, source.port, running.port)
        measured.measure(1, progress)
    for client in (clients.FLATMQ, clients.UMQTT):
        assert all(measured.median(client, name) for name in (*clients.CPU, clients.RATE))
    goals = {text: met for text, *_, met in bench.targets(measured, work.Work())}
    assert goals["writes per publish"] == goals["writes per publish in bursts"] == "met"
    assert goals["reads per message in a burst"] == "met"


def test_every_operation_over_a_link_in_memory(bench_build: Path) -> None:
    """Each of them checks itself that it did what it is timed for."""
    if webassembly.find() is None:
        pytest.fail(webassembly.MISSING)
    alone = work.measure(bench_build, 1)
    done = {
        UMQTT: COMMON, work.FLATMQ: work.OPERATIONS, FIVE: work.OPERATIONS,
        WEBSOCKET: ("publish", "publish_burst"),
    }  # fmt: skip
    expected = {(bits, client, name) for bits in BITS for client in done for name in done[client]}
    assert set(alone.rounds) == set(alone.heap) == expected
    left = {name for (_, client, name), n in alone.heap.items() if n and client != UMQTT}
    assert left <= {"receive_bytes"}
    assert None not in {alone.worst(bits, *pair) for bits in BITS for pair in PAIRS}
    assert alone.markdown().count("| … eight topics in turn, four subscriptions |") == 2
