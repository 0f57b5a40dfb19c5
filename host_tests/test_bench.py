"""The bench measures every client over every link, and its report says what was measured."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatmq_rigs import bench, webassembly
from flatmq_rigs.bench import peers, work
from flatmq_rigs.bench.clients import CLIENTS, Client
from flatmq_rigs.bench.figures import CPU, HELD, OPERATIONS, RATE
from flatmq_rigs.bench.source import Source
from flatmq_rigs.bench.work import BITS, FIVE, UMQTT, WEBSOCKET
from flatmq_tools import broker

MEASURED = ("flatmq", "umqtt.simple", "flatmq, .mpy in ROMFS")
OURS = ("topics", "properties", "tagged", "1")
COMMON = [name for name in work.OPERATIONS if not any(part in name for part in OURS)]
PAIRS = [(work.FLATMQ, UMQTT), (FIVE, work.FLATMQ), (WEBSOCKET, work.FLATMQ)]


@pytest.fixture(scope="module")
def measured(bench_build: Path) -> Iterator[bench.Bench]:
    """A bench whose peer and broker run."""
    with Source() as source, broker.mosquitto() as running:
        yield bench.Bench(bench_build, source.port, running.port)


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.name in MEASURED], ids=lambda c: c.name
)
def test_everything_is_measured(
    measured: bench.Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures do not matter here, so little is measured for each."""
    monkeypatch.setattr(bench, "CPU_MS", 1)
    monkeypatch.setattr(bench, "RATE_MS", 100)
    monkeypatch.setattr(bench, "HEAPS_KB", (255, 256))
    assert measured.prepare(client), measured.results.failures
    measured.once(client)
    measured.timed(client)
    assert not measured.results.failures
    assert min(measured.results.once[client.key, HELD]) > 0
    if client.romfs:
        return
    for operation in OPERATIONS:
        asked = measured.results.once[client.key, f"alloc {operation}"][1]
        assert (asked == 0) == client.is_ours, operation
    for name in (*CPU, RATE):
        assert measured.results.median(client, name), name


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
