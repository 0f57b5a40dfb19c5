"""Topic aliases: when a topic name is left out, and what they do not take.

That none outlives its connection, ../hostile shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokers.fake import FakeBroker
from packets.properties import Id
from v5.clients5 import arrived, named, online, serving

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


def test_a_retained_message_with_an_alias_where_the_broker_has_none() -> None:
    with serving([*TWO, (Id.RETAIN_AVAILABLE, 0)]) as broker:
        alias = online(broker).alias(b"a")
        with pytest.raises(ValueError, match="retain"):
            alias.publish(b"x", retain=True)
