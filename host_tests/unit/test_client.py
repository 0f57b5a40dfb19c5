"""The client on a link without a network: what it accepts, sends, delivers, and gives up on."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import flatmq.client
import peer
from flatmq import Client, MQTTError
from unit.fake_link import Bench, Clock, FakeLink


@pytest.fixture
def bench(clock: Clock) -> Bench:
    """A client that is online and has sent nothing but its CONNECT."""
    bench = Bench(clock).online()
    assert (bench.client.connected, bench.sent()) == (True, [])
    return bench


class Inbox(list):
    """A handler that keeps what it gets, and raises where a test asks for that."""

    def __init__(self, *raises: int) -> None:
        super().__init__()
        self.calls = 0
        self.raises = raises

    def __call__(self, message) -> None:
        self.calls += 1
        if self.calls in self.raises:
            raise RuntimeError("the handler")
        self.append((message.topic, message.payload))


# Arguments


@pytest.mark.parametrize(
    ("option", "value", "limits"),
    [
        ("version", 6, "3 to 5"),
        ("keepalive", 65_536, "0 to 65535"),
        ("keepalive", -1, "0 to 65535"),
        ("tx_size", 15, "16 to"),
        ("rx_size", 63, "64 to"),
        ("inflight", 0, "1 to 255"),
        ("inflight", 256, "1 to 255"),
        ("subscriptions", 256, "0 to 255"),
        ("subscriptions", -1, "0 to 255"),
        ("incoming", 0, "1 to 65535"),
        ("incoming", 65_536, "1 to 65535"),
        ("timeout", 0, "1 to 65535"),
        ("retry_max_ms", 0, "1 to"),
        ("retry_ms", 0, "1 to 60000"),
        ("retry_ms", 60_001, "1 to 60000"),
    ],
)
def test_an_option_out_of_its_limits(option: str, value: int, limits: str, clock: Clock) -> None:
    with pytest.raises(ValueError) as caught:
        Client(b"unit", link=FakeLink(clock), **{option: value})
    assert str(caught.value).startswith(f"{option} must be {limits}")
    assert str(caught.value).endswith(f", not {value}")


LONG = b"x" * 65_536
PUBLISH_FAULTS: list = [
    ({"topic": b""}, "topic name b'': must not be empty"),
    ({"topic": b"a/+"}, "topic name b'a/+': wildcards are not allowed"),
    ({"topic": "a/#"}, "topic name b'a/#': wildcards are not allowed"),
    ({"topic": b"a\0"}, "topic name b'a\\x00': U+0000 is not allowed"),
    ({"topic": b"\xff"}, "topic name b'\\xff': not UTF-8"),
    ({"topic": LONG}, "topic name must be at most 65535 bytes, not 65536"),
    ({"topic": bytearray(LONG)}, "topic name must be at most 65535 bytes, not 65536"),
    ({"qos": 3}, "qos must be 0 to 2, not 3"),
    ({"qos": -1}, "qos must be 0 to 2, not -1"),
    ({"payload": bytes(1021)}, "packet must be at most tx_size, 1024 bytes, not 1027"),
    ({"payload": bytes(1017), "qos": 1}, "packet must be at most tx_size, 1024 bytes, not 1025"),
]


@pytest.mark.parametrize(("changes", "message"), PUBLISH_FAULTS, ids=lambda v: str(v)[:30])
def test_publish_names_what_is_wrong(changes: dict, message: str, bench: Bench) -> None:
    with pytest.raises(ValueError) as caught:
        bench.client.publish(**({"topic": b"t"} | changes))
    assert message in str(caught.value)
    assert bench.client.pending == 0
    bench.client.publish(b"t", b"after")
    bench.client.poll()
    assert [p.payload for p in bench.published()] == [b"after"], "it leaves nothing behind"


@pytest.mark.parametrize("qos", [0, 1])
def test_a_payload_that_cannot_be_copied_leaves_nothing_behind(qos: int, bench: Bench) -> None:
    for wrong in (None, 7, 1.5):
        with pytest.raises(TypeError):
            bench.client.publish(b"t", wrong, qos)
    assert bench.client.pending == 0


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (b"", "topic filter b'': must not be empty"),
        (b"a#", "topic filter b'a#': a wildcard must be a whole level"),
        (b"#/a", "topic filter b'#/a': a wildcard must be a whole level"),
        ([b"a", b"b+"], "topic filter b'b+': a wildcard must be a whole level"),
        (LONG, "topic filter must be at most 65535 bytes, not 65536"),
        ([], "number of topic filters must be 1 to 65535, not 0"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_subscribe_names_what_is_wrong(filters, message: str, bench: Bench) -> None:
    with pytest.raises(ValueError) as caught:
        bench.client.subscribe(filters, print)
    assert message in str(caught.value)


def test_subscribe_names_its_limits(clock: Clock) -> None:
    client = Bench(clock, subscriptions=1).client
    with pytest.raises(ValueError, match="qos must be 0 to 2, not 3"):
        client.subscribe(b"a", print, 3)
    client.subscribe(b"a", print)
    with pytest.raises(ValueError, match="subscriptions must be at most 1"):
        client.subscribe(b"b", print)


@pytest.mark.parametrize("most", [0, 1])
def test_a_qos_that_the_broker_does_not_have_is_refused(most: int, clock: Clock) -> None:
    bench = Bench(clock, max_qos=most)
    client = bench.client
    bench.online()
    for call in (
        lambda: client.publish(b"t", b"x", most + 1),
        lambda: client.publish_from(b"t", b"x", most + 1),
        lambda: client.subscribe(b"t", print, most + 1),
        lambda: client.set_will(b"t", b"", most + 1),
    ):
        with pytest.raises(ValueError, match=f"qos must be 0 to {most}, not {most + 1}"):
            call()
    assert client.pending == 0
    bench.drain()
    assert bench.sent() == []
    client.publish(b"t", b"y", most)
    bench.drain()
    assert len(bench.sent()) == 1


def test_a_subscription_without_a_handler_is_refused(bench: Bench) -> None:
    with pytest.raises(TypeError, match="handler must be callable, not None"):
        bench.client.subscribe(b"a", None)  # type: ignore[arg-type]
    bench.client.poll()
    assert bench.sent() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"",), "will topic b'': must not be empty"),
        ((b"a/#",), "will topic b'a/#': wildcards are not allowed"),
        ((LONG,), "will topic must be at most 65535 bytes, not 65536"),
        ((b"t", LONG), "will payload must be at most 65535 bytes, not 65536"),
        ((b"t", b"", 3), "will qos must be 0 to 2, not 3"),
    ],
)
def test_set_will_names_what_is_wrong(arguments, message: str, clock: Clock) -> None:
    with pytest.raises(ValueError) as caught:
        Bench(clock).client.set_will(*arguments)
    assert message in str(caught.value)


def test_text_is_taken_for_bytes(clock: Clock) -> None:
    inbox = Inbox()
    bench = Bench(clock, client_id="ü", user="u", password="ö")
    bench.client.set_will("w", "ä")
    body = bench.greet().body
    fields = ["ü", "w", "ä", "u", "ö"]
    wanted = b"".join(len(f.encode()).to_bytes(2, "big") + f.encode() for f in fields)
    assert body[10:] == wanted
    bench.client.subscribe("é/+", inbox)
    bench.feed(peer.connack())
    (subscribe,) = bench.sent()
    assert subscribe.body[2:] == b"\0\x04\xc3\xa9/+\0"
    bench.feed(peer.publish("é/ß".encode(), b"1"))
    bench.client.publish("é", "ß")
    bench.client.publish("é", "ß")
    bench.client.poll()
    assert inbox == [("é/ß".encode(), b"1")]
    assert [(p.topic, p.payload) for p in bench.published()] == [("é".encode(), "ß".encode())] * 2


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_buffer_may_change_after_it_was_published(kind: type, bench: Bench) -> None:
    topic, payload = bytearray(b"t1"), bytearray(b"one")
    bench.client.publish(bytes(topic) if kind is bytes else kind(topic), kind(payload))
    topic[:], payload[:] = b"t2", b"two"
    bench.client.publish(kind(topic), kind(payload))
    bench.client.poll()
    got = [(p.topic, p.payload) for p in bench.published()]
    assert got == [(b"t1", b"one"), (b"t2", b"two")]


def test_a_topic_buffer_that_changes_is_checked_again(bench: Bench) -> None:
    topic = bytearray(b"t")
    bench.client.publish(topic)
    topic[0] = ord("#")
    with pytest.raises(ValueError, match="topic name"):
        bench.client.publish(topic)


# Publishing


def test_what_publish_returns(clock: Clock) -> None:
    bench = Bench(clock, tx_size=64, inflight=2).online()
    client = bench.client
    assert client.publish(b"t", b"x") == 0
    first = client.publish(b"t", b"x", 1)
    second = client.publish(b"t", b"x", 2)
    assert first and second and first != second
    assert client.publish(b"t", b"x", 1) is None, "two are in flight"
    assert client.publish(b"t", bytes(50)) is None, "the ring is full"
    assert client.pending == 3
    bench.client.poll()
    assert client.pending == 2
    bench.feed(peer.puback(first))
    assert client.pending == 1
    assert client.publish(b"t", b"x", 1) is not None


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_several_publishes_leave_in_one_write(qos: int, bench: Bench) -> None:
    bench.stream.writes.clear()
    for i in range(5):
        bench.client.publish(b"t", b"%d" % i, qos)
    bench.client.poll()
    assert len(bench.stream.writes) == 1
    assert [p.payload for p in bench.published()] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_what_the_network_takes_in_pieces_is_continued(piece: int, bench: Bench) -> None:
    for qos in (0, 1, 2, 0):
        bench.client.publish(b"t", b"payload", qos)
    bench.feed(peer.publish(b"t", b"", 1, 5))
    while bench.client.pending > 2:
        bench.stream.room = piece
        bench.client.poll()
    bench.stream.room = None
    bench.client.poll()
    packets = bench.sent()
    assert sorted(p.first >> 4 for p in packets) == [3, 3, 3, 3, 4]


@pytest.mark.parametrize("room", range(1, 13))
def test_two_at_qos_0_alone_are_continued_where_they_were_cut(room: int, bench: Bench) -> None:
    bench.client.poll()
    bench.client.publish(b"t", b"1")
    bench.client.publish(b"t", b"2")
    bench.stream.room = room
    bench.client.poll()
    bench.stream.room = None
    bench.client.publish(b"t", b"3")
    bench.client.poll()
    assert [p.payload for p in bench.published()] == [b"1", b"2", b"3"]
    assert bench.client.pending == 0


@pytest.mark.parametrize("behind", range(4))  # bytes of PUBACK that leave behind it
@pytest.mark.parametrize("cut", range(1, 6))
def test_a_message_at_qos_0_that_was_cut_and_then_left_does_not_go_again(
    cut: int, behind: int, clock: Clock
) -> None:
    bench = Bench(clock, clean_session=False, on_message=Inbox()).online()
    client = bench.client
    client.publish(b"t", b"1")
    bench.stream.room = cut
    client.poll()
    bench.outage()
    client.publish(b"t", b"2")
    bench.greet()
    bench.stream.room = 1
    bench.feed(peer.connack(present=True))
    bench.feed(peer.publish(b"t", b"", 1, 5))  # PUBACK leaves before the second message
    bench.stream.room = 5 + behind
    client.poll()
    bench.outage()
    bench.online(present=True)
    client.poll()
    assert [p.payload for p in bench.published()] == [b"2"]
    assert client.pending == 0


def test_flush_writes_and_does_not_read(bench: Bench) -> None:
    reads = bench.stream.reads
    bench.client.publish(b"t", b"now")
    bench.client.flush()
    assert [p.payload for p in bench.published()] == [b"now"]
    assert bench.stream.reads == reads


def test_wait_polls_until_nothing_is_pending(bench: Bench) -> None:
    pid = bench.client.publish(b"t", b"", 1)
    assert bench.client.wait(100) is False
    bench.link.on_wait = [lambda: bench.stream.incoming.append(peer.puback(pid))]
    assert bench.client.wait(100) is True


# Receiving


SESSION = [
    peer.publish(b"a/b", b"zero"),
    peer.publish(b"a/b", b"one" * 50, 1, 7, retain=True),
    peer.PINGRESP,
    peer.publish(b"a/b", b"two", 2, 8),
    peer.pubrel(8),
    peer.publish(b"a/b", b""),
    peer.publish(b"other", b"x" * 130),
]
DELIVERED = [
    (b"a/b", b"zero"),
    (b"a/b", b"one" * 50),
    (b"a/b", b"two"),
    (b"a/b", b""),
    (b"other", b"x" * 130),
]
ANSWERED = [(0x40, b"\0\7"), (0x50, b"\0\x08"), (0x70, b"\0\x08")]


def receive(chunks: list[bytes], clock: Clock, **options) -> None:
    """Check what a client makes of the session, cut in that way."""
    inbox = Inbox()
    bench = Bench(clock, on_message=inbox, **options)
    bench.greet()
    bench.stream.incoming.extend(chunks)
    bench.drain()
    assert (inbox, bench.sent(), bench.client.error) == (DELIVERED, ANSWERED, None)
    assert bench.client.stats.received == len(DELIVERED)


@pytest.mark.parametrize("size", [*range(1, 30), 1000])
@pytest.mark.parametrize("rx_size", [162, 512])
def test_a_session_in_chunks(size: int, rx_size: int, clock: Clock) -> None:
    data = peer.connack() + b"".join(SESSION)
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    receive(chunks, clock, rx_size=rx_size)


def test_a_session_cut_in_two_everywhere(clock: Clock) -> None:
    data = peer.connack() + b"".join(SESSION)
    for at in range(1, len(data)):
        receive([data[:at], data[at:]], clock)


@pytest.mark.parametrize("stale", [62, 100, 127])
def test_a_header_cut_behind_its_first_byte_is_not_judged(stale: int, clock: Clock) -> None:
    """Whatever lies behind it in the buffer."""
    bench = Bench(clock, rx_size=64).online()
    pid = bench.client.publish(b"t", b"", 1)
    bench.client.poll()
    message = peer.publish(b"t", bytes([stale]) * 50)
    bench.feed(message[:20])
    bench.feed(message[20:])
    bench.feed(b"\x40")
    bench.feed(b"\x02" + pid.to_bytes(2, "big"))
    assert (bench.client.error, bench.client.pending) == (None, 0)


def test_a_session_that_arrives_while_nothing_can_be_sent(clock: Clock) -> None:
    """More acknowledgements are owed than there is room for: reading waits, nothing is lost."""
    inbox = Inbox()
    bench = Bench(clock, on_message=inbox).online()
    bench.stream.room = 0
    messages = [peer.publish(b"t", b"%d" % i, 1, i) for i in range(1, 101)]
    bench.stream.incoming.append(b"".join(messages))
    for _ in range(50):
        bench.client.poll()
    assert 0 < len(inbox) < 100
    while len(inbox) < 100:
        bench.stream.room = 10
        bench.client.poll()
    bench.stream.room = None
    bench.drain()
    assert [p.pid for p in bench.sent()] == list(range(1, 101))
    assert [payload for _, payload in inbox] == [b"%d" % i for i in range(1, 101)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_handler_that_raises_gets_the_message_again(qos: int, clock: Clock) -> None:
    bench = Bench(clock)
    before, raising, after = Inbox(), Inbox(1, 2), Inbox()
    for i, inbox in enumerate((before, raising, after)):
        bench.client.subscribe([b"t", b"only/%d" % i], inbox, qos)
    bench.online()
    bench.sent()
    message = peer.publish(b"t", b"x", qos, 9)
    bench.stream.incoming.append(message + peer.publish(b"t", b"next"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the handler"):
            bench.client.poll()
        assert bench.sent() == [], "it is not acknowledged"
    bench.drain()
    for inbox in (before, raising, after):
        assert [payload for _, payload in inbox] == [b"x", b"next"]
    assert before.calls == 2, "the others do not get it twice"
    assert [p.first for p in bench.sent()] == {0: [], 1: [0x40], 2: [0x50]}[qos]
    assert bench.client.stats.received == 2


@pytest.mark.parametrize("ends", ["unsubscribe", "subscribe"])
def test_a_handler_that_raises_gets_the_message_though_others_have_left(
    ends: str, clock: Clock
) -> None:
    bench = Bench(clock)
    before, raising, after = Inbox(), Inbox(1), Inbox()
    for topic_filter, inbox in ((b"t", before), (b"+", raising), (b"#", after)):
        bench.client.subscribe(topic_filter, inbox, 1)
    bench.online()
    bench.stream.incoming.append(peer.publish(b"t", b"x", 1, 9))
    with pytest.raises(RuntimeError):
        bench.client.poll()
    if ends == "unsubscribe":
        bench.client.unsubscribe(b"t")
    else:
        bench.client.subscribe(b"t", Inbox(), 1)
    bench.drain()
    for inbox in (before, raising, after):
        assert [payload for _, payload in inbox] == [b"x"]


@pytest.mark.parametrize("change", ["earlier", "own", "later", "own again", "earlier again"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_handler_may_change_subscriptions(change: str, qos: int, clock: Clock) -> None:
    """Whoever was subscribed when the message came gets it once, unless it has left before."""
    bench = Bench(clock)
    client = bench.client
    inboxes = {b"t": Inbox(), b"+": Inbox(), b"#": Inbox()}
    new = Inbox()
    target = {"earlier": b"t", "own": b"+", "later": b"#"}[change.split(maxsplit=1)[0]]

    def changing(message: Any) -> None:
        inboxes[b"+"](message)
        assert len(inboxes[b"+"]) == 1
        client.unsubscribe(target)
        if change.endswith("again"):
            client.subscribe(target, lambda m: (new(m), changing(m)), qos)

    client.subscribe(b"t", inboxes[b"t"], qos)
    client.subscribe(b"+", changing, qos)
    client.subscribe(b"#", inboxes[b"#"], qos)
    bench.online()
    bench.stream.incoming.append(peer.publish(b"t", b"x", qos, 9 if qos else 0))
    bench.drain()
    assert [len(inbox) for inbox in inboxes.values()] == [1, 1, 0 if change == "later" else 1]
    assert not new


@pytest.mark.parametrize("count", [7, 8, 9, 20])
def test_any_number_of_subscriptions_may_leave_a_message_to_on_message(
    count: int, clock: Clock
) -> None:
    inbox = Inbox()
    bench = Bench(clock, subscriptions=20, tx_size=1024, on_message=inbox)
    for i in range(count):
        bench.client.subscribe(b"other/%d" % i, Inbox())
    bench.online()
    for topic in (b"a", b"b", b"a"):
        bench.stream.incoming.append(peer.publish(topic, b"x"))
        bench.drain()
    assert [topic for topic, _ in inbox] == [b"a", b"b", b"a"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_handler_that_raises_gets_the_message_again(qos: int, clock: Clock) -> None:
    inbox = Inbox(1, 3)
    bench = Bench(clock, on_message=inbox).online()
    bench.stream.incoming.append(
        peer.publish(b"t", b"1", qos, 1) + peer.publish(b"t", b"2", qos, 2)
    )
    for _ in range(2):
        with pytest.raises(RuntimeError):
            bench.drain()
    bench.drain()
    assert [payload for _, payload in inbox] == [b"1", b"2"]


def test_a_message_that_raised_does_not_hide_the_next_connection_from_others(clock: Clock) -> None:
    bench = Bench(clock)
    first, second = Inbox(), Inbox(1)
    bench.client.subscribe(b"t", first)
    bench.client.subscribe(b"#", second)
    bench.online()
    bench.stream.incoming.append(peer.publish(b"t", b"old"))
    with pytest.raises(RuntimeError):
        bench.client.poll()
    bench.client.disconnect()
    bench.online()
    bench.feed(peer.publish(b"t", b"new"))
    assert [payload for _, payload in first] == [b"old", b"new"]
    assert [payload for _, payload in second] == [b"new"]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
@pytest.mark.parametrize(("qos", "answer"), [(0, []), (1, [0x40]), (2, [0x50])])
def test_a_message_larger_than_rx_size_is_skipped(
    qos: int, answer: list, chunk: int, clock: Clock
) -> None:
    inbox = Inbox()
    bench = Bench(clock, rx_size=64, on_message=inbox).online()
    data = peer.publish(b"t", b"before") + peer.publish(b"big", bytes(500), qos, 3)
    data += peer.publish(b"t", b"after")
    bench.stream.incoming.extend(data[i : i + chunk] for i in range(0, len(data), chunk))
    bench.drain()
    assert [payload for _, payload in inbox] == [b"before", b"after"]
    assert (bench.client.stats.skipped, bench.client.stats.received) == (1, 2)
    assert [(p.first, p.pid) for p in bench.sent()] == [(first, 3) for first in answer]
    assert bench.client.error is None


@pytest.mark.parametrize("more", [0, 1])
def test_rx_size_is_the_largest_packet(more: int, clock: Clock) -> None:
    inbox = Inbox()
    bench = Bench(clock, rx_size=100, on_message=inbox).online()
    message = peer.publish(b"t", bytes(95 + more))
    assert len(message) == 100 + more
    for byte in message:
        bench.stream.incoming.append(bytes([byte]))
    bench.drain()
    assert (len(inbox), bench.client.stats.skipped) == (1 - more, more)


def test_a_topic_name_larger_than_rx_size_is_a_lack_of_room(clock: Clock) -> None:
    bench = Bench(clock, rx_size=64).online()
    bench.feed(peer.publish(b"t" * 70, b""))
    assert bench.client.error.kind == "resource"


def test_more_qos_2_messages_than_incoming_is_a_lack_of_room(clock: Clock) -> None:
    bench = Bench(clock, incoming=2, on_message=Inbox()).online()
    for pid in (1, 2):
        bench.feed(peer.publish(b"t", b"", 2, pid))
    assert bench.client.error is None
    bench.feed(peer.publish(b"t", b"", 2, 3))
    assert bench.client.error.kind == "resource"


def test_unrouted_messages_are_acknowledged_and_counted(bench: Bench) -> None:
    bench.feed(peer.publish(b"t", b"", 1, 4))
    assert bench.sent() == [(0x40, b"\0\4")]
    assert (bench.client.stats.unrouted, bench.client.stats.received) == (1, 0)


def test_a_handler_may_call_the_client(clock: Clock) -> None:
    bench = Bench(clock)
    client = bench.client
    polled = []

    def handler(message) -> None:
        polled.append(client.poll())
        client.publish(b"reply", message.payload)
        client.flush()

    client.subscribe(b"t", handler)
    bench.online()
    bench.sent()
    bench.feed(peer.publish(b"t", b"1") + peer.publish(b"t", b"2"))
    assert polled == [False, False]
    assert [p.payload for p in bench.published()] == [b"1", b"2"]


def test_a_handler_may_disconnect(clock: Clock) -> None:
    bench = Bench(clock)
    bench.client.options["on_message"] = lambda message: bench.client.disconnect()
    bench.online()
    bench.feed(peer.publish(b"t", b"", 1, 1) + peer.publish(b"t", b"", 1, 2))
    assert bench.client.state == "offline"
    inbox = Inbox()
    bench.client.subscribe(b"t", inbox)
    bench.online()
    bench.feed(peer.publish(b"t", b"again"))
    assert [payload for _, payload in inbox] == [b"again"]


# Subscriptions


@pytest.mark.parametrize("blocked", [False, True])
def test_the_suback_of_a_subscription_that_was_replaced_is_no_one_s(
    blocked: bool, bench: Bench
) -> None:
    bench.client.subscribe(b"t", Inbox())
    bench.client.poll()
    (old,) = bench.sent()
    if blocked:  # by a publish, so that the request is not even begun when the answer comes
        bench.stream.room = 0
        bench.client.publish(b"t", b"")
        bench.client.flush()
    inbox = Inbox()
    replaced = bench.client.subscribe(b"t", inbox, 1)
    bench.feed(peer.suback(old.pid, 0))
    assert (replaced.granted, bench.client.stats.strays) == (None, 0)
    bench.stream.room = None
    bench.client.poll()
    new = bench.sent()[-1]
    bench.feed(peer.suback(new.pid, 1), peer.publish(b"t", b"x"))
    assert (replaced.granted, len(inbox), bench.client.error) == (b"\1", 1, None)


def test_unsubscribe_from_one_of_several(bench: Bench) -> None:
    inbox = Inbox()
    bench.client.subscribe([b"a", b"b"], inbox)
    bench.client.poll()
    bench.feed(peer.suback(bench.sent()[0].pid, 0, 0))
    bench.client.unsubscribe(b"a")
    bench.client.poll()
    unsubscribe = [p for p in bench.sent() if p.first == 0xA2]
    assert [p.body[2:] for p in unsubscribe] == [b"\0\1a"]
    bench.feed(peer.unsuback(unsubscribe[0].pid))
    bench.feed(peer.publish(b"a", b"1"), peer.publish(b"b", b"2"))
    assert inbox == [(b"b", b"2")]


def test_unsubscribe_from_what_an_earlier_run_has_subscribed_to(clock: Clock) -> None:
    bench = Bench(clock, subscriptions=1, clean_session=False)
    inbox = Inbox()
    bench.client.subscribe(b"a", inbox)
    gone = bench.client.unsubscribe(["b", b"c/#"])
    bench.online(present=True)
    subscribe, unsubscribe = bench.sent()
    assert (subscribe.first, unsubscribe.first) == (0x82, 0xA2)
    assert unsubscribe.body[2:] == b"\0\1b\0\3c/#"
    assert gone.granted is None
    bench.feed(peer.unsuback(unsubscribe.pid))
    assert gone.granted == b""
    bench.feed(peer.publish(b"a", b"1"))
    assert inbox == [(b"a", b"1")]


def test_a_request_that_was_not_answered_goes_again(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False)
    bench.client.subscribe(b"t", print, 1)
    bench.online()
    assert [p.first for p in bench.sent()] == [0x82]
    bench.outage()
    bench.online(present=True)
    assert [p.first for p in bench.sent()] == [0x82]


def test_mqtt_3_1_takes_a_kept_session_for_remembered_and_subscribes_again(clock: Clock) -> None:
    bench = Bench(clock, clean_session=False, version=3)
    bench.client.subscribe(b"t", print)
    bench.online()
    bench.client.publish(b"t", b"x", 2)
    bench.client.poll()
    bench.sent()
    bench.client.ping()
    bench.pass_time(10_100)
    assert bench.client.error.kind == "timeout"
    bench.online()
    packets = bench.sent()
    assert sorted(p.first for p in packets) == [0x3C, 0x82]
    assert bench.client.session_present is False


# Time


def test_a_publish_takes_the_place_of_a_ping_only_while_answers_come(clock: Clock) -> None:
    bench = Bench(clock, keepalive=10).online()
    for _ in range(30):  # a second each
        bench.pass_time(1000)
        bench.feed(peer.publish(b"t", b""))
        pid = bench.client.publish(b"t", b"", 1)
        bench.client.poll()
        bench.feed(peer.puback(pid))
    assert all(p.first >> 4 == 3 for p in bench.sent())


def test_anything_that_comes_in_shows_that_the_link_lives(clock: Clock) -> None:
    bench = Bench(clock, keepalive=60).online()
    bench.client.ping()
    bench.client.poll()
    bench.pass_time(5000)
    bench.feed(peer.publish(b"t", b""))
    bench.pass_time(20_000)
    assert bench.client.connected


def test_no_keep_alive_no_ping(clock: Clock) -> None:
    bench = Bench(clock, keepalive=0).online()
    bench.pass_time(10_000_000, step=1000)
    assert (bench.sent(), bench.client.connected) == ([], True)
    bench.client.ping()
    bench.client.poll()
    assert bench.sent() == [(0xC0, b"")]
    bench.pass_time(10_100)
    assert bench.client.error.kind == "timeout"


@pytest.mark.parametrize("ms", [0, 1, 100])
def test_poll_waits_as_long_as_it_is_told(ms: int, bench: Bench) -> None:
    before = bench.clock.now
    assert bench.client.poll(ms) is False
    assert bench.clock.now - before == ms


def test_a_request_that_waits_for_room_does_not_hurry_a_pingresp(clock: Clock) -> None:
    bench = Bench(clock, tx_size=64, timeout=5).online()
    pid = bench.client.publish(b"t", bytes(50), 1)
    bench.client.poll()
    waiting = bench.client.subscribe(b"a/topic", print)  # and there is no room
    bench.client.ping()
    bench.client.poll()
    bench.sent()
    bench.pass_time(1000)
    assert (bench.client.connected, bench.sent()) == (True, [])
    bench.feed(peer.puback(pid))
    bench.pass_time(50)
    (subscribe,) = bench.sent()
    bench.feed(peer.suback(subscribe.pid, 0))
    assert waiting.granted == b"\0"
    bench.client.ping()
    bench.pass_time(5100)
    assert bench.client.error.kind == "timeout"


def test_poll_returns_when_something_comes_in(bench: Bench) -> None:
    before = bench.clock.now
    bench.link.on_wait = [lambda: bench.stream.incoming.append(peer.PINGRESP)]
    assert bench.client.poll(1000) is True
    assert bench.clock.now == before


# Connecting


class Dice(SimpleNamespace):
    """The random numbers with the largest or the smallest value."""

    def __init__(self, largest: bool) -> None:
        super().__init__(getrandbits=lambda bits: (1 << bits) - 1 if largest else 0)


def tries(bench: Bench, number: int) -> list[int]:
    """The ms between that many tries to connect."""
    found: list[int] = []
    last = bench.clock.now
    bench.client.start()
    while len(found) < number:
        bench.clock.now += 1
        bench.client.poll()
        if bench.link.calls and bench.link.calls[-1] == "connect":
            found.append(bench.clock.now - last)
            last = bench.clock.now
            bench.link.calls.clear()
    return found[1:]


@pytest.mark.parametrize("largest", [False, True])
def test_the_pause_doubles_to_its_limit(
    largest: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flatmq.client, "random", Dice(largest))
    bench = Bench(clock, retry_ms=100, retry_max_ms=1000)
    bench.link.fails = "connect"
    pauses = tries(bench, 8)
    wanted = [100, 200, 400, 800, 1000, 1000, 1000]
    low, high = (0.97, 1.03) if largest else (0.48, 0.53)
    for pause, full in zip(pauses, wanted, strict=True):
        assert low * full - 5 <= pause <= high * full + 5
    assert bench.client.error.kind == "closed"
    assert bench.client.stats.losses == 8


def test_the_pauses_of_two_clients_differ(clock: Clock) -> None:
    random.seed(1)
    pauses = []
    for _ in range(2):
        bench = Bench(clock, retry_ms=1000)
        bench.link.fails = "connect"
        pauses.append(tries(bench, 4))
    assert pauses[0] != pauses[1]


def test_the_pause_starts_anew_after_a_while_online(clock: Clock) -> None:
    bench = Bench(clock, retry_ms=100, retry_max_ms=100_000, keepalive=0)
    bench.link.fails = "connect"
    tries(bench, 7)
    bench.link.fails = ""
    bench.online()
    bench.pass_time(11_000)
    bench.lose()
    lost = clock.now
    bench.client.poll()
    while bench.client.state == "waiting":
        clock.now += 1
        bench.client.poll()
    assert clock.now - lost <= 101


def test_a_broker_that_closes_at_once_is_tried_less_and_less_often(clock: Clock) -> None:
    bench = Bench(clock, retry_ms=100, retry_max_ms=100_000, keepalive=0)
    pauses = []
    for _ in range(8):
        bench.online()
        bench.pass_time(200)
        bench.lose()
        lost = clock.now
        while bench.client.state == "waiting":
            clock.now += 1
            bench.client.poll()
        pauses.append(clock.now - lost)
    assert pauses[-1] >= 50 * 2**7
    assert pauses == sorted(pauses)


def test_a_name_is_looked_up_once_and_again_after_some_failures(clock: Clock) -> None:
    bench = Bench(clock, retry_ms=10, retry_max_ms=10)
    bench.online()
    bench.lose()
    bench.online()
    assert bench.link.calls.count("resolve") == 1
    bench.lose()
    bench.link.fails = "connect"
    bench.pass_time(200)
    assert bench.link.calls.count("resolve") > 1


@pytest.mark.parametrize(
    ("step", "kind"), [("resolve", "resource"), ("connect", "closed"), ("stream", "closed")]
)
def test_each_step_may_fail_and_is_tried_again(step: str, kind: str, clock: Clock) -> None:
    bench = Bench(clock, retry_ms=10, retry_max_ms=10)
    bench.link.fails = step
    bench.client.start()
    bench.pass_time(300)
    assert bench.client.error.kind == kind
    assert bench.link.calls.count(step) > 1
    bench.link.fails = ""
    bench.online()
    assert bench.client.connected


@pytest.mark.parametrize("slow", [0, 10**9], ids=["greeting", "connecting"])
def test_a_peer_that_says_nothing_is_given_up(slow: int, clock: Clock) -> None:
    bench = Bench(clock, timeout=3)
    bench.link.slow = slow
    bench.client.start()
    bench.pass_time(2900)
    assert bench.client.state == ("connecting" if slow else "greeting")
    bench.pass_time(200)
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")
    assert not bench.link.open


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 6, 255])
def test_a_connack_code_is_told(code: int, clock: Clock) -> None:
    bench = Bench(clock)
    bench.greet()
    bench.feed(peer.connack(code))
    assert (bench.client.error.kind, bench.client.error.code) == ("refused", code)
    assert (bench.client.state, bench.link.open) == ("waiting", False)
    bench.online()
    assert bench.client.error is None, "and it goes on trying"


def test_connect_returns_online(clock: Clock) -> None:
    bench = Bench(clock)
    bench.link.on_wait = [lambda: bench.stream.incoming.append(peer.connack())]
    bench.client.connect()
    assert bench.client.connected


def test_connect_raises_when_refused(clock: Clock) -> None:
    bench = Bench(clock)
    bench.link.on_wait = [lambda: bench.stream.incoming.append(peer.connack(5))]
    with pytest.raises(MQTTError) as caught:
        bench.client.connect()
    assert (caught.value.kind, caught.value.code) == ("refused", 5)


def test_connect_raises_after_its_time(clock: Clock) -> None:
    bench = Bench(clock)
    before = clock.now
    with pytest.raises(MQTTError) as caught:
        bench.client.connect(timeout_ms=3000)
    assert (caught.value.kind, clock.now - before) == ("timeout", 3000)


def fail_to_read(bench: Bench) -> None:
    bench.stream.broken = True
    bench.drain()


def fail_to_write(bench: Bench) -> None:
    bench.stream.broken = True
    bench.client.publish(b"t", b"x", 1)
    bench.client.flush()


@pytest.mark.parametrize("end", [Bench.lose, fail_to_read, fail_to_write])
def test_a_connection_that_ends_is_made_again(end: Callable, bench: Bench) -> None:
    end(bench)
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "closed")
    assert not bench.link.open
    bench.online()
    assert bench.client.connected
    assert (bench.client.stats.connects, bench.client.stats.losses) == (2, 1)


def test_a_packet_cut_by_the_end_of_a_connection_is_forgotten(clock: Clock) -> None:
    inbox = Inbox()
    bench = Bench(clock, on_message=inbox, rx_size=64).online()
    for cut in (peer.publish(b"t", b"cut")[:-1], peer.publish(b"t", bytes(500))[:300]):
        bench.feed(cut)
        bench.lose()
        bench.online()
        bench.feed(peer.publish(b"t", b"whole"))
    assert inbox == [(b"t", b"whole")] * 2


# Disconnecting


def test_disconnect_sends_what_is_queued_and_says_so(bench: Bench) -> None:
    bench.client.publish(b"t", b"last")
    bench.client.disconnect()
    publish, disconnect = bench.sent()
    assert peer.take_apart(publish).payload == b"last"
    assert disconnect == (0xE0, b"")
    assert (bench.client.state, bench.client.error, bench.link.open) == ("offline", None, False)
    bench.pass_time(100_000, step=1000)
    assert (len(bench.link.made), bench.client.state) == (1, "offline"), "and it stays so"


def test_disconnect_gives_up_after_its_time(bench: Bench) -> None:
    bench.client.publish(b"t", b"last", 1)
    bench.stream.room = 2
    before = bench.clock.now
    bench.client.disconnect(timeout_ms=500)
    assert (bench.clock.now - before, bench.client.state) == (500, "offline")
    assert bench.client.pending == 1, "what is not acknowledged is kept"
    bench.online()
    assert [p.payload for p in bench.published()] == [b"last"]


@pytest.mark.parametrize("state", ["offline", "waiting", "connecting", "greeting"])
def test_disconnect_in_any_state(state: str, clock: Clock) -> None:
    bench = Bench(clock)
    bench.link.slow = 10**9 if state == "connecting" else 0
    if state != "offline":
        bench.client.start()
    while bench.client.state != state:
        bench.client.poll()
    bench.client.disconnect()
    assert (bench.client.state, bench.link.open) == ("offline", False)


def test_what_is_published_offline_is_sent_later(clock: Clock) -> None:
    bench = Bench(clock)
    for qos in (0, 1, 2):
        assert bench.client.publish(b"t", b"%d" % qos, qos) is not None
    assert bench.client.pending == 3
    bench.online()
    assert [(p.payload, p.dup) for p in bench.published()] == [
        (b"0", False), (b"1", False), (b"2", False)
    ]  # fmt: skip


def test_disconnect_ends_well_when_the_link_is_lost_while_it_says_so(bench: Bench) -> None:
    bench.client.publish(b"t", b"waits", qos=1)
    bench.client.poll()
    bench.stream.broken = True  # the write of DISCONNECT is the first to find out
    bench.client.disconnect()
    assert (bench.client.state, bench.client.pending) == ("offline", 1)
    assert not bench.link.open


# On a desk


def test_a_client_does_not_collect_the_garbage_of_the_whole_program(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CPython that takes from tens to hundreds of milliseconds."""

    def collect(*_: object) -> None:
        raise AssertionError("a full collection")

    monkeypatch.setattr(gc, "collect", collect)
    bench = Bench(clock)
    bench.client.subscribe(b"t/#", Inbox())
    bench.online()
    bench.client.publish(b"t", b"", qos=1)
    bench.drain()
    bench.lose()
    bench.online(present=False)
    bench.client.unsubscribe(b"t/#")
    bench.client.disconnect()
