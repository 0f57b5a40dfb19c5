"""Receiving: properties of messages of every size, and which handlers a message goes to."""

from __future__ import annotations

from typing import Any

import pytest

import peer
from brokers.core import types
from brokers.fake import FakeBroker
from flatmq.engine import HOLD
from packets import build
from packets.fields import length, text
from packets.properties import Id, properties
from unit.fake_link import Clock
from v5.clients5 import Bench5, Inbox, again, arrived, named, online, until

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
LARGE = [(Id.USER_PROPERTY, (b"fill", b"x" * 90)), *ALL]


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


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("cut", [1, 13, 64, 1000])
def test_properties_of_a_message_in_pieces(qos: int, cut: int, clock: Clock) -> None:
    bench = Bench5(clock, rx_size=256).accepted()
    payload = bytes(range(250)) * 6
    got = bytearray()
    ends: list[int] = []

    def handler(message: Any) -> None:
        assert (message.topic, message.total) == (b"topic", len(payload))
        assert _look(message) == SEEN
        assert message.offset == len(got)
        got.extend(message.payload)
        if message.last:
            ends.append(len(got))

    bench.client.subscribe(b"topic", handler, qos=2, chunks=True)
    data = build.publish(b"topic", payload, qos, 9, properties(LARGE))
    small = build.publish(b"topic", b"small", qos, 10, properties(ALL))
    for at in range(0, len(data), cut):
        bench.feed(data[at : at + cut])
    assert (bytes(got), ends) == (payload, [len(payload)])
    answers = [p.name for p in bench.packets() if p.name != "SUBSCRIBE"]
    assert answers == [[], ["PUBACK"], ["PUBREC"]][qos]
    payload = b"small"
    got.clear()
    bench.feed(small)
    assert bytes(got) == b"small"


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("cut", [1, 50, 5000])
@pytest.mark.parametrize("size", [0, 10, 500])
def test_properties_that_the_buffer_does_not_hold(
    size: int, cut: int, qos: int, clock: Clock
) -> None:
    bench = Bench5(clock, rx_size=64).accepted()
    inbox = Inbox()
    bench.client.subscribe(b"t", inbox, qos=2, chunks=True)
    bench.drain()
    assert bench.names() == ["SUBSCRIBE"]
    more = properties([(Id.USER_PROPERTY, (b"a" * 300, b"b" * 300))])
    data = build.publish(b"t", bytes(size), qos, 9, more)
    for at in range(0, len(data), cut):
        bench.feed(data[at : at + cut])
    assert (inbox.payloads, bench.client.stats.skipped) == ([], 1)
    assert bench.names() == [[], ["PUBACK"], ["PUBREC"]][qos]
    bench.feed(build.publish(b"t", b"after", 0))
    assert inbox.payloads == [b"after"]


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


@pytest.mark.parametrize("room", [0, 10])
def test_a_rule_is_broken_while_the_network_takes_nothing(room: int, clock: Clock) -> None:
    """A large message is half out, and goes again on the next connection."""
    bench = Bench5(clock, rx_size=64).accepted()
    bench.stream.room = room
    assert bench.client.publish_from(b"large", bytes(3000), 1)
    bench.drain()
    block = FILL + b"\4"
    bench.feed(peer.packet(0x30, text(b"t") + length(len(block)) + block))
    while bench.stream.incoming:
        bench.drain()
    assert bench.client.publish_from(b"other", b"x", 1) is None
    bench.stream.room = None
    bench.drain()
    assert (bench.client.error.kind, bench.client.pending) == ("protocol", 1)
    bench.pass_time(2000)
    bench.accepted()
    bench.drain()
    (again,) = bench.packets()
    assert (again.topic, len(again.payload)) == (b"large", 3000)
    bench.feed(build.ack("PUBACK", again.pid))
    assert bench.client.publish_from(b"other", b"x", 1)


@pytest.mark.parametrize(("size", "kept"), [(40, True), (75, False)])
@pytest.mark.parametrize("first", [1, 42, 130])
def test_properties_that_are_there_with_two_reads_may_be_too_large_to_keep(
    first: int, size: int, kept: bool, clock: Clock
) -> None:
    got: list[tuple[bytes, bytes | None]] = []
    bench = Bench5(clock, rx_size=130).accepted()
    bench.client.subscribe(b"#", lambda m: got.append((m.topic, m.properties.user(b"k"))), 1, True)
    topic, value = b"n" * 70, b"v" * size
    data = build.publish(topic, bytes(500), 1, 7, [(Id.USER_PROPERTY, (b"k", value))])
    bench.feed(data[:first])
    for at in range(first, len(data), 130):
        bench.feed(data[at : at + 130])
    assert set(got) == ({(topic, value)} if kept else set())
    assert bench.client.stats.skipped == (not kept)
    assert bench.names() == ["SUBSCRIBE", "PUBACK"]


def test_a_large_message_that_nobody_takes_in_pieces(broker: FakeBroker) -> None:
    client = online(broker, rx_size=64)
    inbox = Inbox()
    client.subscribe(b"t", inbox, 1)
    until(lambda: broker.subscriptions(b"c"), client)
    broker.publish(b"t", bytes(1000), 1, more=LARGE)
    broker.publish(b"t", b"small", 1)
    until(lambda: inbox.payloads == [b"small"], client)
    assert client.stats.skipped == 1
    arrived(broker, client)
    assert len(named(broker, "PUBACK")) == 2


# Which handlers


def test_many_identifiers(broker: FakeBroker) -> None:
    """They get longer than one byte after 127 topic filters."""
    client = online(broker, subscriptions=3)
    inbox, other = Inbox(), Inbox()
    for i in range(140):
        client.subscribe(b"f%d" % i, other)
        client.unsubscribe(b"f%d" % i)
        client.poll()
    client.subscribe(b"t", inbox)
    client.subscribe(b"u", other)
    until(lambda: set(broker.subscriptions(b"c")) == {b"t", b"u"}, client)
    assert sorted(i for _, i in broker.subscriptions(b"c").values()) == [141, 142]
    broker.publish(b"t", b"x")
    until(lambda: inbox.payloads, client)
    assert (inbox.payloads, other.payloads) == ([b"x"], [])


@pytest.mark.parametrize("acknowledgement", ["PUBREC", "PUBREL", "PUBCOMP"])
def test_qos_2_is_delivered_once_whatever_is_cut(broker: FakeBroker, acknowledgement: str) -> None:
    inbox = Inbox()
    client = online(broker, clean_session=False)
    client.subscribe(b"t", inbox, 2)
    until(lambda: broker.subscriptions(b"c"), client)
    if acknowledgement == "PUBREL":
        broker.withhold(types("PUBREL"))
    else:
        broker.close_on(types(acknowledgement))
    broker.publish(b"t", b"x", 2)
    until(lambda: named(broker, acknowledgement.replace("REL", "REC")), client)
    broker.close_on(frozenset())
    again(broker, client) if client.connected else until(lambda: client.connected, client)
    broker.release()
    broker.publish(b"t", b"y", 2)
    until(lambda: b"y" in inbox.payloads, client)
    arrived(broker, client)
    assert inbox.payloads == [b"x", b"y"]


def test_the_answers_are_in_the_order_of_the_messages(clock: Clock) -> None:
    bench = Bench5(clock, on_message=lambda message: None).accepted()
    pids = [(7, 1), (3, 2), (9, 1), (2, 2)]
    bench.feed(*(build.publish(b"t", b"", qos, pid) for pid, qos in pids))
    bench.feed(build.ack("PUBREL", 2), build.ack("PUBREL", 3))
    said = [(p.name, p.pid) for p in bench.packets()]
    assert said == [
        ("PUBACK", 7),
        ("PUBREC", 3),
        ("PUBACK", 9),
        ("PUBREC", 2),
        ("PUBCOMP", 2),
        ("PUBCOMP", 3),
    ]


def test_a_packet_identifier_that_is_free_again_is_a_new_message(clock: Clock) -> None:
    inbox = Inbox()
    bench = Bench5(clock, on_message=inbox).accepted()
    bench.feed(build.publish(b"t", b"1", 2, 5), build.publish(b"t", b"1", 2, 5, dup=1))
    bench.feed(build.ack("PUBREL", 5), build.publish(b"t", b"2", 2, 5, dup=1))
    bench.feed(build.publish(b"t", b"3", 1, 6), build.publish(b"t", b"4", 1, 6, dup=1))
    assert inbox.payloads == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("code", [0x92, 0])
def test_pubrel_of_what_is_not_known_is_answered(code: int, clock: Clock) -> None:
    bench = Bench5(clock).accepted()
    bench.feed(build.ack("PUBREL", 77, code))
    (answer,) = bench.packets()
    assert (answer.name, answer.pid) == ("PUBCOMP", 77)


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
