"""The ingest in MQTT 5: what it asks of a broker, and that nothing is lost or taken twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flatmq import Client
from flatmq.properties import Properties
from flatmq_tools import broker
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.ingest import Ingest, IngestError
from pipeline.test_ingest import PATIENCE, UNLIMITED, publish, rows, until
from pipeline.test_landing import Service, files
from v5 import build5
from v5.broker5 import Broker5, properties
from v5.embedded5 import Embedded5
from v5.properties5 import Id
from v5.wire5 import Wire5

CARRIED = Properties(
    [("b", "1"), ("a", "2"), ("b", "3")],
    content_type="application/senml+json",
    response_topic="answers",
    correlation_data=b"\0\xff",
    payload_format=1,
)


@pytest.fixture(scope="module")
def server() -> Iterator[broker.Broker]:
    with broker.mosquitto(extra=UNLIMITED) as made:
        yield made


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.Writer]:
    with log.Writer(tmp_path / "log") as made:
        yield made


@pytest.fixture
def scripted() -> Iterator[Broker5]:
    with Broker5() as made:
        yield made
        assert made.complaints == []


@pytest.fixture
def publisher(server: broker.Broker) -> Iterator[Client]:
    client = Client(b"publisher5", server.host, server.port, version=5, tx_size=1 << 20)
    client.connect()
    yield client
    client.disconnect()


def five(server: broker.Broker, writer: log.Writer, *filters: str, **options: object) -> Ingest:
    where = (server.host, server.port)
    made = Ingest(writer, where, filters, version=5, **options)  # type: ignore[arg-type]
    made.start(PATIENCE * 1000)
    return made


def test_what_messages_carry_comes_from_a_real_broker(
    server: broker.Broker, writer: log.Writer, publisher: Client
) -> None:
    ingest = five(server, writer, "carried/#", qos=2)
    for i in range(300):
        more = {"properties": CARRIED} if i % 3 else {}
        name, payload = b"carried/%d" % i, b"%d" % i + b"x" * (300_000 * (i % 100 == 1))
        while publisher.publish(name, payload, i % 3, **more) is None:
            publisher.poll(10)
    expiring = Properties(expiry=3600)
    while publisher.publish(b"carried/300", b"300", 1, properties=expiring) is None:
        publisher.poll(10)
    until(lambda: writer.next_offset >= 301, ingest.poll, publisher.poll)
    ingest.stop()
    found = {int(m["topic"].rpartition("/")[2]): m for m in rows(writer)}
    assert sorted(found) == list(range(301)) and writer.synced == 301
    assert 0 < found.pop(300)["message_expiry"] <= 3600
    for i, m in found.items():
        assert m["qos"] == i % 3
        assert m["payload"] == b"%d" % i + b"x" * (300_000 * (i % 100 == 1))
        names = [(each["name"], each["value"]) for each in m["user_properties"] or ()]
        assert names == ([("b", "1"), ("a", "2"), ("b", "3")] if i % 3 else [])
        assert (m["content_type"], m["response_topic"], m["correlation_data"]) == (
            ("application/senml+json", "answers", b"\0\xff") if i % 3 else (None, None, None)
        )
        assert m["payload_format"] == (1 if i % 3 else None)


def test_a_log_goes_on_with_the_other_version(
    server: broker.Broker, writer: log.Writer, publisher: Client
) -> None:
    """The session, too: the broker knows it by its client identifier."""
    for version in (4, 5, 4):
        ingest = Ingest(writer, (server.host, server.port), ["mixed"], version=version)
        ingest.start(PATIENCE * 1000)
        count = writer.next_offset + 2
        for payload in (b"x", b"y"):
            while publisher.publish(b"mixed", payload, 1, properties=CARRIED) is None:
                publisher.poll(10)
        until(lambda: writer.next_offset >= count, ingest.poll, publisher.poll)  # noqa: B023
        ingest.stop()
        publisher.wait(PATIENCE * 1000)
        while publisher.publish(b"mixed", b"away", 1, properties=CARRIED) is None:
            publisher.poll(10)
        assert publisher.wait(PATIENCE * 1000)
    found = [(m["payload"], m["content_type"]) for m in rows(writer)]
    old, new = [None] * 2, ["application/senml+json"] * 3
    assert [payload for payload, _ in found] == [
        b"x",
        b"y",
        b"away",
        b"x",
        b"y",
        b"away",
        b"x",
        b"y",
    ]
    assert [kind for _, kind in found] == [*old, *new, *[None] * 3]


def test_what_is_asked_of_the_broker(scripted: Broker5, writer: log.Writer) -> None:
    for expiry, asked in ((86_400, 86_400), (None, 0xFFFFFFFF)):
        ingest = five(scripted, writer, "t", session_expiry=expiry, client_id="asks")
        ingest.stop()
        connect = [p for p in scripted.received if p.name == "CONNECT"][-1]
        assert connect.connect and not connect.connect.clean_start
        assert connect.properties.first(Id.SESSION_EXPIRY) == asked
        assert connect.properties.first(Id.TOPIC_ALIAS_MAXIMUM, 0) == 0
        assert connect.properties.first(Id.REQUEST_PROBLEM_INFORMATION) == 0
    with pytest.raises(ValueError, match=r"session_expiry must be None in MQTT 3\.1\.1, not 5"):
        Ingest(writer, ("b", 1), ["t"], session_expiry=5)


def test_messages_wait_for_the_session_expiry_and_no_longer(
    scripted: Broker5, writer: log.Writer
) -> None:
    said: list[str] = []
    for away, comes in ((60, True), (3601, False)):
        ingest = five(scripted, writer, "t", session_expiry=3600, client_id="away")
        ingest.stop()
        assert scripted.until(lambda: not scripted.online(b"away"), PATIENCE)
        scripted.publish(b"t", b"%d" % away, 1)
        scripted.pass_time(away)
        before = writer.next_offset
        ingest = five(
            scripted, writer, "t", session_expiry=3600, client_id="away", say=said.append
        )
        assert ingest.client.session_present == comes
        assert [f"{scripted.address} has lost the session of away" in text for text in said] == (
            [True] * (not comes)
        )
        scripted.publish(b"t", b"now", 1)
        found: list[bytes] = []

        def take(_: int) -> None:
            start = before + len(found)  # noqa: B023
            found.extend(m["payload"] for m in rows(writer, start))  # noqa: B023

        until(lambda: b"now" in found, ingest.poll, take)  # noqa: B023
        ingest.stop()
        assert found == [b"%d" % away] * comes + [b"now"]


def test_a_broker_that_keeps_the_session_for_less(scripted: Broker5, writer: log.Writer) -> None:
    assert five(scripted, writer, "t", session_expiry=3600).session_expiry is None
    scripted.announces = properties([(Id.SESSION_EXPIRY, 60)])
    ingest = five(scripted, writer, "t", session_expiry=3600, client_id="less")
    assert ingest.session_expiry == 60
    ingest.stop()


def test_a_filter_that_is_refused_with_its_reason(scripted: Broker5, writer: log.Writer) -> None:
    scripted.answer_with("SUBACK", 0x9E)
    with pytest.raises(IngestError, match=r"\$share/g/t \(SUBACK: reason code 0x9e, shared"):
        five(scripted, writer, "$share/g/t")


def test_no_more_in_flight_than_the_ingest_takes(scripted: Broker5, writer: log.Writer) -> None:
    """An acknowledgement gives its place back, and leaves after the sync."""
    ingest = five(scripted, writer, "t", incoming=5, delay_ms=0)
    for i in range(200):
        scripted.publish(b"t", b"%d" % i, 1 + i % 2)
    until(lambda: writer.synced == 200, ingest.poll)
    ingest.stop()
    assert [int(m["payload"]) for m in rows(writer)] == list(range(200))


# A message that breaks a rule


def numbers(*services: Service) -> list[set[int]]:
    """The numbers that each of these has landed."""
    return [
        {int(p) for f in files(each.out) for p in pq.read_table(f)["payload"].to_pylist()}
        for each in services
    ]


def test_a_broken_property_is_reported_and_the_rest_comes(tmp_path: Path) -> None:
    with Broker5() as scripted:
        service = Service(
            scripted, tmp_path, "--filter", "dev/#", "--mqtt-version", "5",
            "--client-id", "broken", "--session-expiry", "600",
        )  # fmt: skip
        service.until((service.log / "subscribed.json").exists)
        for i in range(50):
            scripted.publish(b"dev/a", b"%d" % i, 1, more=[(Id.CONTENT_TYPE, b"x")])
        # The content type is not UTF-8.
        scripted.send(build5.publish(b"dev/a", b"bad", properties=[(Id.CONTENT_TYPE, b"\xff")]))

        def ends() -> list[int]:
            return [p.code for p in scripted.received if p.name == "DISCONNECT"]

        service.until(ends)
        for i in range(50, 100):
            scripted.publish(b"dev/a", b"%d" % i, 1)
        service.until(lambda: len(numbers(service)[0]) == 100)
        said = service.stop()
        assert ends() == [0x81, 0]
        assert scripted.complaints == []
    assert f"{scripted.address} broke a rule of MQTT, so the ingest reconnects: packet" in said
    assert "text of property 0x3" in said
    assert numbers(service) == [set(range(100))]
    assert service.received() == 100, "what came before it was acknowledged, and came once"


def test_a_message_that_mosquitto_should_not_have_passed_on(
    server: broker.Broker, writer: log.Writer, publisher: Client
) -> None:
    """This version of mosquitto passes on two kinds of broken properties.

    They are a payload format that is neither 0 nor 1, and a response topic with a wildcard.
    They are kept as they are, and everything else comes.
    """
    ingest = five(server, writer, "bad/#", qos=2, client_id="bad")
    wrong: list[list[tuple[int, object]]] = [[(1, 2)], [(8, b"#")]]
    with Wire5(server) as wire:
        assert wire.connect(b"wire").code == 0
        for pid, (more, qos) in enumerate([(wrong[0], 1), (wrong[1], 1), (wrong[0], 2)], 1):
            answer = wire.ask(build5.publish(b"bad/y", b"bad", qos, pid, more))
            assert answer.name == ("PUBACK" if qos == 1 else "PUBREC")
            if qos == 2:
                assert wire.ask(build5.ack("PUBREL", pid)).name == "PUBCOMP"
    publish(publisher, b"bad/x", b"4")
    until(lambda: writer.next_offset >= 4, ingest.poll, publisher.poll)
    ingest.stop()
    assert ingest.client.stats.losses == 0
    kept = [(m["payload"], m["payload_format"], m["response_topic"]) for m in rows(writer)]
    assert sorted(kept, key=str) == sorted(
        [(b"bad", 2, None), (b"bad", None, "#"), (b"bad", 2, None), (b"4", None, None)], key=str
    )


# Several that share the load


def test_two_share_the_load_and_one_dies(tmp_path: Path) -> None:
    """Each message comes to one of them.

    What mosquitto has given to the one that is dead waits for its return.
    """
    services = []
    with broker.mosquitto(extra=UNLIMITED) as server:
        publisher = Client(b"publisher", server.host, server.port, version=5, tx_size=1 << 16)
        publisher.connect()
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            service = Service(
                server, tmp_path / name, "--filter", "$share/g/dev/#", "--mqtt-version", "5",
                "--client-id", name, "--session-expiry", "3600",
            )  # fmt: skip
            service.until((service.log / "subscribed.json").exists)
            services.append(service)
        first, second = services
        sent = 0

        def some(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                publish(publisher, b"dev/a", b"%d" % sent)
                sent += 1
            assert publisher.wait(PATIENCE * 1000)

        def all_there() -> bool:
            return set.union(*numbers(first, second)) == set(range(sent))

        some(300)
        second.until(lambda: second.received() > 10)
        second.kill()
        some(300)
        second.start()
        second.until(all_there)
        some(100)
        second.until(all_there)
        for service in services:
            service.stop()
        publisher.disconnect()
    one, two = numbers(first, second)
    assert one and two and not one & two


def test_the_embedded_broker_gives_all_to_those_that_are_there(tmp_path: Path) -> None:
    """With the properties that messages carry."""
    with (
        Embedded5() as server,
        log.Writer(tmp_path / "one") as one,
        log.Writer(tmp_path / "two") as two,
    ):
        first, second = (five(server, writer, "$share/g/t") for writer in (one, two))
        publisher = Client(b"publisher", server.host, server.port, version=5, tx_size=1 << 16)
        publisher.connect()
        turns = [first.poll, second.poll, publisher.poll]

        def some(count: int) -> None:
            for i in range(count):
                while publisher.publish(b"t", b"%d" % i, 1, properties=CARRIED) is None:
                    for turn in turns:
                        turn(1)

        some(100)
        until(lambda: one.next_offset + two.next_offset == 100, *turns)
        assert one.next_offset and two.next_offset
        until(lambda: not publisher.pending and not second.client.queued, *turns)
        stays, away = one.next_offset, two.next_offset
        second.stop()
        turns.remove(second.poll)
        some(100)
        until(lambda: one.next_offset == stays + 100, *turns)
        first.stop()
        publisher.disconnect()
        assert two.next_offset == away
        kinds = {m["content_type"] for m in rows(one) + rows(two)}
        names = [each["name"] for each in rows(two)[-1]["user_properties"]]
    assert (kinds, names) == ({"application/senml+json"}, ["b", "a", "b"])


def test_an_ingest_that_leaves_for_ever_ends_its_session(tmp_path: Path) -> None:
    """A last run with an expiry of 0 takes what waits; then its share goes to the others."""
    with (
        broker.mosquitto(extra=UNLIMITED) as server,
        log.Writer(tmp_path / "one") as one,
        log.Writer(tmp_path / "two") as two,
    ):
        stays = five(server, one, "$share/g/t", session_expiry=3600)
        five(server, two, "$share/g/t", session_expiry=3600).stop()
        publisher = Client(b"publisher", server.host, server.port, tx_size=1 << 16)
        publisher.connect()

        def some(first: int) -> None:
            for i in range(first, first + 100):
                publish(publisher, b"t", b"%d" % i)
            assert publisher.wait(PATIENCE * 1000)

        some(0)
        leaves = five(server, two, "$share/g/t", session_expiry=0)
        until(lambda: one.next_offset + two.next_offset == 100, stays.poll, leaves.poll)
        taken = two.next_offset
        leaves.stop()
        some(100)
        until(lambda: one.next_offset + taken == 200, stays.poll)
        again = five(server, two, "$share/g/t", session_expiry=0)
        assert not again.client.session_present
        for ingest in (stays, again):
            ingest.stop()
        publisher.disconnect()
        found = [int(m["payload"]) for writer in (one, two) for m in rows(writer)]
    assert taken and sorted(found) == list(range(200))
