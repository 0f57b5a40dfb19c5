"""Messages with subscription identifiers, or that begin alike, go to the right handlers."""

import random
from typing import Any

import pytest

from packets import build
from packets.properties import Id
from unit.fake_link import Clock
from v5.clients5 import Bench5

IDENTIFIER = Id.SUBSCRIPTION_IDENTIFIER
TOPICS = (b"a/b", b"a/c", b"a", b"a/b/c")
SETS: tuple[list[tuple[int, Any]], ...] = (
    [],
    [(Id.CONTENT_TYPE, b"t")],
    [(Id.CONTENT_TYPE, b"text/plain")],
    [(Id.MESSAGE_EXPIRY, 60)],
    [(Id.CONTENT_TYPE, b"t" * 100)],
    [(Id.CONTENT_TYPE, b"t" * 200)],  # a length of two bytes
)
PAYLOADS = (b"", b"\0", b"x", b"22", b"\3\0\1t", b"payload" * 20)
ROUNDS = 4000
BOTH = ["one", "two"]


class Listeners(Bench5):
    """A client that is online, and whose handlers write down who was called."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        super().__init__(clock, **options)
        self.accepted()
        self.seen: list[tuple[str, bytes]] = []

    def hear(self, name: str, topic_filter: bytes, qos: int = 0, handler: Any = None) -> int:
        """Subscribe with a handler of that name, or with this one; return the identifier."""
        if handler is None:
            handler = lambda message: self.seen.append((name, message.payload))  # noqa: E731
        self.client.subscribe(topic_filter, handler, qos)
        self.client.poll()
        (packet,) = self.packets()
        self.feed(build.answer("SUBACK", packet.pid, bytes((qos,))))
        return packet.properties.first(IDENTIFIER)

    def heard(self, *data: bytes) -> list[str]:
        """Return who was called by these packets."""
        self.seen.clear()
        self.feed(*data)
        return [name for name, _payload in self.seen]


@pytest.fixture
def bench(clock: Clock) -> Listeners:
    return Listeners(clock, subscriptions=255)


def message(payload: bytes, *identifiers: int, qos: int = 0, topic: bytes = b"a/b") -> bytes:
    """A PUBLISH with these identifiers."""
    return build.publish(topic, payload, qos, 7, [(IDENTIFIER, i) for i in identifiers])


@pytest.mark.parametrize("first", [1, 126, 127, 128])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_copy_calls_its_handler_once(qos: int, first: int, bench: Listeners) -> None:
    for n in range(1, first):
        bench.hear("other", b"other/%d" % n)
    one = bench.hear("one", b"a/b", qos)
    two = bench.hear("two", b"a/+", qos)
    assert (one, two) == (first, first + 1)
    for payload in PAYLOADS[:-1]:
        for identifiers, names in {(one,): ["one"], (two,): ["two"], (two, one): BOTH}.items():
            assert bench.heard(message(payload, *identifiers, qos=qos)) == names
            if qos == 2:
                bench.feed(build.ack("PUBREL", 7))
    assert bench.heard(message(b"x", qos=qos)) == BOTH
    assert bench.client.connected


# Messages that begin alike are found by their first bytes


@pytest.mark.parametrize("seed", range(2))
def test_each_message_arrives_as_it_was_sent(clock: Clock, seed: int) -> None:
    """Runs of the same topic name and properties, with changes at any time."""
    chance = random.Random(seed)
    bench = Listeners(clock)
    seen: list[tuple[bytes, bytes, int, int, bytes | None]] = []

    def take(m: Any) -> None:
        found = m.properties.get(Id.CONTENT_TYPE)
        seen.append((m.topic, m.payload, m.qos, m.retain, found))

    identifier = bench.hear("", b"a/#", 2, take)
    topic, properties, qos, retain = TOPICS[0], SETS[0], 0, 0
    sent = []
    for _ in range(ROUNDS):
        if chance.random() < 0.3:
            topic = chance.choice(TOPICS)
        if chance.random() < 0.3:
            properties = chance.choice(SETS)
            if chance.random() < 0.5:
                properties = [*properties, (IDENTIFIER, identifier)]
        if chance.random() < 0.2:
            qos, retain = chance.choice((0, 0, 0, 1, 2)), chance.choice((0, 1))
        payload = chance.choice(PAYLOADS)
        bench.feed(build.publish(topic, payload, qos, 7, properties, retain=retain))
        if qos == 2:
            bench.feed(build.ack("PUBREL", 7))
        kinds = [value for number, value in properties if number == Id.CONTENT_TYPE]
        sent.append((topic, payload, qos, retain, kinds[0] if kinds else None))
    assert seen == sent
    assert bench.client.connected
