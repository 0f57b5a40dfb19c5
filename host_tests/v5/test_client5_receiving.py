"""Receiving: properties, topic names as they are, and what a broker passes on."""

from __future__ import annotations

from typing import Any

import pytest

import peer
from flatmq.engine import HOLD
from packets import build
from packets.fields import length, text
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import Bench5, Inbox

ALL: list[tuple[int, Any]] = [
    (Id.PAYLOAD_FORMAT, 1),
    (Id.MESSAGE_EXPIRY, 0x89ABCDEF),
    (Id.CONTENT_TYPE, b"text/plain"),
    (Id.RESPONSE_TOPIC, b"answers"),
    (Id.CORRELATION_DATA, b"\0\xff"),
    (Id.USER_PROPERTY, (b"key", b"value")),
    (Id.USER_PROPERTY, (b"key", b"second")),
    (Id.USER_PROPERTY, (b"", b"")),
]


def _look(message: Any) -> dict[str, Any]:
    """All that a handler can ask of the properties of a message."""
    p = message.properties
    return {
        "numbers": (p.get(Id.PAYLOAD_FORMAT), p.get(Id.MESSAGE_EXPIRY)),
        "texts": (p.get(Id.CONTENT_TYPE), p.get(Id.RESPONSE_TOPIC), p.get(Id.CORRELATION_DATA)),
        "default": p.get(Id.TOPIC_ALIAS, "none"),
        "user": (p.user(b"key"), p.user(b""), p.user(b"ke"), p.user(b"keys")),
        "is": (
            p.is_value(3, b"text/plain"),
            p.is_value(3, b"text/plai"),
            p.is_value(3, b"x" * 10),
        ),
        "is_user": (
            p.is_user(b"key", b"second"),
            p.is_user(b"key", b"third"),
            p.is_user(b"", b""),
        ),
        "bytes": p.get(Id.CORRELATION_DATA).__class__,
    }


SEEN = {
    "numbers": (1, 0x89ABCDEF),
    "texts": (b"text/plain", b"answers", b"\0\xff"),
    "default": "none",
    "user": (b"value", b"", None, None),
    "is": (True, False, False),
    "is_user": (True, False, True),
    "bytes": bytes,
}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("cut", [1, 7, 1000])
@pytest.mark.parametrize("identified", [False, True])
def test_the_properties_of_a_message(qos: int, cut: int, identified: bool, clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    seen: list[tuple[bytes, dict[str, Any]]] = []
    bench.client.subscribe(b"t", lambda m: seen.append((m.payload, _look(m))), qos=2)
    more = [(Id.SUBSCRIPTION_IDENTIFIER, 1), *ALL] if identified else ALL
    data = b"".join(
        build.publish(b"t", payload, qos, pid, properties(more))
        for pid, payload in enumerate((b"one", b"", b"three"), 1)
    )
    for at in range(0, len(data), cut):
        bench.feed(data[at : at + cut])
    assert seen == [(b"one", SEEN), (b"", SEEN), (b"three", SEEN)]


FILL = (
    b"\x26" + text(b"k" * 200) + text("\x7f\u0080\u07ff\u0800\ud7ff\uffff\U0010ffff".encode() * 9)
)


# Properties that break a rule, each behind some that are right.
PASSING = {
    "unknown": b"\x04",
    "of another packet": b"\x11\0\0\0\1",
    "an alias": b"\x23\0\1",
    "twice": b"\3\0\1a\3\0\1a",
    "a number that is cut": b"\2\0\0\1",
    "a length that is cut": b"\3\0",
    "a text that is cut": b"\x26\0\1a\0\2b",
    "a pair without a value": b"\x26\0\1a",
    "identifier 0": b"\x0b\x80\0",
    "an identifier that is cut": b"\x0b\x80",
    "an identifier of five bytes": b"\x0b\x80\x80\x80\x80\1",
    "U+0000": b"\3" + text(b"a\0"),
    "a continuation alone": b"\x26" + text(b"a") + text(b"\x80"),
    "a character that is cut": b"\x26" + text(b"\xf0\x9f\x98") + text(b""),
    "not the shortest form": b"\3" + text(b"\xe0\x80\x80"),
    "a surrogate": b"\x08" + text(b"\xed\xa0\x80"),
    "past U+10FFFF": b"\x26" + text(b"\xf4\x90\x80\x80") + text(b""),
}


GOOD = b"\1\2\x08\0\0\3\0\0\x09" + text(bytes(300)) + b"\x0b\xff\x7f\x0b\1\2\0\0\0\0"


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("cut", [1, 7, 64])
@pytest.mark.parametrize("name", PASSING)
def test_properties_that_the_buffer_does_not_hold_are_checked(
    name: str, cut: int, qos: int, clock: Clock
) -> None:
    bench = Bench5(clock, rx_size=64).accepted()
    more = FILL + GOOD + FILL * 2
    for block, good in ((more + PASSING[name], False), (more, True)):
        bench.drain()
        body = text(b"t") + (b"\0\x09" if qos else b"") + length(len(block)) + block
        data = peer.packet(0x30 | qos << 1, body + b"payload")
        for at in range(0, len(data), cut):
            if bench.client.connected:
                bench.clock.now += 15  # the client also looks at the clock meanwhile
                bench.feed(data[at : at + cut])
        assert bench.client.connected == good
        if not good:
            code, error = bench.farewell()
            assert code in (0x81, 0x82, 0x94) and error.kind == "protocol"
            assert error.detail.startswith(f"packet {data[0]:#x}: ")
            assert (bench.client.stats.skipped, bench.client.stats.unrouted) == (0, 0)
            bench.pass_time(2000)
            bench.accepted()
    assert bench.client.stats.skipped == 1
    assert bench.names() == ["PUBACK"] * qos


def test_a_byte_order_mark_is_part_of_a_topic_name(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    marked, plain = Inbox(), Inbox()
    bench.client.subscribe(b"\xef\xbb\xbft", marked)
    bench.client.subscribe(b"t", plain)
    bench.feed(build.publish(b"\xef\xbb\xbft", b"x"))
    assert (marked.payloads, plain.payloads) == ([b"x"], [])


FAULTY = [
    (Id.PAYLOAD_FORMAT, 2),
    (Id.PAYLOAD_FORMAT, 255),
    (Id.RESPONSE_TOPIC, b""),
    (Id.RESPONSE_TOPIC, b"#"),
    (Id.RESPONSE_TOPIC, b"a/+"),
]


@pytest.mark.parametrize("size", [1, 500])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("fault", FAULTY)
def test_what_a_broker_passes_on_is_left_out_and_counted(
    clock: Clock, fault: tuple[int, Any], qos: int, size: int
) -> None:
    """mosquitto does not look at the payload format and the response topic of a message."""
    bench = Bench5(clock, rx_size=200).accepted()
    seen = []

    def handler(m: Any) -> Any:
        p = m.properties
        found = p.find(fault[0]), p.get(fault[0]), p.user(b"k"), p.is_value(fault[0], b"")
        seen.append((m.payload, found))
        return HOLD if len(seen) == 1 else None  # it is handed over once more, and counted once

    bench.client.subscribe(b"t", handler, chunks=size > 200)
    more = [(Id.USER_PROPERTY, (b"k", b"v")), fault]
    for pid in (7, 8):
        bench.feed(build.publish(b"t", bytes(size), qos, pid, more))
    left_out = (False, None, b"v", False)
    assert {found for _payload, found in seen} == {left_out}
    assert sum(len(payload) for payload, _found in seen[1:]) == 2 * size
    assert (bench.client.stats.strays, bench.client.stats.received) == (2, 2)
    right = (Id.PAYLOAD_FORMAT, 1) if fault[0] == 1 else (Id.RESPONSE_TOPIC, b"a")
    bench.feed(build.publish(b"t", bytes(size), qos, 9, [right]))
    assert seen[-1][1][0] and bench.client.stats.strays == 2
    assert bench.client.connected


def test_a_message_that_nobody_takes_is_not_counted_as_delivered(clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    bench.feed(build.publish(b"t", b"x", 1, 7, [(Id.PAYLOAD_FORMAT, 2)]))
    assert (bench.client.stats.unrouted, bench.client.stats.strays) == (1, 0)
    assert bench.names() == ["PUBACK"]
