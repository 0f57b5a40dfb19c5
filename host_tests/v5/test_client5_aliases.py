"""Topic aliases: what they do not take.

When a topic name is left out, and that no alias outlives its connection, ../hostile shows.
"""

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


def test_what_an_alias_does_not_take(broker: FakeBroker) -> None:
    client = online(broker, tx_size=64)
    for name, error in ((b"", ValueError), (b"a/+", ValueError), (b"#", ValueError)):
        with pytest.raises(error, match="topic name"):
            client.alias(name)
    with pytest.raises(TypeError, match="topic name"):
        client.alias(5)
    alias = client.alias("a")
    with pytest.raises(ValueError, match="tx_size"):
        alias.publish(bytes(100))
    assert client.publish(b"other", b"x") == 0
    assert alias.publish("y") == 0
    arrived(broker, client)
    sent = [
        (p.topic, p.properties.first(Id.TOPIC_ALIAS), p.payload) for p in named(broker, "PUBLISH")
    ]
    assert sent == [(b"other", None, b"x"), (b"a", 1, b"y")]
