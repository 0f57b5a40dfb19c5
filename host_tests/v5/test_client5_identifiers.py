"""Messages with subscription identifiers, or that begin alike, go to the right handlers."""

from __future__ import annotations

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


def test_the_copy_for_a_subscription_that_has_ended_goes_to_no_other(bench: Listeners) -> None:
    one, two = bench.hear("one", b"a/b"), bench.hear("two", b"a/+")
    bench.client.unsubscribe(b"a/b")
    assert bench.heard(message(b"x", one), message(b"x", two)) == ["two"]


def test_a_new_handler_gets_what_is_on_its_way_to_the_old_one(bench: Listeners) -> None:
    old = bench.hear("old", b"a/b")
    assert bench.hear("new", b"a/b") == old
    assert bench.heard(message(b"x", old)) == ["new"]


def test_identifiers_from_before_a_reboot_are_not_believed(clock: Clock) -> None:
    """The broker has kept messages with the identifiers that the subscriptions had then."""
    bench = Listeners(clock, clean_session=False)
    one, two = bench.hear("a/b", b"a/b"), bench.hear("c/+", b"c/+")
    for packet, name in (
        (message(b"x", two), "a/b"),
        (message(b"y", one, topic=b"c/d"), "c/+"),
        (message(b"z", 99), "a/b"),
        (message(b"z", 200), "a/b"),
        (message(b"z", 268_435_455), "a/b"),
    ):
        assert bench.heard(packet) == [name]


def test_what_is_remembered_of_one_topic_name_is_not_believed_of_another(clock: Clock) -> None:
    """More names come than are remembered, all with the same properties."""
    bench = Listeners(clock, clean_session=False)
    bench.hear("a/b", b"a/b")
    two = bench.hear("c/+", b"c/+")
    names = [b"c/%d" % i for i in range(4)]
    assert bench.heard(*(message(b"x", two, topic=name) for name in names)) == ["c/+"] * 4
    assert bench.heard(message(b"x", two)) == ["a/b"]


BROKEN = [b"\2\x0b\xc8", b"\2", b"\2\x0b", b"\1\x0b", b""]
# An identifier of 0 is none, with needless bytes or without.
BROKEN += [b"\2\x0b\0", b"\3\x0b\x80\0", b"\4\x0b\x80\x80\0", b"\5\x0b\x80\x80\x80\0"]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("block", BROKEN)
def test_a_malformed_identifier_calls_no_handler(
    block: bytes, qos: int, known: bool, bench: Listeners
) -> None:
    """200 takes two bytes; the first of them alone is malformed, also for a known topic name."""
    for n in range(1, 200):
        bench.hear("other", b"other/%d" % n)
    assert bench.hear("one", b"a/b", 1) == 200
    if known:
        assert bench.heard(message(b"on", 200, qos=qos)) == ["one"]
    body = b"\0\3a/b" + (b"\0\7" if qos else b"") + block
    assert bench.heard(bytes((0x30 | qos << 1, len(body))) + body) == []
    assert bench.farewell()[1].kind == "protocol"


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


@pytest.mark.parametrize("tagged", [False, True])
def test_the_handlers_that_are_subscribed_get_it(tagged: bool, bench: Listeners) -> None:
    """Between messages that are all the same, subscriptions come and go."""
    data = [message(b"x", *[bench.hear("one", b"a/b")] * tagged)] * 8
    assert bench.heard(*data) == ["one"] * 8
    bench.hear("another", b"a/b")
    assert bench.heard(*data) == ["another"] * 8
    bench.hear("two", b"a/+")
    assert bench.heard(*data) == (["another"] if tagged else ["another", "two"]) * 8
    bench.client.unsubscribe(b"a/b")
    assert bench.heard(*data) == ([] if tagged else ["two"] * 8)
    assert bench.client.connected


@pytest.mark.parametrize("missing", range(1, 8))
def test_a_message_that_ends_early_breaks_a_rule(missing: int, bench: Listeners) -> None:
    """Behind it in the buffer lies what a message like it had there."""
    whole = message(b"", bench.hear("one", b"a/b"))
    assert bench.heard(*[whole] * 8) == ["one"] * 8
    cut = bytes((whole[0], whole[1] - missing)) + whole[2 : len(whole) - missing]
    assert bench.heard(cut) == []
    assert bench.farewell()[0] in (0x81, 0x82)


@pytest.mark.parametrize("more", [(), ((Id.PAYLOAD_FORMAT, 2),)])
def test_a_topic_name_that_is_not_valid_goes_to_nobody(more: Any, bench: Listeners) -> None:
    """Not even to the subscription that the broker names."""
    one = bench.hear("one", b"a/+")
    bad = build.publish(b"a/+", b"x", 1, 7, [(IDENTIFIER, one), *more])
    assert bench.heard(bad, bad, message(b"x", one)) == ["one"]
    stats = bench.client.stats
    assert (stats.skipped, stats.received, stats.losses) == (2, 1, 0)
