"""Subscription identifiers that a broker sends: which are well-formed, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from unit.fake_link import Bench, fake_clock

TOPIC = b"a/b"


@pytest.fixture
def bench() -> Iterator[Bench]:
    with fake_clock() as clock:
        made = Bench(clock, version=5, subscriptions=255)
        made.greet()
        made.feed(b"\x20\x03\0\0\0")
        yield made


def subscribe(bench: Bench, to: bytes, identifier: int) -> list[bytes]:
    """Subscribe to others until this is the next identifier, and then to `to`.

    What its handler gets is in the list.
    """
    got: list[bytes] = []
    router = bench.client.load()
    for n in range(len(router.subscriptions) + 1, identifier):
        ask(bench, b"other/%d" % n, print)
    ask(bench, to, lambda message: got.append(message.payload))
    assert router.subscriptions[-1].identifier == identifier
    return got


def ask(bench: Bench, to: bytes, handler: Callable) -> None:
    bench.sent()
    bench.client.subscribe(to, handler, 1)
    bench.client.poll()
    (packet,) = bench.sent()
    bench.feed(b"\x90\4" + packet.body[:2] + b"\0\1")


def publish(properties: bytes, payload: bytes = b"on", qos: int = 0) -> bytes:
    body = b"\0\3" + TOPIC + (b"\0\7" if qos else b"")
    body += bytes((len(properties),)) + properties + payload
    return bytes((0x30 | qos << 1, len(body))) + body


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("times", [1, 2])
def test_a_byte_that_says_more_follow_is_no_identifier(bench: Bench, qos: int, times: int) -> None:
    """200 takes two bytes; the first of them alone is malformed, also for a known topic name."""
    got = subscribe(bench, TOPIC, 200)
    for _ in range(times - 1):
        bench.feed(publish(b"\x0b\xc8\1", qos=qos))
    assert got == [b"on"] * (times - 1)
    bench.feed(publish(b"\x0b\xc8", qos=qos))
    assert got == [b"on"] * (times - 1)
    assert not bench.client.connected
    assert bench.client.error is not None
    assert bench.client.error.kind == "protocol"


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("payload", [b"", b"1", b"22", b"333"])
@pytest.mark.parametrize("own", [1, 127, 128])
def test_the_handler_of_the_identifier_gets_it(
    bench: Bench, qos: int, payload: bytes, own: int
) -> None:
    """Not the other one that matches too, with payloads of any size."""
    first = subscribe(bench, b"a/#", own)
    second = subscribe(bench, TOPIC, own + 1)
    tag = b"\x0b\x80\1" if own == 128 else bytes((0x0B, own))
    for _ in range(3):
        bench.feed(publish(tag, payload, qos))
    assert first == [payload] * 3
    assert second == []
    bench.feed(publish(b"", payload, qos))
    assert (first, second) == ([payload] * 4, [payload])
    assert bench.client.connected


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("cut", [b"\2", b"\2\x0b", b"\1\x0b", b""])
def test_properties_that_are_cut_are_malformed(bench: Bench, qos: int, cut: bytes) -> None:
    got = subscribe(bench, TOPIC, 1)
    body = b"\0\3" + TOPIC + (b"\0\7" if qos else b"") + cut
    bench.feed(publish(b""), bytes((0x30 | qos << 1, len(body))) + body)
    assert got == [b"on"]
    assert not bench.client.connected
