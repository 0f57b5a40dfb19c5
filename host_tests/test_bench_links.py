"""The bench measures the same client over TCP, TLS and WebSocket."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatmq_rigs import bench, certificates
from flatmq_rigs.bench.clients import CLIENTS, CPYTHON, LINKS, MICROPYTHON, Client
from flatmq_rigs.bench.figures import AT_5, BESIDE, CPU, LINKED, OPERATIONS, RATE, Job, Results
from flatmq_rigs.bench.report import Report
from flatmq_rigs.bench.runner import Runner
from flatmq_rigs.bench.source import Source
from flatmq_rigs.bench.targets import FLATMQ, FLATMQ_LINKED, TARGETS
from flatmq_tools import broker

LINKED_CLIENTS = [client for client in CLIENTS if client.link]
MILLISECONDS = 1  # of CPU: the figures do not matter here


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, bench_build: Path) -> Iterator[bench.Bench]:
    """A bench whose peer and brokers run."""
    folder = certificates.write_loopback(tmp_path_factory.mktemp("certificate"))
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(Source(folder))
        ports = bench.brokers(stack, set(LINKS), folder)
        yield bench.Bench(Runner(bench_build, folder), source.port, ports, bench_build, True)


@pytest.mark.parametrize("client", LINKED_CLIENTS, ids=lambda client: client.name)
def test_everything_is_measured_over_each_link(measured: bench.Bench, client: Client) -> None:
    assert measured.prepare(client), measured.results.failures
    for name in LINKED:
        topics = "one" if name == "receive" else "-"
        measured.timed(Job(client, name, "cpu", f"{name} {topics} {MILLISECONDS}"))
    measured.timed(Job(client, RATE, "rate", "100", broker=True))
    if client.runtime != CPYTHON:
        for operation in OPERATIONS:
            measured.once(Job(client, f"alloc {operation}", "alloc", operation))
        heap = measured.results.most_heap(client)
        assert heap == 0 if client.module == "flatmq" else heap and heap > 0
    assert not measured.results.failures
    for name in (*LINKED, RATE):
        assert measured.results.median(client, name), name


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("runtime", [MICROPYTHON, CPYTHON])
def test_everything_is_measured_at_mqtt_5(measured: bench.Bench, runtime: str, name: str) -> None:
    client = next(c for c in CLIENTS if c.module == "flatmq5" and c.runtime == runtime)
    assert measured.prepare(client), measured.results.failures
    function, mix, _ = {**CPU, **AT_5}[name]
    measured.timed(Job(client, name, "cpu", f"{function} {mix} {MILLISECONDS}"))
    assert measured.results.median(client, name), measured.results.failures


def test_the_multiple_is_of_the_same_client_over_tcp() -> None:
    results = Results()
    secure = next(c for c in FLATMQ_LINKED if c.link == "tls")
    results.rounds[secure.key, "receive"] = [6.0, 8.0]
    results.rounds[FLATMQ.key, "receive"] = [2.0, 4.0]
    results.rounds[FLATMQ.floor_key, "receive"] = [1.0, 1.0]
    assert results.ratio(secure, "receive") == 2.5
    assert results.ratio(FLATMQ, "receive") == 3


def test_the_links_have_a_table_of_their_own() -> None:
    results = Results()
    secure, *_ = FLATMQ_LINKED
    for client, value in ((FLATMQ, 2.0), (secure, 5.0)):
        results.rounds[client.key, "publish"] = [value]
    for operation in OPERATIONS:
        results.once[secure.key, f"alloc {operation}"] = [0.0, 0.0]
    results.failures[secure.key, RATE] = "OSError: no"
    report = Report([FLATMQ, secure], results)
    assert "| flatmq over TLS | 5 | 2.5 | - | - | - | - | failed | 0 |" in report.links()
    for other in (report.memory, report.allocation, report.speed, report.topics, report.calls):
        assert "over TLS" not in other()
    written = report.markdown([], with_targets=True)
    assert report.links() in written
    assert "- flatmq over TLS, qos1_rate: OSError: no" in written


def test_heap_that_one_link_asks_for_misses_the_target() -> None:
    target = next(t for t in TARGETS if "TLS" in t.text)
    results = Results()
    assert not target.met(target.value(results))
    for client in FLATMQ_LINKED:
        for operation in OPERATIONS:
            results.once[client.key, f"alloc {operation}"] = [0.0, 0.0]
    assert target.met(target.value(results))
    results.once[FLATMQ_LINKED[-1].key, "alloc ping"] = [0.0, 32.0]
    assert target.value(results) == 32


def test_a_client_over_a_link_is_chosen_with_the_one_over_tcp() -> None:
    names = {client.name for client in bench.chosen(["umqtt.simple over TLS"])}
    assert names == {"floor", "floor (CPython)", "umqtt.simple", "umqtt.simple over TLS"}
    assert set(FLATMQ_LINKED) < set(bench.chosen(["flatmq"]))
    romfs = {client.name for client in bench.chosen(["flatmq, .mpy in ROMFS"])}
    assert "flatmq" not in romfs
    with pytest.raises(bench.BenchError, match="flatmq over TLS"):
        bench.chosen(["nothing"])


def test_brokers_that_do_not_start_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOSQUITTO", "/bin/false")
    with contextlib.ExitStack() as stack, pytest.raises(broker.BrokerError):
        bench.brokers(stack, {"tls"}, tmp_path)
