"""Topic aliases: when a topic name is left out, and that this never outlives a connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokers.fake import FakeBroker
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, Reports, again, arrived, made, named, online, serving

TWO = [(Id.TOPIC_ALIAS_MAXIMUM, 2)]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving(TWO) as running:
        yield running


def _on_the_wire(broker: FakeBroker) -> list[tuple[bytes, int | None, bytes]]:
    """Topic name, alias and payload of each PUBLISH, as it was sent."""
    found = []
    for packet in named(broker, "PUBLISH"):
        alias = packet.properties.first(Id.TOPIC_ALIAS)
        found.append((packet.topic, alias, packet.payload))
    return found


def test_the_topic_name_goes_once(broker: FakeBroker) -> None:
    client = online(broker)
    one, two = client.alias(b"one"), client.alias("two")
    for i in range(3):
        assert one.publish(b"%d" % i) == 0
        assert two.publish("text", retain=True) == 0
        arrived(broker, client)
    sent = _on_the_wire(broker)
    assert sent[:2] == [(b"one", 1, b"0"), (b"two", 2, b"text")]
    assert sent[2:] == [(b"", 1, b"1"), (b"", 2, b"text"), (b"", 1, b"2"), (b"", 2, b"text")]
    assert [p.topic for p in broker.onward] == [b"one", b"two"] * 3
    assert [p.retain for p in broker.onward] == [0, 1] * 3


def test_messages_from_before_a_connection_have_their_topic_names(broker: FakeBroker) -> None:
    client = made(broker)
    alias = client.alias(b"a")
    alias.publish(b"0")
    client.connect(int(SECONDS * 1000))
    alias.publish(b"1")
    alias.publish(b"2")
    arrived(broker, client)
    assert _on_the_wire(broker) == [(b"a", None, b"0"), (b"a", 1, b"1"), (b"", 1, b"2")]


@pytest.mark.parametrize("way", ["lost", "disconnect"])
def test_each_connection_begins_again(broker: FakeBroker, way: str) -> None:
    client = online(broker)
    aliases = [client.alias(name) for name in (b"a", b"b")]
    for _ in range(3):
        for alias in [*aliases, *aliases]:
            alias.publish(b"x")
            arrived(broker, client)
        if way == "lost":
            again(broker, client)
        else:
            assert client.disconnect()
            client.connect(int(SECONDS * 1000))
    assert [s[:2] for s in _on_the_wire(broker)] == [(b"a", 1), (b"b", 2), (b"", 1), (b"", 2)] * 3


def test_other_messages_to_the_same_topic_have_its_name(broker: FakeBroker) -> None:
    client = online(broker)
    alias = client.alias(b"a")
    for _ in range(2):
        alias.publish(b"alias")
        client.publish(b"a", b"qos 1", 1)
        client.publish(b"a", b"qos 0", 0)
    arrived(broker, client)
    assert [sent[0] for sent in _on_the_wire(broker)] == [b"a", b"a", b"a", b"", b"a", b"a"]


@pytest.mark.parametrize("room", [0, 1, 5, 30])
@pytest.mark.parametrize("way", ["lose", "outage", "disconnect"])
def test_what_has_not_left_is_set_aside_with_its_connection(
    way: str, room: int, clock: Clock
) -> None:
    reports = Reports()
    bench = Bench5(clock, on_dropped=reports, clean_session=False).accepted(*TWO)
    alias = bench.client.alias(b"aliased")
    alias.publish(b"first")
    bench.drain()
    bench.stream.room = room
    bench.client.publish(b"t", b"before", 1)
    alias.publish(b"second")
    bench.client.publish(b"t", b"after", 0)
    bench.client.poll()
    if way == "disconnect":
        assert not bench.client.disconnect(10)
    else:
        getattr(bench, way)()
    bench.accepted(*TWO, present=True)
    bench.drain()
    if way == "lose":  # then the first message waits for PINGRESP
        bench.feed(b"\xd0\0")
    sent = [p for p in bench.packets() if p.name == "PUBLISH"]
    assert sent[0].payload == b"before"
    assert all(p.topic for p in sent), "a topic name is left out"
    left = room > 2 * 14 - 1  # the second message has, which is not known to be lost
    assert reports.topics == ([] if left else [b""])
    assert bench.client.stats.dropped == (not left)
    bench.client.publish(b"t", b"later", 0)
    alias.publish(b"third")
    pid = sent[0].pid
    bench.feed(b"\x40\2" + pid.to_bytes(2, "big"))
    bench.drain()
    assert [p.payload for p in sent + bench.packets()] == [b"before", b"after", b"later", b"third"]
    assert not bench.client.pending


def test_what_an_alias_does_not_take(broker: FakeBroker) -> None:
    client = online(broker, tx_size=64)
    for name, error in ((b"", ValueError), (b"a/+", ValueError), (b"#", ValueError)):
        with pytest.raises(error, match="topic name"):
            client.alias(name)
    with pytest.raises(TypeError, match="topic name"):
        client.alias(5)
    alias = client.alias(b"a")
    with pytest.raises(ValueError, match="tx_size"):
        alias.publish(bytes(100))
    assert client.publish(b"other", b"x") == 0
    assert alias.publish(b"y") == 0
    arrived(broker, client)
    assert _on_the_wire(broker) == [(b"other", None, b"x"), (b"a", 1, b"y")]


def test_the_client_asks_for_no_aliases_and_takes_none(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    bench.feed(b"\x30\x07\0\1t\3\x23\0\1")
    assert bench.farewell()[0] == 0x94


def test_a_retained_message_with_an_alias_where_the_broker_has_none() -> None:
    with serving([*TWO, (Id.RETAIN_AVAILABLE, 0)]) as broker:
        alias = online(broker).alias(b"a")
        with pytest.raises(ValueError, match="retain"):
            alias.publish(b"x", retain=True)


@pytest.mark.parametrize("fewer", [0, 1])
def test_no_more_aliases_than_the_broker_takes(broker: FakeBroker, fewer: int) -> None:
    """It may take fewer on the next connection."""
    client = online(broker)
    aliases = [client.alias(b"%d" % i) for i in range(3)]
    for alias in aliases:
        alias.publish(b"x")
    arrived(broker, client)
    broker.announces = properties([(Id.TOPIC_ALIAS_MAXIMUM, fewer)][:fewer])
    again(broker, client)
    for alias in aliases:
        alias.publish(b"y")
    arrived(broker, client)
    sent = [(b"0", 1), (b"1", 2), (b"2", None)]
    sent += [(b"0", 1 if fewer else None), (b"1", None), (b"2", None)]
    assert [message[:2] for message in _on_the_wire(broker)] == sent
