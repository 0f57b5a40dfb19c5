"""No message can wedge the client, and no outage can drop one.

A message counts as refused by a connection that

- the broker had accepted, and on which it then answered something: PINGREQ, if nothing else,
- on which that message alone was under way: no other PUBLISH, no unanswered SUBSCRIBE,
- and that the peer closed before it acknowledged the message.

After two such connections in a row the message goes behind the others; after `give_up` of them it
is set aside, if the broker has acknowledged another message since the first. A connection that
could not be made, was not accepted, or was ended by anything but the peer has the count begin
again: that is what a broker looks like that is killed, however often. So does one that takes a
message on which it had closed.

The first connection may count or not: the message was alone on it by chance.
"""

import errno

import pytest

import peer
from brokers.scripted import CONNECT, PINGREQ, PUBREL, SUBSCRIBE, ScriptedBroker
from peer import Publish
from unit.fake_link import Clock

GIVE_UP = 3
BAD = b"bad"


@pytest.fixture
def broker(clock: Clock) -> ScriptedBroker:
    """A broker that closes the connection on what is published to BAD."""
    broker = ScriptedBroker(clock, give_up=GIVE_UP)
    broker.refuses = is_bad
    return broker


def is_bad(message: Publish) -> bool:
    return message.topic == BAD


def payloads(broker: ScriptedBroker) -> list[bytes]:
    """The payloads of the messages that the broker took, each once, in order."""
    return list(dict.fromkeys(message.payload for message in broker.onward))


def nothing_dropped(broker: ScriptedBroker) -> None:
    assert (broker.client.stats.dropped, broker.reports) == (0, [])


def test_the_application_may_publish_when_a_message_is_dropped(clock: Clock) -> None:
    """The place of the message is free by then."""
    accepted = []
    alarm = lambda *_: accepted.append(broker.client.publish(b"alarm", b"!", 1))  # noqa: E731
    broker = ScriptedBroker(clock, give_up=1, inflight=1, on_dropped=alarm)
    broker.refuses = is_bad
    broker.client.publish(BAD, b"x", 1)
    broker.until(lambda: broker.client.publish(b"good", b"x", 1))
    broker.settled()
    assert accepted[0]
    assert payloads(broker) == [b"x", b"!"]


def test_qos_0_beside_it_accuses_nobody(broker: ScriptedBroker) -> None:
    """The broker closes on QoS 0, while it takes its time for a message: the rest waits for it."""
    broker.ignores = lambda message: message.topic == b"slow"
    broker.client.publish(b"slow", b"1", 1)
    for _ in range(4 * GIVE_UP):
        broker.until(lambda: broker.client.connected and broker.connections[-1].published)
        broker.client.publish(BAD, b"x", 0)
        broker.turns()
    assert [len(each.published) for each in broker.connections] == [2, 1]
    nothing_dropped(broker)
    broker.ignores = broker.refuses = lambda message: False
    broker.settled()
    assert payloads(broker) == [b"1", b"x"]
    nothing_dropped(broker)


def test_a_request_beside_it_accuses_nobody(broker: ScriptedBroker) -> None:
    """The broker closes on SUBSCRIBE while it takes its time for a message, and takes others."""
    client = broker.client
    broker.ignores = lambda message: message.topic == b"slow"
    client.publish(b"slow", b"1", 1)
    for number in range(4 * GIVE_UP):
        client.publish(b"good", b"2", 1)
        broker.until(
            lambda: (
                client.connected
                and any(message.topic == b"slow" for message in broker.connections[-1].published)
            )
        )
        broker.ends = {SUBSCRIBE}
        client.subscribe(b"t", print, number % 2)
        broker.losses(1)
        broker.ends = set()
    broker.ignores = lambda message: False
    broker.settled()
    nothing_dropped(broker)


def test_what_an_ill_broker_closed_on_is_tried_as_often_as_any_other(clock: Clock) -> None:
    """It closes on every message, until it takes one on which it had closed."""
    broker = ScriptedBroker(clock, give_up=6)
    for topic in (b"good", BAD):
        broker.client.publish(topic, b"1", 1)
    broker.refuses = lambda message: True
    broker.losses(20)
    broker.refuses = is_bad
    broker.client.publish(b"good", b"2", 1)
    broker.until(lambda: payloads(broker) == [b"1", b"2"])
    broker.losses(3)
    broker.refuses = lambda message: False
    broker.settled()
    nothing_dropped(broker)


@pytest.mark.parametrize(("last", "new"), [(254, 257), (65_533, 1)])
def test_a_message_that_goes_behind_has_a_new_identifier(
    last: int, new: int, broker: ScriptedBroker
) -> None:
    broker.client.last_id = last
    first = broker.client.publish(BAD, b"x", 1)
    broker.client.publish(b"good", b"1", 1)
    broker.settled()
    pids = [p.pid for c in broker.connections for p in c.published if is_bad(p)]
    assert list(dict.fromkeys(pids)) == [first, new]
    assert broker.reports == [(first, BAD)]


# Outages


OUTAGES = [
    "is refused",
    "closes at CONNECT",
    "does not answer CONNECT",
    "cannot connect",
    "falls silent",
    "network fails",
]


def outage(kind: str, broker: ScriptedBroker) -> None:
    """Have one connection end, or not come about, in that way."""
    broker.connack = {"is refused": 3, "closes at CONNECT": None}.get(kind, 0)
    broker.mute = {CONNECT} if kind == "does not answer CONNECT" else set()
    broker.bench.link.fails = "connect" if kind == "cannot connect" else ""
    broker.refuses = lambda message: kind == "network fails"
    if kind == "network fails":  # the system ends the connection, not the peer
        broker.error = OSError(errno.ETIMEDOUT, "timed out")
    if kind == "falls silent":
        broker.ignores = lambda message: True
        broker.until(lambda: broker.client.connected and broker.connections[-1].published)
        broker.mute = {PINGREQ}
    broker.losses(1)
    if kind in ("falls silent", "does not answer CONNECT"):
        assert broker.client.error.kind == "timeout"
    broker.connack, broker.mute, broker.bench.link.fails, broker.error = 0, set(), "", None
    broker.refuses = broker.ignores = lambda message: False


@pytest.mark.parametrize("closed_before", [0, GIVE_UP - 1])
@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("qos", [1, 2])
def test_an_outage_drops_nothing_and_has_the_count_begin_again(
    qos: int, kind: str, closed_before: int, clock: Clock
) -> None:
    """A broker that dies with a message under way and is away after it may have been killed.

    It has acknowledged others since: without the outages the message would be set aside.
    """
    broker = ScriptedBroker(clock, give_up=GIVE_UP, keepalive=4, timeout=2)
    broker.client.publish(BAD, b"x", qos)
    for _ in range(5 if closed_before else 10 * GIVE_UP):
        broker.client.publish(b"good", b"1", 1)
        broker.refuses = is_bad
        broker.losses(closed_before)
        outage(kind, broker)
    broker.settled()
    assert sorted(payloads(broker)) == [b"1", b"x"]
    nothing_dropped(broker)


# A subscription that is refused


def test_a_subscription_outlives_outages_and_a_peer_that_closes_at_once(clock: Clock) -> None:
    broker = ScriptedBroker(clock, give_up=2, clean_session=True)
    wanted = broker.client.subscribe(b"in", print, 1)
    broker.ends = {SUBSCRIBE}
    broker.losses(2)  # together, and alone for the first time
    outage("cannot connect", broker)
    broker.losses(1)
    outage("cannot connect", broker)
    broker.ends = set()
    client = broker.client
    broker.until(lambda: client.connected and not client.pending + len(client.requests))
    assert wanted.granted == b"\1"
    assert broker.client.stats.dropped == 0


# QoS 2 that is not finished


@pytest.mark.parametrize("count", [1, 4])
def test_a_release_that_is_never_answered_is_settled(count: int, clock: Clock) -> None:
    """The broker has the message: it is not dropped."""
    broker = ScriptedBroker(clock, give_up=GIVE_UP, inflight=4)
    broker.ends = {PUBREL}
    client = broker.client
    for number in range(count):
        client.publish(b"t", b"%d" % number, 2)
    broker.losses(3 * GIVE_UP)
    assert client.pending == count, "nothing shows that the broker is well"
    for number in range(count):
        broker.until(lambda: client.publish(b"t", b"end", 1))
        broker.until(lambda left=count - number: client.pending < left)
    broker.ends = set()
    broker.settled()
    assert set(payloads(broker)) == {b"end", *(b"%d" % number for number in range(count))}
    assert len([c for c in broker.connections for p in c.published if p.qos == 2]) == count
    nothing_dropped(broker)


@pytest.mark.parametrize("kind", OUTAGES[:4])
def test_an_outage_settles_no_release(kind: str, clock: Clock) -> None:
    """A broker may pass a message on only when it is released."""
    broker = ScriptedBroker(clock, give_up=GIVE_UP, keepalive=4, timeout=2)
    broker.ends = {PUBREL}
    broker.client.publish(b"t", b"x", 2)
    broker.losses(1)
    for _ in range(4 * GIVE_UP):
        outage(kind, broker)
        broker.client.publish(b"good", b"1", 1)
        broker.losses(GIVE_UP - 1)
    broker.ends = set()
    broker.settled()
    assert broker.connections[-1].of_type(PUBREL)


def test_a_refused_message_among_good_ones_costs_short_pauses(clock: Clock) -> None:
    """Each connection on which the broker takes one shows that it is well."""
    broker = ScriptedBroker(clock, give_up=5, retry_ms=500, retry_max_ms=60_000, inflight=8)
    broker.refuses = is_bad
    client = broker.client
    broker.online()
    for number in range(3):
        client.publish(BAD, b"%d" % number, 1)
        client.publish(b"t", b"good", 1)
    start = clock.now
    while client.stats.dropped < 3:
        broker.until(lambda: client.publish(b"t", b"good", 1) or client.stats.dropped == 3)
        broker.turns(500)
    assert clock.now - start < 60_000


# By hand


@pytest.mark.parametrize("times", [1, 3])
def test_a_message_in_pieces_that_is_not_acknowledged_in_time_comes_again(
    times: int, clock: Clock
) -> None:
    broker = ScriptedBroker(clock, ack_timeout=5)
    broker.online()
    broker.ignores = lambda message: True
    broker.client.publish_from(b"large", bytes(20_000), 1)
    broker.losses(times)
    assert "acknowledge" in str(broker.client.error)
    broker.ignores = lambda message: False
    broker.settled()
    assert payloads(broker) == [bytes(20_000)]


def test_drop_of_what_is_no_message_in_flight(broker: ScriptedBroker) -> None:
    """The packet identifier of a request is none, nor that of a message that is settled."""
    known = broker.client.publish(b"t", b"x", 1)
    broker.settled()
    broker.mute = {SUBSCRIBE}
    subscription = broker.client.subscribe(b"t", print, 1)
    broker.turns()
    (request,) = broker.connections[-1].of_type(SUBSCRIBE)
    for pid in (known, request.pid, 0, 65_535, 65_536, -1):
        assert broker.client.drop(pid) is False
    broker.connections[-1].stream.incoming.append(peer.suback(request.pid, 1))
    broker.turns()
    assert subscription.granted == b"\1"
    nothing_dropped(broker)
