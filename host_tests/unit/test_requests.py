"""SUBSCRIBE and UNSUBSCRIBE: what the broker has in the end, and shared subscriptions."""

import pytest

import peer
from brokers.scripted import SUBSCRIBE, UNSUBSCRIBE, ScriptedBroker
from unit.fake_link import Clock


@pytest.fixture
def broker(clock: Clock) -> ScriptedBroker:
    return ScriptedBroker(clock)


def ignore(message) -> None:
    """A handler."""


# Unsubscribing


def test_many_requests_at_once(clock: Clock) -> None:
    """More than one buffer holds, and more than there are places."""
    broker = ScriptedBroker(clock, subscriptions=20, tx_size=64, inflight=1)
    names = [b"filter/%d" % number for number in range(20)]
    requests = [broker.client.subscribe(name, ignore) for name in names]
    for wanted in (b"\0", b""):
        broker.until(lambda w=wanted, r=requests: [x.granted for x in r] == [w] * 20)
        if wanted:
            requests = [broker.client.unsubscribe(name) for name in names]
    assert [name for _kind, name in broker.requests] == names * 2


@pytest.mark.parametrize("offline", [False, True])
def test_a_subscription_that_was_replaced_is_not_asked_for_after_a_loss(
    offline: bool, broker: ScriptedBroker
) -> None:
    """Its retained messages would come twice, at the QoS of before."""
    broker.online()
    broker.mute = {SUBSCRIBE}
    for name in (b"one", b"two"):
        broker.client.subscribe(name, ignore)
    broker.turns()
    if offline:
        broker.close()
        broker.losses(1)
    broker.client.subscribe(b"two", ignore, 1)
    if not offline:
        broker.turns()
        broker.close()
        broker.losses(1)
    broker.mute.clear()
    broker.requests.clear()
    broker.until(lambda: broker.filters == {b"one": 0, b"two": 1})
    broker.turns()
    assert sorted(broker.requests) == [(SUBSCRIBE, b"one"), (SUBSCRIBE, b"two")]


# Shared subscriptions


SHARED: list = [
    (b"$share/g/dev/#", b"dev/1/state", True),
    (b"$share/g/dev/#", b"dev", True),
    (b"$share/g/dev/+", b"dev/1", True),
    (b"$share/g/dev/1", b"dev/1", True),
    (b"$share/g//dev", b"/dev", True),
    (b"$share/g/#", b"any/thing", True),
    (b"$share/g/#", b"$SYS/uptime", False),
    (b"$share/g/+/uptime", b"$SYS/uptime", False),
    (b"$share/g/dev/#", b"other/1", False),
    (b"$share/g/dev/1", b"$share/g/dev/1", False),
    (b"$shared/g/dev", b"dev", False),
    (b"$shared/g/dev", b"$shared/g/dev", True),
    (b"share/g/dev", b"share/g/dev", True),
]


@pytest.mark.parametrize(("topic_filter", "topic", "matches"), SHARED, ids=str)
def test_a_shared_subscription_is_routed_by_what_is_behind_the_group(
    topic_filter: bytes, topic: bytes, matches: bool, broker: ScriptedBroker
) -> None:
    got: list[bytes] = []
    broker.client.subscribe(topic_filter, lambda message: got.append(message.topic), 1)
    broker.online()
    assert broker.requests == [(SUBSCRIBE, topic_filter)], "the broker gets all of it"
    for pid in (1, 2):  # the second by what is remembered of the first
        broker.connections[-1].stream.incoming.append(peer.publish(topic, b"x", 1, pid))
    broker.turns()
    assert got == [topic, topic] * matches
    assert broker.client.stats.unrouted == (0 if matches else 2)
    assert broker.client.unsubscribe(topic_filter) is not None
    broker.turns()
    assert broker.requests[-1] == (UNSUBSCRIBE, topic_filter)
