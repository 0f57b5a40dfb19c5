"""Requests that are answered, and what they need.

../hostile has those that are answered late, twice or never.
"""

from typing import Any

import pytest

from brokers.fake import FakeBroker
from packets import build
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import SECONDS, Bench5, made, online, until


def test_a_request_needs_a_place_and_room(broker: FakeBroker) -> None:
    client = online(broker, tx_size=100, inflight=2, subscriptions=1)
    client.subscribe(b"t", print)
    with pytest.raises(ValueError, match="subscriptions must be at most 1"):
        client.request(b"echo", b"x", print)
    client.unsubscribe(b"t")
    broker.withhold(frozenset({4}))
    assert client.publish(b"t", b"1", 1)
    assert client.publish(b"t", b"2", 1)
    assert client.request(b"echo", b"x", print) is False
    broker.release()
    until(lambda: client.request(b"echo", b"x", print), client)


def _asked(bench: Bench5) -> list[bytes]:
    """The correlation data of the requests that were sent."""
    bench.drain()
    found = [p for p in bench.packets() if p.name == "PUBLISH"]
    return [p.properties.first(Id.CORRELATION_DATA) for p in found]


def _answer(data: bytes, payload: bytes) -> bytes:
    return build.publish(b"reply/unit", payload, 0, 0, properties([(Id.CORRELATION_DATA, data)]))


def test_a_handler_that_raises_gets_the_answer_again(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    seen: list[bytes] = []

    def handler(message: Any) -> None:
        seen.append(message.payload)
        if len(seen) == 1:
            raise RuntimeError("once")

    bench.client.request(b"echo", b"x", handler)
    (asked,) = _asked(bench)
    with pytest.raises(RuntimeError, match="once"):
        bench.feed(_answer(asked, b"right"))
    bench.drain()
    assert seen == [b"right", b"right"]


def test_the_timeout_is_kept(clock: Clock) -> None:
    """Also of a request from before the connection, and of one made when another was given up."""
    bench = Bench5(clock)
    begun, seen = clock.now, []

    def again(message: Any) -> None:
        seen.append((clock.now - begun) // 1000)
        if len(seen) < 4:
            bench.client.request(b"echo", b"x", again, 1)

    bench.client.request(b"echo", b"first", lambda message: None, 1)
    bench.client.request(b"echo", b"x", again, 1)
    bench.accepted().pass_time(6000)
    assert seen == [1, 2, 3, 4]


def test_an_answer_to_a_request_from_before_a_reboot_answers_none(clock: Clock) -> None:
    before, now = [Bench5(clock).accepted() for _ in range(2)]
    seen: list[bytes] = []
    for bench in (before, now):
        bench.client.request(b"echo", b"x", lambda message: seen.append(message.payload))
    now.feed(_answer(*_asked(before), b"old"), _answer(*_asked(now), b"right"))
    assert seen == [b"right"]


@pytest.mark.parametrize("fails", ["connect", "no TCP connection in time"])
def test_poll_raises_what_a_handler_raises_while_offline(fails: str, clock: Clock) -> None:
    bench = Bench5(clock, timeout=1)
    bench.client.request(b"echo", b"x", lambda message: message.payload, 1)
    bench.link.slow = 100
    bench.link.fails = fails
    with pytest.raises(AttributeError):
        bench.pass_time(4000)
    bench.link.fails = ""
    bench.accepted()
    assert bench.client.connected


def test_a_client_without_a_name_needs_a_response_topic(broker: FakeBroker) -> None:
    client = made(broker, b"")
    with pytest.raises(ValueError, match="request needs a client_id, or a response_topic"):
        client.request(b"echo", b"x", print)
    client.connect(int(SECONDS * 1000))
    assert client.request(b"echo", b"x", print)  # the broker has given it one
    until(lambda: broker.subscriptions(b"assigned-1"), client)
    assert list(broker.subscriptions(b"assigned-1")) == [b"reply/assigned-1"]


@pytest.mark.parametrize("own", [0, 2])
def test_a_broker_with_qos_0_alone(own: int, clock: Clock) -> None:
    bench = Bench5(clock, max_qos=own).accepted((Id.MAXIMUM_QOS, 0))
    seen: list[bytes] = []
    assert bench.client.request(b"ask", b"x", lambda message: seen.append(message.payload))
    bench.client.poll()
    subscribe, request = bench.packets()
    assert subscribe.filters[0].qos == min(own, 1)
    assert (request.topic, request.qos) == (b"ask", 0)
    topic = request.properties.first(Id.RESPONSE_TOPIC)
    data = request.properties.first(Id.CORRELATION_DATA)
    more = properties([(Id.CORRELATION_DATA, data)])
    bench.feed(build.publish(topic, b"y", properties=more))
    assert seen == [b"y"]
