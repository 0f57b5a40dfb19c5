"""Flow control: how many QoS 1 and 2 messages are in flight, and what must not wait for them."""

from __future__ import annotations

import io

import pytest

from brokers.core import types
from brokers.fake import FakeBroker
from packets import build
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, Reports, again, made, named, online, settled, until

ACKS = types("PUBACK", "PUBREC")
MANY = 6


def _allow(broker: FakeBroker, most: int) -> None:
    broker.announces = properties([(Id.RECEIVE_MAXIMUM, most)])


def _payloads(broker: FakeBroker) -> list[bytes]:
    return [packet.payload for packet in broker.onward]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("most", [1, 2, 3, MANY])
def test_what_was_queued_offline_goes_as_the_broker_allows(
    broker: FakeBroker, most: int, qos: int
) -> None:
    _allow(broker, most)
    broker.withhold(ACKS)
    client = made(broker)
    for i in range(MANY):
        assert client.publish(b"t", b"%d" % i, qos)
    client.connect(int(SECONDS * 1000))
    until(lambda: len(named(broker, "PUBLISH")) == most, client)
    client.ping()
    until(lambda: named(broker, "PINGREQ"), client)  # all that may go has gone before it
    assert len(named(broker, "PUBLISH")) == most
    broker.release()
    settled(client)
    assert _payloads(broker) == [b"%d" % i for i in range(MANY)]
    assert client.stats.resent == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_the_receive_maximum_shrinks_with_a_reconnect(broker: FakeBroker, qos: int) -> None:
    _allow(broker, 5)
    broker.withhold(ACKS)
    client = online(broker, clean_session=False)
    for i in range(5):
        client.publish(b"t", b"%d" % i, qos)
    until(lambda: len(named(broker, "PUBLISH")) == 5, client)
    _allow(broker, 2)
    again(broker, client)
    broker.release()
    settled(client)  # the broker complains of a third one in flight
    taken = [b"%d" % i for i in range(5)]
    assert _payloads(broker) == (taken + taken if qos == 1 else taken)


def test_no_more_messages_are_accepted_than_may_be_in_flight(broker: FakeBroker) -> None:
    _allow(broker, 2)
    broker.withhold(ACKS)
    client = online(broker)
    assert client.publish(b"t", b"1", 1)
    assert client.publish(b"t", b"2", 2)
    assert client.publish(b"t", b"3", 1) is None
    until(lambda: len(named(broker, "PUBLISH")) == 2, client)
    broker.release()
    settled(client)
    assert client.publish(b"t", b"3", 1)
    settled(client)


def test_what_is_not_counted_does_not_wait(broker: FakeBroker) -> None:
    _allow(broker, 1)
    broker.withhold(types("PUBACK"))
    client = made(broker)
    for i in range(3):
        client.publish(b"t", b"%d" % i, 1)
    client.publish(b"t", b"not counted", 0)
    client.connect(int(SECONDS * 1000))
    until(broker.keeps_back, client)
    granted = client.subscribe(b"s", lambda message: None)
    gone = client.unsubscribe(b"other")
    client.publish(b"t", b"later", 0)
    until(lambda: granted.granted is not None and gone.granted is not None, client)
    until(lambda: b"later" in _payloads(broker), client)
    assert _payloads(broker) == [b"0", b"not counted", b"later"]
    broker.release()
    settled(client)
    assert _payloads(broker) == [b"0", b"not counted", b"later", b"1", b"2"]


def test_pubrel_does_not_wait(clock: Clock) -> None:
    bench = Bench5(clock, clean_session=False).accepted((Id.RECEIVE_MAXIMUM, 3))
    pids = [bench.client.publish(b"t", b"%d" % i, 2) for i in range(3)]
    bench.drain()
    bench.feed(*(build.ack("PUBREC", pid) for pid in pids[:2]))
    assert bench.names() == ["PUBLISH"] * 3 + ["PUBREL"] * 2
    bench.outage()
    bench.accepted((Id.RECEIVE_MAXIMUM, 1), present=True)
    bench.drain()
    assert [(p.name, p.pid) for p in bench.packets()] == [("PUBREL", pid) for pid in pids[:2]]
    bench.feed(build.ack("PUBCOMP", pids[0]))
    assert bench.names() == []  # two are still in flight
    bench.feed(build.ack("PUBCOMP", pids[1]))
    (message,) = bench.packets()
    assert (message.name, message.dup, message.pid) == ("PUBLISH", 1, pids[2])


def test_a_message_from_publish_from_is_counted_until_it_is_dropped(broker: FakeBroker) -> None:
    _allow(broker, 1)
    client = made(broker)
    assert client.drop(client.publish_from(b"large", bytes(5000), 1))
    assert client.publish(b"t", b"1", 1)
    client.connect(int(SECONDS * 1000))
    settled(client)
    broker.withhold(types("PUBACK"))
    assert client.drop(client.publish_from(b"large", bytes(5000), 1))
    assert client.publish_from(b"large", io.BytesIO(bytes(5000)), 1)
    assert client.publish(b"t", b"2", 1) is None
    assert client.publish(b"t", b"0", 0) == 0
    until(lambda: len(named(broker, "PUBLISH")) == 3, client)
    assert client.publish(b"t", b"2", 1) is None
    broker.release()
    settled(client)
    assert client.publish(b"t", b"2", 1)
    settled(client)
    assert [p.topic for p in broker.onward] == [b"t", b"large", b"t", b"t"]


@pytest.mark.parametrize(("qos", "large"), [(1, False), (2, False), (1, True)])
def test_a_message_that_is_dropped_in_flight_keeps_its_place_until_the_broker_answers(
    broker: FakeBroker, qos: int, large: bool
) -> None:
    _allow(broker, 1)
    broker.withhold(ACKS)
    client = online(broker)
    packet_id = client.publish_from(b"t", b"1", 1) if large else client.publish(b"t", b"1", qos)
    until(broker.keeps_back, client)
    assert client.drop(packet_id)
    assert not client.pending
    assert client.publish(b"t", b"2", qos) is None
    assert client.publish_from(b"t", b"2", 1) is None
    broker.release()
    until(lambda: client.publish(b"t", b"2", qos), client)
    settled(client)
    assert _payloads(broker) == [b"1", b"2"]


def test_a_new_connection_forgets_what_was_dropped_in_flight(broker: FakeBroker) -> None:
    _allow(broker, 1)
    broker.withhold(ACKS)
    client = online(broker)
    packet_id = client.publish(b"t", b"1", 1)
    until(broker.keeps_back, client)
    client.drop(packet_id)
    again(broker, client)
    assert client.publish(b"t", b"2", 1)
    broker.release()
    settled(client)


def test_a_place_is_free_after_ack_timeout_if_the_broker_does_not_answer(
    broker: FakeBroker,
) -> None:
    _allow(broker, 1)
    broker.withhold(ACKS)
    client = online(broker, ack_timeout=1)
    packet_id = client.publish(b"t", b"1", 1)
    until(broker.keeps_back, client)
    client.drop(packet_id)
    until(lambda: client.publish(b"t", b"2", 1), client)
    assert client.stats.losses == 1
    broker.release()
    settled(client)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_accepted_in_an_outage_waits_behind_what_was_in_flight(
    broker: FakeBroker, qos: int
) -> None:
    _allow(broker, 2)
    broker.withhold(ACKS)
    client = online(broker, inflight=6, clean_session=False)
    client.publish(b"t", b"0", qos)
    until(broker.keeps_back, client)
    broker.kill()
    until(lambda: not client.connected, client)
    for i in range(1, 6):
        assert client.publish(b"t", b"%d" % i, qos)
    broker.restart()
    until(lambda: client.connected and broker.keeps_back(), client)
    broker.release()
    settled(client)  # the broker complains of a third one in flight
    assert list(dict.fromkeys(_payloads(broker))) == [b"%d" % i for i in range(6)]


@pytest.mark.parametrize(
    ("limit", "payload", "retain"),
    [
        ((Id.MAXIMUM_QOS, 1), b"x", False),
        ((Id.RETAIN_AVAILABLE, 0), b"x", True),
        ((Id.MAXIMUM_PACKET_SIZE, 100), bytes(200), False),
    ],
    ids=["Maximum QoS", "Retain Available", "Maximum Packet Size"],
)
def test_what_was_past_pubrec_in_a_forgotten_session_keeps_to_the_limits(
    broker: FakeBroker, limit: tuple[int, int], payload: bytes, retain: bool
) -> None:
    """It would go as new, and the broker takes it no more."""
    reports = Reports()
    broker.withhold(types("PUBCOMP"))
    client = online(broker, clean_session=False, on_dropped=reports)
    pid = client.publish(b"t", payload, 2, retain)
    until(lambda: named(broker, "PUBREL"), client)
    broker.announces = properties([limit])
    broker.forget(b"c")
    broker.release()
    until(lambda: client.stats.connects == 2, client)
    settled(client)
    assert [report[:2] for report in reports.seen] == [(pid, b"t")]
    assert client.stats.dropped == 1
