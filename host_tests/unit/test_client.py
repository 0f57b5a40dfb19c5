"""Publishing, receiving, handlers and the keep alive of a client without a network."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import peer
from unit.both_versions import VersionBench
from unit.fake_link import Bench, Clock, FakeStream


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

    @property
    def payloads(self) -> list[bytes]:
        """The payloads of what came."""
        return [payload for _, payload in self]


# Publishing


def test_text_is_taken_for_bytes(make: Callable) -> None:
    inbox = Inbox()
    bench = make(client_id="ü", user="u", password="ö")
    bench.client.set_will("w", "ä")
    body = bench.greet().body
    assert all(peer.text(field.encode()) in body for field in ("ü", "w", "ä", "u", "ö"))
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
def test_a_buffer_may_change_after_it_was_published(kind: type, bench: VersionBench) -> None:
    topic, payload = bytearray(b"t1"), bytearray(b"one")
    bench.client.publish(bytes(topic) if kind is bytes else kind(topic), kind(payload))
    topic[:], payload[:] = b"t2", b"two"
    bench.client.publish(kind(topic), kind(payload))
    bench.client.poll()
    got = [(p.topic, p.payload) for p in bench.published()]
    assert got == [(b"t1", b"one"), (b"t2", b"two")]


def test_what_publish_returns(make: Callable) -> None:
    bench = make(tx_size=64, inflight=2).online()
    client = bench.client
    assert client.publish(b"t", b"x") == 0
    first = client.publish(b"t", b"x", 1)
    second = client.publish(b"t", b"x", 2)
    assert first and second and first != second
    assert client.publish(b"t", b"x", 1) is None, "two are in flight"
    assert client.publish(b"t", bytes(50)) is None, "the queue is full"
    assert client.pending == 3
    bench.client.poll()
    assert client.pending == 2
    bench.feed(peer.puback(first))
    assert client.pending == 1
    assert client.publish(b"t", b"x", 1) is not None


def test_no_packet_identifier_is_0(bench: VersionBench) -> None:
    bench.client.last_id = 65_534
    assert [bench.client.publish(b"t", b"", 1) for _ in range(3)] == [65_535, 1, 2]


# Remaining Lengths at which a byte more is needed
@pytest.mark.parametrize("length", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_publish_at_each_size_of_header(length: int, make: Callable) -> None:
    got: list[tuple[bytes, int]] = []
    bench = make(
        tx_size=length + 5, rx_size=length + 5, on_message=lambda m: got.append((m.topic, len(m)))
    )
    n = length - (3 if bench.version == 4 else 4)
    bench.online()
    for topic, qos in ((b"t", 0), (b"t" * min(n // 2, 65_535), 1)):
        payload = bytes(n - len(topic) + 1 - 2 * qos)
        pid = bench.client.publish(topic, payload, qos)
        bench.client.poll()
        assert bench.published() == [(False, qos, False, topic, pid, payload)]
        bench.feed(peer.puback(pid)) if qos else None
        bench.feed(peer.publish(topic, payload, qos, pid))
        assert got.pop() == (topic, len(payload))
        bench.sent()


@pytest.mark.parametrize("length", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_puback_at_each_size_of_header_settles_that_message_alone(
    length: int, make: Callable
) -> None:
    bench = make(tx_size=length + 20, clean_session=False).online()
    payload = bytes(length - (5 if bench.version == 4 else 6))
    pid = bench.client.publish(b"t", payload, 1)
    next_one = bench.client.publish(b"t", b"next", 1)
    bench.client.poll()
    bench.feed(peer.puback(pid))
    bench.outage()
    bench.online(present=True)
    assert bench.published() == [(True, 1, False, b"t", next_one, b"next")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_several_publishes_leave_in_one_write(qos: int, bench: VersionBench) -> None:
    bench.stream.writes.clear()
    for i in range(5):
        bench.client.publish(b"t", b"%d" % i, qos)
    bench.client.poll()
    assert len(bench.stream.writes) == 1
    assert [p.payload for p in bench.published()] == [b"0", b"1", b"2", b"3", b"4"]


def test_flush_writes_and_does_not_read(bench: VersionBench) -> None:
    reads = bench.stream.reads
    bench.client.publish(b"t", b"now")
    bench.client.flush()
    assert [p.payload for p in bench.published()] == [b"now"]
    assert bench.stream.reads == reads


# Waiting


@pytest.mark.parametrize("qos", [0, 1])
def test_wait_is_over_with_room_at_qos_0_and_the_acknowledgement_at_qos_1(
    qos: int, bench: VersionBench
) -> None:
    for _ in range(3):
        bench.client.publish(b"t", b"x")
        began = bench.clock.now
        assert bench.client.wait(5000) is True
        assert (bench.clock.now - began, bench.link.waits) == (0, [])
    bench.stream.room = None if qos else 0
    pid = bench.client.publish(b"t", b"x", qos)
    assert bench.client.wait(100) is False

    def happens() -> None:
        bench.clock.now += 10
        bench.stream.room = None
        if qos:
            bench.arrives(peer.puback(pid))

    bench.link.on_wait = [happens]
    began = bench.clock.now
    assert bench.client.wait(5000) is True
    assert bench.clock.now - began == 10


@pytest.mark.parametrize("ms", [0, 1, 100])
def test_poll_waits_as_long_as_it_is_asked_or_until_something_comes(
    ms: int, bench: VersionBench
) -> None:
    before = bench.clock.now
    assert bench.client.poll(ms) is False
    assert bench.clock.now - before == ms
    bench.link.on_wait = [lambda: bench.arrives(peer.PINGRESP)]
    assert bench.client.poll(1000) is True
    assert bench.clock.now - before == ms


@pytest.mark.parametrize("state", ["greeting", "online"])
def test_one_poll_waits_once(state: str, make: Callable) -> None:
    """While nothing can be read or written, poll(100) is one wait of 100 ms.

    So it is in a handshake of TLS, which takes no bytes before it has read some.
    """
    bench = make()
    if state == "greeting":
        with mock.patch.object(FakeStream, "write", lambda *_: None):
            bench.client.start()
            while bench.client.state != state:
                bench.client.poll()
    else:
        bench.online()
        bench.client.publish(b"t", b"x", 1)
    bench.stream.room = 0
    bench.client.poll()
    reads, attempts, began = bench.stream.reads, bench.stream.attempts, bench.clock.now
    bench.link.waits.clear()
    bench.client.poll(100)
    assert (bench.link.waits, bench.clock.now - began) == ([(100, True)], 100)
    assert bench.stream.reads - reads <= 2
    assert bench.stream.attempts - attempts <= 2


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
ANSWERED = [(0x40, 7), (0x50, 8), (0x70, 8)]


def receive(make: Callable, cut: Callable[[bytes], list[bytes]], **options) -> None:
    """Check what a client makes of the session, cut in that way."""
    inbox = Inbox()
    bench = make(on_message=inbox, **options)
    bench.greet()
    bench.feed_bytes(*cut(bench.wire(peer.connack(), *SESSION)))
    assert (inbox, bench.client.error) == (DELIVERED, None)
    assert [(p.first, p.pid) for p in bench.sent()] == ANSWERED
    assert bench.client.stats.received == len(DELIVERED)


@pytest.mark.parametrize("size", [*range(1, 30), 1000])
@pytest.mark.parametrize("rx_size", [163, 512])
def test_a_session_in_chunks(size: int, rx_size: int, make: Callable) -> None:
    receive(
        make,
        lambda data: [data[i : i + size] for i in range(0, len(data), size)],
        rx_size=rx_size,
    )


def test_a_session_cut_in_two_everywhere(make: Callable) -> None:
    for at in range(1, len(b"".join(SESSION))):
        receive(make, lambda data, at=at: [data[:at], data[at:]])


@pytest.mark.parametrize("stale", [62, 100, 127])
def test_a_header_cut_behind_its_first_byte_is_not_judged(stale: int, make: Callable) -> None:
    """Whatever lies behind it in the buffer."""
    bench = make(rx_size=64).online()
    pid = bench.client.publish(b"t", b"", 1)
    bench.client.poll()
    message = bench.wire(peer.publish(b"t", bytes([stale]) * 50))
    bench.feed_bytes(message[:20], message[20:], b"\x40", b"\x02" + pid.to_bytes(2, "big"))
    assert (bench.client.error, bench.client.pending) == (None, 0)


@pytest.mark.parametrize("size", [1, 200])
def test_a_first_byte_that_begins_no_connack_ends_the_connection(
    size: int, make: Callable
) -> None:
    """Whatever lies behind it in the buffer."""
    bench = make().online()
    bench.feed(peer.publish(b"t", bytes(size)))
    bench.lose()
    bench.greet()
    bench.feed_bytes(b"\x30")
    assert (bench.client.state, bench.client.error.kind) == ("waiting", "protocol")


@pytest.mark.parametrize("length", [b"\x80\x80\x80\x80", b"\xff\xff\xff\xff\x01"])
def test_a_remaining_length_of_five_bytes_is_an_error(length: bytes, bench: VersionBench) -> None:
    bench.feed_bytes(b"\x30" + length[:2], length[2:])
    assert bench.client.error.kind == "protocol"


def test_a_session_that_arrives_while_nothing_can_be_sent(make: Callable) -> None:
    """More acknowledgements are owed than there is room for: reading waits, nothing is lost."""
    inbox = Inbox()
    bench = make(on_message=inbox).online()
    bench.stream.room = 0
    bench.arrives(*(peer.publish(b"t", b"%d" % i, 1, i) for i in range(1, 101)))
    for _ in range(50):
        bench.client.poll()
    assert 0 < len(inbox) < 100
    while len(inbox) < 100:
        bench.stream.room = 10
        bench.client.poll()
    bench.stream.room = None
    bench.drain()
    assert [p.pid for p in bench.sent()] == list(range(1, 101))
    assert inbox.payloads == [b"%d" % i for i in range(1, 101)]


@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
@pytest.mark.parametrize(("qos", "answer"), [(0, []), (1, [0x40]), (2, [0x50])])
def test_a_message_larger_than_rx_size_is_skipped(
    qos: int, answer: list, chunk: int, chunks: bool, make: Callable
) -> None:
    """Unless `on_message` takes it in pieces."""
    inbox = Inbox()
    bench = make(rx_size=64, on_message=inbox, chunks=chunks).online()
    data = bench.wire(
        peer.publish(b"t", b"before"),
        peer.publish(b"big", bytes(500), qos, 3),
        peer.publish(b"t", b"after"),
    )
    bench.feed_bytes(*(data[i : i + chunk] for i in range(0, len(data), chunk)))
    assert b"".join(inbox.payloads) == b"before" + bytes(500 * chunks) + b"after"
    assert (bench.client.stats.skipped, bench.client.stats.received) == (not chunks, 2 + chunks)
    assert [(p.first, p.pid) for p in bench.sent()] == [(first, 3) for first in answer]
    assert bench.client.error is None
    assert (bench.client.two is None) == (qos < 2), "only QoS 2 loads its module"


@pytest.mark.parametrize("size", [5, 500])
@pytest.mark.parametrize("name", [b"", b"x/+", b"x/#", b"x\0", b"x\xff"])
@pytest.mark.parametrize(("qos", "answers"), [(0, []), (1, [0x40]), (2, [0x50, 0x50, 0x70])])
def test_a_message_with_a_topic_name_that_is_not_valid_is_skipped(
    qos: int, answers: list, name: bytes, size: int, make: Callable
) -> None:
    """If it ended the connection, the broker would send it again on the next one, for ever."""
    inbox = Inbox()
    bench = make(rx_size=64, on_message=inbox, chunks=True)
    bench.client.subscribe([b"x/+", b"#"], inbox, chunks=True)
    bench.online()
    bench.sent()
    bad = peer.text(name) + b"\0\3" * (qos > 0) + bytes(size)
    bench.feed(peer.publish(b"t", b"before"), peer.packet(0x30 | qos << 1, bad))
    if qos == 2:
        bench.feed(peer.packet(0x3C, bad), peer.pubrel(3))
    bench.feed(peer.publish(b"t", b"after"))
    stats = bench.client.stats
    assert inbox.payloads == [b"before", b"after"]
    assert (stats.skipped, stats.received, stats.losses) == (1, 2, 0)
    assert [(p.first, p.pid) for p in bench.sent()] == [(first, 3) for first in answers]


@pytest.mark.parametrize("more", [0, 1])
def test_rx_size_is_the_largest_packet(more: int, make: Callable) -> None:
    inbox = Inbox()
    bench = make(rx_size=100, on_message=inbox).online()
    message = bench.wire(peer.publish(b"t", bytes((95 if bench.version == 4 else 94) + more)))
    assert len(message) == 100 + more
    bench.feed_bytes(*(bytes([byte]) for byte in message))
    assert (len(inbox), bench.client.stats.skipped) == (1 - more, more)


def test_a_lack_of_room_is_no_fault_of_the_broker(make: Callable) -> None:
    bench = make(incoming=2, on_message=Inbox()).online()
    for pid in (1, 2, 3):
        bench.feed(peer.publish(b"t", b"", 2, pid))
    assert (bench.client.error, bench.client.stats.received) == (None, 3)


# Handlers


@pytest.mark.parametrize("meanwhile", ["", "unsubscribe", "subscribe"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_handler_that_raises_gets_the_message_again(
    qos: int, meanwhile: str, make: Callable
) -> None:
    bench = make()
    before, raising, after = Inbox(), Inbox(1, 2), Inbox()
    for topic_filter, inbox in ((b"t", before), ([b"+", b"only"], raising), (b"#", after)):
        bench.client.subscribe(topic_filter, inbox, qos)
    bench.online()
    bench.sent()
    bench.arrives(peer.publish(b"t", b"x", qos, 9), peer.publish(b"t", b"next"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the handler"):
            bench.client.poll()
        assert bench.sent() == [], "it is not acknowledged"
    if meanwhile == "unsubscribe":
        bench.client.unsubscribe(b"t")
    elif meanwhile:
        bench.client.subscribe(b"t", Inbox(), qos)
    bench.drain()
    if meanwhile:
        assert (before.payloads, after.payloads[0]) == ([b"x"], b"x")
        assert raising.payloads == [b"x", b"next"]
        return
    for inbox in (before, raising, after):
        assert inbox.payloads == [b"x", b"next"]
    assert before.calls == 2, "the others do not get it twice"
    assert [p.first for p in bench.sent()] == {0: [], 1: [0x40], 2: [0x50]}[qos]
    assert bench.client.stats.received == 2


@pytest.mark.parametrize("change", ["earlier", "own", "later", "own again", "earlier again"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_handler_may_change_subscriptions(change: str, qos: int, make: Callable) -> None:
    """Whoever was subscribed when the message came gets it once, unless it has left before."""
    bench = make()
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
    bench.feed(peer.publish(b"t", b"x", qos, 9 if qos else 0))
    assert [len(inbox) for inbox in inboxes.values()] == [1, 1, 0 if change == "later" else 1]
    assert not new


@pytest.mark.parametrize("count", [7, 8, 9, 20])
def test_any_number_of_subscriptions_may_leave_a_message_to_on_message(
    count: int, make: Callable
) -> None:
    inbox = Inbox()
    bench = make(subscriptions=20, tx_size=1024, on_message=inbox)
    for i in range(count):
        bench.client.subscribe(b"other/%d" % i, Inbox())
    bench.online()
    for topic in (b"a", b"b", b"a"):
        bench.feed(peer.publish(topic, b"x"))
    assert [topic for topic, _ in inbox] == [b"a", b"b", b"a"]


def test_a_message_that_raised_before_hides_none_that_came_since(make: Callable) -> None:
    inbox = Inbox(1)
    bench = make(on_message=inbox).online()
    bench.arrives(peer.publish(b"t", b"1", 1, 1))
    with pytest.raises(RuntimeError):
        bench.client.poll()
    bench.arrives(peer.publish(b"t", b"2", 1, 2))
    bench.drain()
    assert inbox.payloads == [b"1", b"2"]
    assert [p.pid for p in bench.sent()] == [1, 2]


def test_there_is_room_when_nothing_is_pending(make: Callable) -> None:
    """Also for what needs all of it, with a message at QoS 0 behind one that was settled last."""
    bench = make(tx_size=300).online()
    pid = bench.client.publish(b"t", b"", 2)
    assert bench.client.publish(b"t", bytes(200)) == 0
    bench.client.poll()
    bench.feed(peer.pubrec(pid), peer.pubcomp(pid))
    assert bench.client.pending == 0
    assert bench.client.publish(b"t", bytes(200), 1)


def test_a_message_that_raised_does_not_hide_the_next_connection_from_others(
    make: Callable,
) -> None:
    bench = make()
    first, second = Inbox(), Inbox(1)
    bench.client.subscribe(b"t", first)
    bench.client.subscribe(b"#", second)
    bench.online()
    bench.arrives(peer.publish(b"t", b"old"))
    with pytest.raises(RuntimeError):
        bench.client.poll()
    bench.client.disconnect()
    bench.online()
    bench.feed(peer.publish(b"t", b"new"))
    assert (first.payloads, second.payloads) == ([b"old", b"new"], [b"new"])


def test_a_handler_may_call_the_client(make: Callable) -> None:
    bench = make()
    client = bench.client
    polled = []

    def handler(message) -> None:
        polled.append(client.poll())
        client.publish(b"reply", message.payload)
        client.flush()

    client.subscribe(b"t", handler)
    bench.online()
    bench.sent()
    bench.feed(peer.publish(b"t", b"1"), peer.publish(b"t", b"2"))
    assert polled == [False, False]
    assert [p.payload for p in bench.published()] == [b"1", b"2"]


def test_a_handler_may_disconnect(make: Callable) -> None:
    bench = make(on_message=lambda message: bench.client.disconnect())
    bench.online()
    bench.feed(peer.publish(b"t", b"", 1, 1), peer.publish(b"t", b"", 1, 2))
    assert bench.client.state == "offline"
    inbox = Inbox()
    bench.client.subscribe(b"t", inbox)
    bench.online()
    bench.feed(peer.publish(b"t", b"again"))
    assert inbox.payloads == [b"again"]


# Subscriptions


@pytest.mark.parametrize("blocked", [False, True])
def test_the_suback_of_a_subscription_that_was_replaced_is_no_one_s(
    blocked: bool, bench: VersionBench
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


def test_unsubscribe_from_one_of_several(bench: VersionBench) -> None:
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
    assert sorted(p.first for p in bench.sent()) == [0x3C, 0x82]
    assert bench.client.session_present is False


def test_mqtt_3_1_asks_again_for_what_a_kept_session_may_have_lost(clock: Clock) -> None:
    """Its CONNACK does not say whether the broker has the session."""
    bench = Bench(clock, clean_session=False, version=3)
    subscription = bench.client.subscribe(b"t", print)
    bench.online()
    (request,) = bench.sent()
    bench.feed(peer.suback(request.pid, 0))
    assert subscription.granted == b"\0"
    bench.client.unsubscribe(b"u")
    bench.outage()
    bench.online()
    assert [p.first for p in bench.sent()] == [0xA2, 0x82]


# Keep alive


def test_a_publish_takes_the_place_of_a_ping_only_while_answers_come(make: Callable) -> None:
    bench = make(keepalive=10).online()
    for _ in range(30):  # a second each
        bench.pass_time(1000)
        bench.feed(peer.publish(b"t", b""))
        pid = bench.client.publish(b"t", b"", 1)
        bench.client.poll()
        bench.feed(peer.puback(pid))
    assert all(p.first >> 4 == 3 for p in bench.sent())


def test_anything_that_comes_in_shows_that_the_link_lives(make: Callable) -> None:
    bench = make(keepalive=60).online()
    bench.client.ping()
    bench.client.poll()
    bench.pass_time(5000)
    bench.feed(peer.publish(b"t", b""))
    bench.pass_time(20_000)
    assert bench.client.connected


def test_no_keep_alive_no_ping(make: Callable) -> None:
    bench = make(keepalive=0).online()
    bench.pass_time(10_000_000, step=1000)
    assert (bench.sent(), bench.client.connected) == ([], True)
    bench.client.ping()
    bench.client.poll()
    assert bench.sent() == [(0xC0, b"")]
    bench.pass_time(10_100)
    assert bench.client.error.kind == "timeout"


def test_a_request_that_waits_for_room_does_not_hurry_a_pingresp(make: Callable) -> None:
    bench = make(tx_size=64, timeout=5).online()
    pid = bench.client.publish(b"t", bytes(50), 1)
    bench.client.poll()
    waiting = bench.client.subscribe(b"a/topic", print)
    bench.client.ping()
    bench.client.poll()
    sent = bench.sent()
    bench.pass_time(1000)
    assert (bench.client.connected, bench.sent()) == (True, [])
    bench.feed(peer.puback(pid))
    bench.pass_time(50)
    (subscribe,) = (p for p in sent if p.first == 0x82)
    bench.feed(peer.suback(subscribe.pid, 0))
    assert waiting.granted == b"\0"
    bench.client.ping()
    bench.pass_time(5100)
    assert bench.client.error.kind == "timeout"


# On a desk


def test_a_client_does_not_collect_the_garbage_of_the_whole_program(
    make: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On CPython that takes from tens to hundreds of milliseconds."""

    def collect(*_: object) -> None:
        raise AssertionError("a full collection")

    monkeypatch.setattr(gc, "collect", collect)
    bench = make()
    bench.client.subscribe(b"t/#", Inbox())
    bench.online()
    bench.client.publish(b"t", b"", qos=1)
    bench.drain()
    bench.lose()
    bench.online(present=False)
    bench.client.unsubscribe(b"t/#")
    bench.client.disconnect()
