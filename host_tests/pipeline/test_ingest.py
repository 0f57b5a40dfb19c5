"""Everything that the broker has for an ingest comes into its log, once and in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peer
from flatmq import Client, MQTTError
from flatmq_tools import broker, ports
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.ingest import Ingest, IngestError
from flatmq_tools.trust import Trust
from pipeline.mqtt import certificate
from unit.fake_link import Bench, fake_clock

PATIENCE = 60
UNLIMITED = "max_queued_messages 0\nmax_inflight_messages 0"


@pytest.fixture(scope="module", params=["mosquitto", "embedded"])
def server(request: pytest.FixtureRequest) -> Iterator[broker.Broker]:
    made = broker.mosquitto(extra=UNLIMITED) if request.param == "mosquitto" else broker.embedded()
    with made:
        yield made


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.Writer]:
    with log.Writer(tmp_path / "log") as made:
        yield made


@pytest.fixture
def publisher(server: broker.Broker) -> Iterator[Client]:
    client = Client(b"publisher", server.host, server.port, tx_size=1 << 20, inflight=200)
    client.connect()
    yield client
    client.disconnect()


def until(done: Callable[[], object], *turns: Callable[[int], object]) -> None:
    """Take turns until then."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        for turn in turns:
            turn(5)


def publish(client: Client, topic: bytes, payload: bytes, qos: int = 1, retain=False) -> None:
    while client.publish(topic, payload, qos, retain) is None:
        assert client.connected
        client.poll(10)


def rows(writer: log.Writer, start: int = 0) -> list[dict]:
    found = log.read(writer.folder, start, writer.next_offset)
    return [row for b in found for row in b.to_pylist()]


def address(server: broker.Broker) -> tuple[str, int]:
    return server.host, server.port


def test_every_qos_and_size(
    server: broker.Broker, writer: log.Writer, publisher: Client, request: pytest.FixtureRequest
) -> None:
    topic = request.node.name.encode()
    ingest = Ingest(writer, address(server), [topic.decode() + "/#"], qos=2)
    ingest.start(PATIENCE * 1000)
    before = time.time()
    payloads = {}
    for i in range(1500):
        payloads[topic + b"/%d" % i] = b"%d" % i + b"x" * (300_000 if i % 400 == 399 else i % 200)
    for i, (name, payload) in enumerate(payloads.items()):
        publish(publisher, name, payload, i % 3)
        publisher.poll()
    until(lambda: writer.next_offset >= 1500, ingest.poll, publisher.poll)
    ingest.stop()
    assert writer.synced == 1500
    found = rows(writer)
    assert {m["topic"].encode(): m["payload"] for m in found} == payloads
    assert [m["offset"] for m in found] == list(range(1500))
    for m in found:
        # The embedded broker sends everything at the QoS that it has granted.
        qos = int(m["topic"].rpartition("/")[2]) % 3 if server.kind == "mosquitto" else 2
        assert m["qos"] == qos
        assert before - 1 < m["timestamp"].timestamp() < time.time() + 1
        assert not m["retain"]


def test_what_comes_while_it_is_away(
    server: broker.Broker, writer: log.Writer, publisher: Client, request: pytest.FixtureRequest
) -> None:
    """It comes later, and the retained messages come once, not with every start."""
    base = request.node.name
    publish(publisher, f"{base}/a/kept".encode(), b"retained", retain=True)
    publisher.wait(PATIENCE * 1000)

    def ingest(name: str) -> Ingest:
        made = Ingest(writer, address(server), [f"{base}/{name}/#"], client_id=base[-20:])
        made.start(PATIENCE * 1000)
        return made

    def payloads() -> list[bytes]:
        return [m["payload"] for m in rows(writer)]

    first = ingest("a")
    until(lambda: writer.next_offset == 1, first.poll)
    first.stop()
    for i in range(30):
        publish(publisher, f"{base}/a/x".encode(), b"%d" % i)
    publisher.wait(PATIENCE * 1000)
    second = ingest("a")
    publish(publisher, f"{base}/a/x".encode(), b"30")
    until(lambda: writer.next_offset >= 32, second.poll, publisher.poll)
    second.stop()
    assert payloads() == [b"retained", *(b"%d" % i for i in range(31))]
    assert [m["retain"] for m in rows(writer)] == [True] + [False] * 31

    # Other filters: what is new comes, and what no longer matches does not. The embedded broker
    # does not answer UNSUBSCRIBE here.
    third = ingest("b")
    if server.kind == "mosquitto":
        until(lambda: third.connected and not third.client.load().requests, third.poll)
        publish(publisher, f"{base}/a/x".encode(), b"no longer wanted")
    publish(publisher, f"{base}/b/x".encode(), b"wanted")
    until(lambda: b"wanted" in payloads()[32:], third.poll, publisher.poll)
    third.stop()
    assert b"no longer wanted" not in payloads()


def test_a_full_log_loses_nothing(
    server: broker.Broker, tmp_path: Path, publisher: Client, request: pytest.FixtureRequest
) -> None:
    topic = request.node.name
    with log.Writer(tmp_path / "small", 200_000, 50_000) as writer:
        ingest = Ingest(writer, address(server), [topic], rx_size=8192)
        ingest.start(PATIENCE * 1000)
        for i in range(10_000):
            publish(publisher, topic.encode(), b"%0100d" % i)
            ingest.poll()
        until(lambda: writer.full and not publisher.pending, ingest.poll, publisher.poll)
        stands = writer.next_offset
        for _ in range(20):
            ingest.poll(1)
        assert writer.next_offset == stands < 3000
        assert writer.size < 200_000 + 10_000 + 1000
        found: list[int] = []

        def take(_: int) -> None:
            start = len(found)
            found.extend(int(m["payload"]) for m in rows(writer, start))
            writer.trim(len(found))

        until(lambda: len(found) == 10_000, ingest.poll, take)
        ingest.stop()
    assert found == list(range(10_000))


def test_two_share_the_load(tmp_path: Path) -> None:
    """By a shared subscription: each message comes to one of them."""
    with (
        broker.embedded() as server,
        log.Writer(tmp_path / "1") as first,
        log.Writer(tmp_path / "2") as second,
    ):
        both = [Ingest(writer, address(server), ["$share/g/t"]) for writer in (first, second)]
        for ingest in both:
            ingest.start(PATIENCE * 1000)
        publisher = Client(b"publisher", *address(server), tx_size=1 << 16, inflight=100)
        publisher.connect()
        for i in range(1000):
            publish(publisher, b"t", b"%d" % i)
        turns = [ingest.poll for ingest in both]
        until(lambda: first.next_offset + second.next_offset >= 1000, publisher.poll, *turns)
        for ingest in both:
            ingest.stop()
        publisher.disconnect()
        found = [[int(m["payload"]) for m in rows(writer)] for writer in (first, second)]
    assert sorted(found[0] + found[1]) == list(range(1000))
    assert all(found)


def test_in_a_thread(
    server: broker.Broker, writer: log.Writer, publisher: Client, request: pytest.FixtureRequest
) -> None:
    ingest = Ingest(writer, address(server), [request.node.name])
    ingest.start()
    ingest.background()
    until(lambda: ingest.subscribed, publisher.poll)
    for i in range(100):
        publish(publisher, request.node.name.encode(), b"%d" % i)
    until(lambda: writer.synced == 100, publisher.poll)
    ingest.check()
    writer.close()  # the disk is gone
    publish(publisher, request.node.name.encode(), b"last")
    until(lambda: ingest._failure, publisher.poll)
    with pytest.raises(IngestError, match="the ingest has failed: LogError"):
        ingest.check()


def test_who_is_not_let_in(writer: log.Writer) -> None:
    with broker.mosquitto(users={"alice": "s3cret"}) as server:
        wrong = Ingest(writer, address(server), ["#"], user="alice", password="guess")
        with pytest.raises(MQTTError) as error:
            wrong.start(PATIENCE * 1000)
        assert (error.value.kind, error.value.code) == ("refused", 5)
        right = Ingest(writer, address(server), ["#"], user="alice", password="s3cret")
        right.start(PATIENCE * 1000)
        right.stop()


def test_a_filter_that_is_refused(writer: log.Writer) -> None:
    with fake_clock() as clock:
        bench = Bench(clock)
        worker = Ingest(writer, ("there", 1883), ["mine", "theirs"], link=bench.link)
        bench.client = worker.client
        bench.online()
        worker.poll()
        (subscribe,) = bench.sent()
        bench.stream.incoming.append(peer.suback(subscribe.pid, 1, 0x80))
        with pytest.raises(IngestError, match="to theirs"):
            worker.poll()


def test_a_session_that_was_lost_before_the_suback(writer: log.Writer) -> None:
    """The broker then has the session and no subscription: the next process asks again."""
    with fake_clock() as clock:
        for present, answered in ((False, True), (False, False), (True, True), (True, None)):
            bench = Bench(clock)
            worker = Ingest(writer, ("there", 1883), ["t"], link=bench.link)
            bench.client = worker.client
            bench.online(present=present)
            worker.poll()
            sent = bench.sent()
            if answered is None:
                assert sent == []
                continue
            assert [p.first for p in sent] == [0x82]
            if answered:
                bench.stream.incoming.append(peer.suback(sent[0].pid, 1))
                worker.poll()
                assert worker.subscribed


def test_a_session_that_is_lost_while_it_is_used(writer: log.Writer) -> None:
    """The SUBACK of the session before says nothing about the new one."""

    def answered(again: bool) -> bool:
        bench.online(present=again)
        worker.poll()
        asked = bench.sent()
        assert [p.first for p in asked] == ([] if again else [0x82])
        if not again:
            assert not worker.subscribed
            assert not note.exists()
            bench.stream.incoming.append(peer.suback(asked[0].pid, 1))
            worker.poll()
        return worker.subscribed and note.exists()

    note = writer.folder / "subscribed.json"
    with fake_clock() as clock:
        for _ in range(2):  # the second one finds the note of the first
            bench = Bench(clock)
            worker = Ingest(writer, ("there", 1883), ["t"], link=bench.link)
            bench.client = worker.client
            for again in (note.exists(), False, True, False):
                assert answered(again)
                bench.lose()


def test_filters_that_fill_many_kilobytes(server: broker.Broker, writer: log.Writer) -> None:
    filters = [f"{'level/' * 10}{i}" for i in range(3000)]
    ingest = Ingest(writer, address(server), filters)
    ingest.start(PATIENCE * 1000)
    ingest.stop()


# TLS


def test_tls(writer: log.Writer, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    port = ports.free_port()
    listener = f"listener {port} 127.0.0.1\ncertfile {cert}\nkeyfile {key}\n{UNLIMITED}"
    with broker.mosquitto(extra=listener) as server:
        where = (server.host, port)
        stranger = Ingest(writer, where, ["t"], tls=Trust())
        with pytest.raises(MQTTError) as error:
            stranger.start(3000)
        assert "unknown authority" in str(error.value.detail)
        trusted = Ingest(writer, where, ["t"], tls=Trust(cert))
        trusted.start(PATIENCE * 1000)
        publisher = Client(b"publisher", *address(server), tx_size=1 << 20, inflight=200)
        publisher.connect()
        for i in range(5000):
            publish(publisher, b"t", b"%0200d" % i)
            publisher.poll()
        until(lambda: writer.next_offset == 5000, trusted.poll, publisher.poll)
        trusted.stop()
        publisher.disconnect()
    assert [int(m["payload"]) for m in rows(writer)] == list(range(5000))
