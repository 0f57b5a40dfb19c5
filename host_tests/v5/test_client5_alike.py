"""Messages that begin alike are found by their first bytes, and arrive like any other."""

from __future__ import annotations

import random
from typing import Any

import pytest

from unit.fake_link import Bench, Clock
from v5 import build5, strict5
from v5.test_client5_identifiers import IDENTIFIER, Calls, online, subscribe

CONTENT_TYPE = 0x03
EXPIRY = 0x02
TOPICS = (b"a/b", b"a/c", b"a", b"a/b/c")
SETS: tuple[list[tuple[int, Any]], ...] = (
    [],
    [(CONTENT_TYPE, b"t")],
    [(CONTENT_TYPE, b"text/plain")],
    [(EXPIRY, 60)],
    [(CONTENT_TYPE, b"t" * 100)],
    [(CONTENT_TYPE, b"t" * 200)],  # a length of two bytes
)
PAYLOADS = (b"", b"\0", b"x", b"\3\0\1t", b"payload" * 20)
ROUNDS = 4000


def publish(bench: Bench, topic: bytes, payload: bytes, qos: int, retain: int, sent: Any) -> None:
    bench.feed(build5.publish(topic, payload, qos, 7 if qos else 0, sent, retain=retain))
    if qos == 2:
        bench.feed(build5.ack("PUBREL", 7))


@pytest.mark.parametrize("seed", range(4))
def test_each_message_arrives_as_it_was_sent(clock: Clock, seed: int) -> None:
    """Runs of the same topic name and properties, with changes at any time."""
    chance = random.Random(seed)
    bench = online(clock)
    seen: list[tuple[bytes, bytes, int, int, bytes | None]] = []

    def take(m: Any) -> None:
        found = m.properties.get(CONTENT_TYPE)
        seen.append((m.topic, m.payload, m.qos, m.retain, found))

    identifier = subscribe(bench, b"a/#", take, 2)
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
        publish(bench, topic, payload, qos, retain, properties)
        kinds = [value for number, value in properties if number == CONTENT_TYPE]
        sent.append((topic, payload, qos, retain, kinds[0] if kinds else None))
    assert seen == sent
    assert bench.client.connected


@pytest.mark.parametrize("tagged", [False, True])
def test_the_handlers_that_are_subscribed_get_it(clock: Clock, tagged: bool) -> None:
    """Between messages that are all the same, subscriptions come and go."""
    bench, calls = online(clock), Calls()
    first = subscribe(bench, b"a/b", calls.handler("one"))
    data = build5.publish(b"a/b", b"x", properties=[(IDENTIFIER, first)] if tagged else [])

    def heard() -> list[str]:
        calls.seen.clear()
        for _ in range(8):
            bench.feed(data)
        return [name for name, _payload in calls.seen]

    assert heard() == ["one"] * 8
    subscribe(bench, b"a/b", calls.handler("another"))
    assert heard() == ["another"] * 8
    subscribe(bench, b"a/+", calls.handler("two"))
    assert heard() == ["another"] * 8 if tagged else ["another", "two"] * 8
    bench.client.unsubscribe(b"a/b")
    assert heard() == [] if tagged else ["two"] * 8
    assert bench.client.connected


@pytest.mark.parametrize("missing", range(1, 8))
def test_a_message_that_ends_early_breaks_a_rule(clock: Clock, missing: int) -> None:
    """Behind it in the buffer lies what a message like it had there."""
    bench, calls = online(clock), Calls()
    first = subscribe(bench, b"a/b", calls.handler("one"))
    whole = build5.publish(b"a/b", b"", properties=[(IDENTIFIER, first)])
    for _ in range(8):
        bench.feed(whole)
    cut = bytes((whole[0], whole[1] - missing)) + whole[2 : len(whole) - missing]
    bench.feed(cut)
    assert len(calls.seen) == 8
    assert not bench.client.connected
    said = [strict5.from_client(p.first, p.body) for p in bench.sent()]
    assert said[-1].name == "DISCONNECT" and said[-1].code in (0x81, 0x82)
