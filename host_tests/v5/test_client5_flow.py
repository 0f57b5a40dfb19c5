"""Flow control: the places of messages that are dropped by hand.

The oracle of ../hostile holds all others to the Receive Maximum.
"""

import io

import pytest

from brokers.core import types
from brokers.fake import FakeBroker
from packets import build
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, Reports, again, made, named, online, settled, until

ONE = properties([(Id.RECEIVE_MAXIMUM, 1)])
ACKS = types("PUBACK", "PUBREC")


def test_a_message_from_publish_from_is_counted_until_it_is_dropped(broker: FakeBroker) -> None:
    broker.announces = ONE
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
    broker.announces = ONE
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
    assert [packet.payload for packet in broker.onward] == [b"1", b"2"]


def test_a_new_connection_forgets_what_was_dropped_in_flight(broker: FakeBroker) -> None:
    broker.announces = ONE
    broker.withhold(ACKS)
    client = online(broker)
    packet_id = client.publish(b"t", b"1", 1)
    until(broker.keeps_back, client)
    client.drop(packet_id)
    again(broker, client)
    assert client.publish(b"t", b"2", 1)
    broker.release()
    settled(client)


def test_a_message_that_is_dropped_in_flight_alone_keeps_its_place(clock: Clock) -> None:
    """The broker has closed the connection on it, so messages leave one at a time."""
    one = (Id.RECEIVE_MAXIMUM, 1)
    bench = Bench5(clock)
    first, second = [bench.client.publish(b"t", b"x", 1) for _ in range(2)]
    bench.accepted(one).lose()
    bench.accepted(one).feed(build.PINGRESP)
    assert [p.pid for p in bench.packets() if p.name == "PUBLISH"] == [first]
    bench.client.drop(first)
    bench.drain()
    assert bench.names() == []
    bench.feed(build.ack("PUBACK", first))
    assert [p.pid for p in bench.packets()] == [second]


def test_a_place_is_free_after_ack_timeout_if_the_broker_does_not_answer(
    broker: FakeBroker,
) -> None:
    broker.announces = ONE
    broker.withhold(ACKS)
    client = online(broker, ack_timeout=1)
    packet_id = client.publish(b"t", b"1", 1)
    until(broker.keeps_back, client)
    client.drop(packet_id)
    until(lambda: client.publish(b"t", b"2", 1), client)
    assert client.stats.losses == 1
    broker.release()
    settled(client)


@pytest.mark.parametrize(("limit", "payload", "retain"), [
    ((Id.MAXIMUM_QOS, 1), b"x", False),
    ((Id.RETAIN_AVAILABLE, 0), b"x", True),
    ((Id.MAXIMUM_PACKET_SIZE, 100), bytes(200), False),
], ids=["Maximum QoS", "Retain Available", "Maximum Packet Size"])  # fmt: skip
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
