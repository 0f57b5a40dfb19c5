"""Publishing, waiting, handlers and the keep alive of a client without a network.

What a client makes of whatever comes in, and of the end of a connection, is in ../hostile.
"""

import gc
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

import peer
from unit.both_versions import VersionBench
from unit.fake_link import FakeStream


class Inbox(list):
    """A handler that keeps what it gets."""

    def __call__(self, message) -> None:
        self.append((message.topic, message.payload))


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


# Handlers


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
    assert inbox == [(b"t", b"again")]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_handler_may_disconnect_and_start_again(qos: int, make: Callable) -> None:
    """The client leaves as it does without `start`, and connects again."""

    def handler(message) -> None:
        got.append(message.payload)
        bench.client.disconnect()
        bench.client.start()

    got: list[bytes] = []
    bench = make(on_message=handler, clean_session=False).online()
    bench.feed(peer.publish(b"t", b"1", qos, qos))
    assert [p.first for p in bench.sent()] == [0x40] * qos + [0xE0]
    assert (bench.client.state, bench.client.error) == ("waiting", None)
    bench.pass_time(600)
    bench.online(present=True)
    bench.client.publish(b"t", b"2", 1)
    bench.pass_time(20_000)
    assert [p.payload for p in bench.published()] == [b"2"]
    assert (bench.client.connected, got) == (True, [b"1"])


def test_the_last_call_in_a_handler_decides(make: Callable) -> None:
    def handler(message) -> None:
        bench.client.disconnect()
        bench.client.start()
        bench.client.disconnect()

    bench = make(on_message=handler).online()
    bench.feed(peer.publish(b"t", b"1"))
    assert ([p.first for p in bench.sent()], bench.client.state) == ([0xE0], "offline")
    bench.pass_time(20_000)
    assert bench.client.state == "offline"


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
