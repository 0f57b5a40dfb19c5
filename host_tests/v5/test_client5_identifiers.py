"""Messages that carry subscription identifiers go to the right handlers."""

from __future__ import annotations

from typing import Any

import pytest

import peer
from unit.fake_link import Bench, Clock
from v5 import build5, strict5

IDENTIFIER = 0x0B


class Calls:
    """Handlers that write down who was called."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []

    def handler(self, name: str) -> Any:
        """A handler of that name."""
        return lambda message: self.seen.append((name, message.payload))


def online(clock: Clock, **options: Any) -> Bench:
    """A client that is online."""
    bench = Bench(clock, version=5, **options)
    bench.greet()
    bench.feed(build5.connack())
    return bench


def subscribe(bench: Bench, topic_filter: bytes, handler: Any, qos: int = 0) -> int:
    """Subscribe, and return the identifier."""
    bench.client.subscribe(topic_filter, handler, qos)
    bench.client.poll()
    (packet,) = [strict5.from_client(p.first, p.body) for p in bench.sent()]
    bench.feed(build5.answer("SUBACK", packet.pid, bytes((qos,))))
    (identifier,) = [value for number, value in packet.properties if number == IDENTIFIER]
    return identifier


def message(payload: bytes, *identifiers: int, qos: int = 0, topic: bytes = b"a/b") -> bytes:
    """A PUBLISH with these identifiers."""
    return build5.publish(topic, payload, qos, 7, [(IDENTIFIER, i) for i in identifiers])


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_copy_for_each_filter_calls_each_handler_once(qos: int, clock: Clock) -> None:
    bench, calls = online(clock), Calls()
    one = subscribe(bench, b"a/b", calls.handler("one"), qos)
    two = subscribe(bench, b"a/+", calls.handler("two"), qos)
    for _ in range(3):
        for identifier in (one, two):
            bench.feed(message(b"x", identifier, qos=qos))
            if qos == 2:
                bench.feed(build5.ack("PUBREL", 7))
    assert calls.seen == [("one", b"x"), ("two", b"x")] * 3


@pytest.mark.parametrize("qos", [0, 1])
def test_one_copy_for_all_filters_calls_each_handler_once(qos: int, clock: Clock) -> None:
    bench, calls = online(clock), Calls()
    one = subscribe(bench, b"a/b", calls.handler("one"), qos)
    subscribe(bench, b"a/c", calls.handler("other"), qos)
    two = subscribe(bench, b"a/+", calls.handler("two"), qos)
    bench.feed(message(b"x", two, one, qos=qos))
    assert calls.seen == [("one", b"x"), ("two", b"x")]


def test_the_copy_for_a_subscription_that_has_ended_goes_to_no_other(clock: Clock) -> None:
    bench, calls = online(clock), Calls()
    one = subscribe(bench, b"a/b", calls.handler("one"))
    two = subscribe(bench, b"a/+", calls.handler("two"))
    bench.client.unsubscribe(b"a/b")
    bench.feed(message(b"x", one) + message(b"x", two))
    assert calls.seen == [("two", b"x")]


def test_a_new_handler_gets_what_is_on_its_way_to_the_old_one(clock: Clock) -> None:
    bench, calls = online(clock), Calls()
    old = subscribe(bench, b"a/b", calls.handler("old"))
    new = subscribe(bench, b"a/b", calls.handler("new"))
    assert new == old
    bench.feed(message(b"x", old))
    assert calls.seen == [("new", b"x")]


def test_identifiers_from_before_a_reboot_are_not_believed(clock: Clock) -> None:
    """The broker has kept messages with the identifiers that the subscriptions had then."""
    bench, calls = online(clock, clean_session=False), Calls()
    one = subscribe(bench, b"a/b", calls.handler("a/b"))
    two = subscribe(bench, b"c/+", calls.handler("c/+"))
    bench.feed(message(b"x", two) + message(b"y", one, topic=b"c/d") + message(b"z", 99))
    assert calls.seen == [("a/b", b"x"), ("c/+", b"y"), ("a/b", b"z")]


def test_without_identifiers_topic_names_decide(clock: Clock) -> None:
    bench, calls = Bench(clock, version=5), Calls()
    bench.client.subscribe(b"a/b", calls.handler("one"))
    bench.client.subscribe(b"a/+", calls.handler("two"))
    bench.greet()
    bench.feed(build5.connack(properties=[(0x29, 0)]))
    for packet in [strict5.from_client(p.first, p.body) for p in bench.sent()]:
        assert packet.properties == ()
        bench.feed(build5.answer("SUBACK", packet.pid, b"\0"))
    bench.feed(message(b"x"))
    assert calls.seen == [("one", b"x"), ("two", b"x")]


def test_a_handler_that_raises_gets_the_message_again_and_no_other_does(clock: Clock) -> None:
    bench, calls = online(clock), Calls()
    raises = [True]

    def two(message: Any) -> None:
        if raises.pop() if raises else False:
            raise RuntimeError
        calls.seen.append(("two", message.payload))

    first = subscribe(bench, b"a/b", calls.handler("one"), 1)
    second = subscribe(bench, b"a/#", two, 1)
    bench.stream.incoming.append(message(b"x", first, second, qos=1))
    with pytest.raises(RuntimeError):
        bench.drain()
    bench.drain()
    assert calls.seen == [("one", b"x"), ("two", b"x")]
    assert bench.sent() == [peer.Packet(0x40, b"\0\7")]
