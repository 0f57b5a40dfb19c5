"""Everything that the broker has for an ingest comes into its log, once and in order.

In both versions of MQTT, with the properties that messages carry.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import peer
import sizes
from brokers.fake import FakeBroker
from flatmq import Client, MQTTError
from flatmq.properties import Properties
from flatmq_tools import broker, ports
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.ingest import Ingest, IngestError
from flatmq_tools.trust import Trust
from packets import build
from packets.properties import Id, properties
from pipeline.mqtt import UNLIMITED, certificate
from pipeline.test_landing import Service, files
from unit.fake_link import Bench, fake_clock

PATIENCE = 60
PAIRS = [("b", "1"), ("a", "2"), ("b", "3")]
CARRIED = Properties(
    PAIRS,
    content_type="application/senml+json",
    response_topic="answers",
    correlation_data=b"\0\xff",
    payload_format=1,
)
CASES = [(kind, version) for kind in ("mosquitto", "embedded") for version in (4, 5)]


class There:
    """A broker, and the version of MQTT that a test speaks to it."""

    def __init__(self, server: broker.Broker, version: int) -> None:
        self.server = server
        self.version = version

    def ingest(self, writer: log.Writer, *filters: str, **options: Any) -> Ingest:
        """An ingest that the broker has granted these filters."""
        where = self.server.host, self.server.port
        made = Ingest(writer, where, filters, version=self.version, **options)
        made.start(PATIENCE * 1000)
        return made

    @contextlib.contextmanager
    def publisher(self) -> Iterator[Publisher]:
        made = Publisher(self)
        yield made
        made.client.disconnect()


class Publisher:
    """A client that publishes, in MQTT 5 with CARRIED."""

    def __init__(self, there: There) -> None:
        self._more = {"properties": CARRIED} if there.version == 5 else {}
        self.client = Client(
            b"publisher", there.server.host, there.server.port, version=there.version,
            tx_size=1 << 20, inflight=200,
        )  # fmt: skip
        self.client.connect()

    def __call__(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        while self.client.publish(topic, payload, qos, retain, **self._more) is None:
            assert self.client.connected
            self.client.poll(10)

    def poll(self, ms: int = 0) -> bool:
        return self.client.poll(ms)

    def wait(self) -> None:
        """Return when the broker has everything."""
        assert self.client.wait(PATIENCE * 1000)


@pytest.fixture(scope="module", params=sizes.one_each(CASES, key=lambda case: case[1]), ids=str)
def there(request: pytest.FixtureRequest) -> Iterator[There]:
    kind, version = request.param
    options: dict[str, Any] = {"extra": UNLIMITED} if kind == "mosquitto" else {"version": version}
    with getattr(broker, kind)(**options) as made:
        yield There(made, version)


@pytest.fixture
def scripted() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made
        assert made.complaints == []


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.Writer]:
    with log.Writer(tmp_path / "log") as made:
        yield made


@pytest.fixture
def publisher(there: There) -> Iterator[Publisher]:
    with there.publisher() as made:
        yield made


def until(done: Callable[[], object], *turns: Callable[[int], object]) -> None:
    """Take turns until then."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        for turn in turns:
            turn(5)


def rows(writer: log.Writer, start: int = 0) -> list[dict[str, Any]]:
    found = log.read(writer.folder, start, writer.next_offset)
    return [row for b in found for row in b.to_pylist()]


def payloads(writer: log.Writer, start: int = 0) -> list[bytes]:
    return [m["payload"] for m in rows(writer, start)]


def test_every_qos_size_and_property(
    there: There, writer: log.Writer, publisher: Publisher
) -> None:
    ingest = there.ingest(writer, "every/#", qos=2)
    before = time.time()
    sent = [b"%d" % i + b"x" * (300_000 if i % 200 == 199 else i % 200) for i in range(600)]
    for i, payload in enumerate(sent):
        publisher(f"every/{i}", payload, i % 3)
        publisher.poll()
    until(lambda: writer.next_offset >= 600, ingest.poll, publisher.poll)
    ingest.stop()
    assert writer.synced == 600
    found = rows(writer)
    assert [m["offset"] for m in found] == list(range(600))
    assert {m["topic"]: m["payload"] for m in found} == {
        f"every/{i}": payload for i, payload in enumerate(sent)
    }
    names = ("content_type", "response_topic", "correlation_data", "payload_format")
    expected = (
        ["application/senml+json", "answers", b"\0\xff", 1] if there.version == 5 else [None] * 4
    )
    for m in found:
        # The embedded broker sends everything at the QoS that it has granted.
        qos = int(m["topic"].rpartition("/")[2]) % 3 if there.server.kind == "mosquitto" else 2
        assert (m["qos"], m["retain"]) == (qos, False)
        assert before - 1 < m["timestamp"].timestamp() < time.time() + 1
        assert [m[name] for name in names] == expected
        pairs = [(each["name"], each["value"]) for each in m["user_properties"] or ()]
        assert pairs == (PAIRS if there.version == 5 else [])


def test_what_comes_while_it_is_away(
    there: There, writer: log.Writer, publisher: Publisher
) -> None:
    """It comes later, and the retained messages come once, not with every start."""
    publisher("away/a/kept", b"retained", retain=True)
    publisher.wait()
    first = there.ingest(writer, "away/a/#", client_id="away")
    until(lambda: writer.next_offset == 1, first.poll)
    first.stop()
    for i in range(30):
        publisher("away/a/x", b"%d" % i)
    publisher.wait()
    second = there.ingest(writer, "away/a/#", client_id="away")
    publisher("away/a/x", b"30")
    until(lambda: writer.next_offset >= 32, second.poll, publisher.poll)
    second.stop()
    assert payloads(writer) == [b"retained", *(b"%d" % i for i in range(31))]
    assert [m["retain"] for m in rows(writer)] == [True] + [False] * 31

    # Other filters: what is new comes, and what no longer matches does not. The embedded broker
    # does not answer UNSUBSCRIBE here.
    third = there.ingest(writer, "away/b/#", client_id="away")
    if there.server.kind == "mosquitto":
        until(lambda: third.connected and not third.client.load().requests, third.poll)
        publisher("away/a/x", b"no longer wanted")
    publisher("away/b/x", b"wanted")
    until(lambda: b"wanted" in payloads(writer, 32), third.poll, publisher.poll)
    third.stop()
    assert b"no longer wanted" not in payloads(writer)


def test_a_full_log_loses_nothing(there: There, tmp_path: Path, publisher: Publisher) -> None:
    with log.Writer(tmp_path / "small", 100_000, 25_000) as writer:
        ingest = there.ingest(writer, "full", rx_size=8192)
        for i in range(5_000):
            publisher("full", b"%0100d" % i)
            ingest.poll()
        until(lambda: writer.full and not publisher.client.pending, ingest.poll, publisher.poll)
        stands = writer.next_offset
        for _ in range(20):
            ingest.poll(1)
        assert writer.next_offset == stands < 1500
        assert writer.size < 100_000 + 10_000 + 1000
        found: list[int] = []

        def take(_: int) -> None:
            found.extend(map(int, payloads(writer, len(found))))
            writer.trim(len(found))

        until(lambda: len(found) == 5_000, ingest.poll, take)
        ingest.stop()
    assert found == list(range(5_000))


def test_in_a_thread(there: There, writer: log.Writer, publisher: Publisher) -> None:
    ingest = Ingest(
        writer, (there.server.host, there.server.port), ["thread"], version=there.version
    )
    ingest.start()
    ingest.background()
    until(lambda: ingest.subscribed, publisher.poll)
    for i in range(100):
        publisher("thread", b"%d" % i)
    until(lambda: writer.synced == 100, publisher.poll)
    ingest.check()
    writer.close()  # the disk is gone
    publisher("thread", b"last")
    until(lambda: ingest._failure, publisher.poll)
    with pytest.raises(IngestError, match="the ingest has failed: LogError"):
        ingest.check()


def test_filters_that_fill_many_kilobytes(there: There, writer: log.Writer) -> None:
    there.ingest(writer, *(f"{'level/' * 10}{i}" for i in range(3000))).stop()


# Who is let in, by a broker that asks for a password or speaks TLS


def test_who_is_not_let_in(writer: log.Writer) -> None:
    with broker.mosquitto(users={"alice": "s3cret"}) as server:
        with pytest.raises(MQTTError) as error:
            There(server, 4).ingest(writer, "#", user="alice", password="guess")
        assert (error.value.kind, error.value.code) == ("refused", 5)
        There(server, 4).ingest(writer, "#", user="alice", password="s3cret").stop()


def test_tls(writer: log.Writer, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    port = ports.free_port()
    listener = f"listener {port} 127.0.0.1\ncertfile {cert}\nkeyfile {key}\n{UNLIMITED}"
    with broker.mosquitto(extra=listener) as server:
        stranger = Ingest(writer, (server.host, port), ["t"], tls=Trust())
        with pytest.raises(MQTTError) as error:
            stranger.start(3000)
        assert "unknown authority" in str(error.value.detail)
        trusted = Ingest(writer, (server.host, port), ["t"], tls=Trust(cert))
        trusted.start(PATIENCE * 1000)
        with There(server, 4).publisher() as publisher:
            for i in range(2000):
                publisher("t", b"%0200d" % i)
                publisher.poll()
            until(lambda: writer.next_offset == 2000, trusted.poll, publisher.poll)
        trusted.stop()
    assert list(map(int, payloads(writer))) == list(range(2000))


# What the session is after a loss


def test_a_filter_that_is_refused(scripted: FakeBroker, writer: log.Writer) -> None:
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
    scripted.answer_with("SUBACK", 0x9E)
    with pytest.raises(IngestError, match=r"\$share/g/t \(SUBACK: reason code 0x9e, shared"):
        There(scripted, 5).ingest(writer, "$share/g/t")


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


# What MQTT 5 has besides


def test_what_is_asked_of_the_broker(scripted: FakeBroker, writer: log.Writer) -> None:
    for expiry, asked in ((86_400, 86_400), (None, 0xFFFFFFFF)):
        There(scripted, 5).ingest(writer, "t", session_expiry=expiry, client_id="asks").stop()
        connect = [p for p in scripted.received if p.name == "CONNECT"][-1]
        assert connect.connect and not connect.connect.clean_start
        assert connect.properties.first(Id.SESSION_EXPIRY) == asked
        assert connect.properties.first(Id.TOPIC_ALIAS_MAXIMUM, 0) == 0
        assert connect.properties.first(Id.REQUEST_PROBLEM_INFORMATION) == 0
    with pytest.raises(ValueError, match=r"session_expiry must be None in MQTT 3\.1\.1, not 5"):
        Ingest(writer, ("b", 1), ["t"], session_expiry=5)


def test_messages_wait_for_the_session_expiry_and_no_longer(
    scripted: FakeBroker, writer: log.Writer
) -> None:
    said: list[str] = []
    for away, session_expiry in ((60, None), (3601, None), (0, 60)):
        # The broker may keep the session for less, and says so.
        scripted.announces = properties([(Id.SESSION_EXPIRY, 60)] if session_expiry else [])
        before = writer.next_offset
        ingest = There(scripted, 5).ingest(
            writer, "t", session_expiry=3600, client_id="away", say=said.append
        )
        assert ingest.session_expiry == session_expiry
        scripted.publish(b"t", b"now", 1)
        until(lambda: b"now" in payloads(writer, before), ingest.poll)  # noqa: B023
        ingest.stop()
        assert scripted.until(lambda: not scripted.online(b"away"), PATIENCE)
        scripted.publish(b"t", b"%d" % away, 1)
        scripted.pass_time(away)
    assert payloads(writer) == [b"now", b"60", b"now", b"now"], "what waited for an hour is lost"
    (text,) = said
    assert text.startswith(f"{scripted.address} has lost the session of away")


def test_no_more_in_flight_than_the_ingest_takes(scripted: FakeBroker, writer: log.Writer) -> None:
    """An acknowledgement gives its place back, and leaves after the sync."""
    ingest = There(scripted, 5).ingest(writer, "t", incoming=5, delay_ms=0)
    for i in range(200):
        scripted.publish(b"t", b"%d" % i, 1 + i % 2)
    until(lambda: writer.synced == 200, ingest.poll)
    ingest.stop()
    assert list(map(int, payloads(writer))) == list(range(200))


def test_a_broken_property_is_reported_and_the_rest_comes(tmp_path: Path) -> None:
    with FakeBroker() as scripted:
        service = Service(
            scripted, tmp_path, "--filter", "dev/#", "--mqtt-version", "5",
            "--client-id", "broken", "--session-expiry", "600",
        )  # fmt: skip
        service.until((service.log / "subscribed.json").exists)
        for i in range(50):
            scripted.publish(b"dev/a", b"%d" % i, 1, more=[(Id.CONTENT_TYPE, b"x")])
        # The content type is not UTF-8.
        scripted.send(build.publish(b"dev/a", b"bad", properties=[(Id.CONTENT_TYPE, b"\xff")]))

        def ends() -> list[int]:
            return [p.code for p in scripted.received if p.name == "DISCONNECT"]

        def landed() -> set[int]:
            tables = [pq.read_table(file) for file in files(service.out)]
            return {int(payload) for t in tables for payload in t["payload"].to_pylist()}

        service.until(ends)
        for i in range(50, 100):
            scripted.publish(b"dev/a", b"%d" % i, 1)
        service.until(lambda: len(landed()) == 100)
        said = service.stop()
        assert ends() == [0x81, 0]
        assert scripted.complaints == []
    assert f"{scripted.address} broke a rule of MQTT, so the ingest reconnects: packet" in said
    assert "text of property 0x3" in said
    assert landed() == set(range(100))
    assert service.received() == 100, "what came before it was acknowledged, and came once"


# Several that share the load


@pytest.mark.parametrize("case", sizes.one_each(CASES, key=lambda case: case[0]), ids=str)
def test_each_message_comes_to_one_of_two_that_share_and_all_to_one_that_is_left(
    case: tuple[str, int], tmp_path: Path
) -> None:
    """In MQTT 5 one leaves for ever: a last run with an expiry of 0 takes what waits for it."""
    kind, version = case
    options: dict[str, Any] = {"extra": UNLIMITED} if kind == "mosquitto" else {"version": version}
    leaving = {"clean_session": True} if version == 4 else {"session_expiry": 0}
    with (
        getattr(broker, kind)(**options) as server,
        log.Writer(tmp_path / "one") as one,
        log.Writer(tmp_path / "two") as two,
        There(server, version).publisher() as publisher,
    ):
        there = There(server, version)
        stays, leaves = there.ingest(one, "$share/g/t"), there.ingest(two, "$share/g/t", **leaving)
        turns = [stays.poll, leaves.poll, publisher.poll]

        def some(first: int) -> None:
            for i in range(first, first + 100):
                publisher("t", b"%d" % i)
                for turn in turns:
                    turn(0)

        some(0)
        until(lambda: one.next_offset + two.next_offset == 100, *turns)
        until(lambda: not publisher.client.pending and not leaves.client.queued, *turns)
        taken = two.next_offset
        leaves.stop()
        turns.remove(leaves.poll)
        some(100)
        until(lambda: one.next_offset + taken == 200, *turns)
        stays.stop()
        if kind == "mosquitto":  # the embedded broker keeps every session, and what it sent in it
            again = there.ingest(two, "$share/g/t", **leaving)
            assert not again.client.session_present
            again.stop()
        found = [list(map(int, payloads(writer))) for writer in (one, two)]
    assert all(found) and sorted(found[0] + found[1]) == list(range(200))
