"""Bulk receiving on CPython through public functions alone."""

import random
import threading
import time
from typing import Any

import pytest

import peer
from flatmq.bulk_cpython import head_of, take_in_bulk
from flatmq.message import Message
from packets import build
from packets.properties import Id
from unit.fake_link import Clock
from v5.clients5 import Bench5


class Program:
    """Takes nothing in bulk, and keeps what comes to `on_message`."""

    def __init__(self, clock: Clock, version: int = 4, **options: Any) -> None:
        self.got: list[tuple[bytes, bytes, int]] = []
        self.reads = True
        self.bench = Bench5(
            clock, version=version, on_message=self.take, chunks=True, rx_size=64, **options
        )
        take_in_bulk(self.bench.client, lambda buf, at, end: at, lambda: self.reads)
        self.head = self.payload = b""

    def take(self, m: Message) -> None:
        if not m.offset:
            self.head, self.payload = bytes(head_of(m)), b""
        self.payload += m.payload
        if m.last:
            self.got.append((self.head, self.payload, m.qos))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 5, 200, 20_000])
def test_a_message_comes_once_as_it_was_sent_whatever_matches(
    qos: int, size: int, clock: Clock
) -> None:
    called: list[Any] = []
    program = Program(clock)
    bench = program.bench
    bench.client.subscribe("a/#", called.append, qos=2, chunks=True)
    bench.client.subscribe("+/b", called.append, qos=2)
    bench.online()
    sent = peer.publish(b"a/b", bytes(size), qos, 300 if qos else 0)
    for at in range(0, len(sent), 50):
        bench.feed(sent[at : at + 50])
    ((head, payload, level),) = program.got
    assert head + payload == sent and level == qos
    assert called == []


@pytest.mark.parametrize("size", [0, 300])
def test_in_mqtt_5_it_has_its_properties_and_no_identifier(size: int, clock: Clock) -> None:
    carried = [(Id.CONTENT_TYPE, b"x"), (Id.USER_PROPERTY, (b"k", b"v"))]
    program = Program(clock, 5)
    bench = program.bench
    bench.client.subscribe("a/#", print, qos=1)
    bench.accepted().client.poll()
    (asked,) = [p for p in bench.packets() if p.name == "SUBSCRIBE"]
    assert list(asked.properties) == []
    sent = build.publish(b"a/b", bytes(size), 1, 7, carried)
    bench.feed(sent)
    ((head, payload, _),) = program.got
    assert head + payload == sent


def test_the_length_of_properties_may_come_byte_by_byte(clock: Clock) -> None:
    """Property Length has up to four bytes."""
    rest = b"\x80\x80\x80\1" + bytes(2 << 20)
    sent = peer.packet(0x30, peer.text(b"a/b") + rest)
    program = Program(clock, 5)
    bench = program.bench.accepted()
    for at in range(20):
        bench.feed(sent[at : at + 1])
    assert bench.client.connected
    assert program.head + program.payload == sent[:20]


def test_while_nothing_is_read_the_connection_stays(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    here, sleep = threading.get_ident(), time.sleep

    def nap(seconds: float) -> None:
        if threading.get_ident() == here:
            naps.append(seconds)
        else:  # another thread of the tests' process
            sleep(seconds)

    monkeypatch.setattr("time.sleep", nap)
    program = Program(clock, keepalive=60)
    bench = program.bench
    bench.online()
    program.reads = False
    bench.stream.incoming.append(peer.publish(b"t", b"x", 1, 1))
    bench.sent()
    reads, waits = bench.stream.reads, len(bench.link.waits)
    for _ in range(1_200):  # ten minutes
        clock.now += 500
        bench.client.poll(100)
    assert bench.client.connected
    assert bench.stream.reads == reads and len(bench.link.waits) == waits
    assert naps and max(naps) <= 0.02, "bytes that wait to be read do not end the wait"
    assert {p.first for p in bench.sent()} == {0xC0}
    program.reads = True
    bench.drain()
    assert [payload for _, payload, _ in program.got] == [b"x"]
    bench.lose()
    assert not bench.client.connected
    bench.client.poll(100)
    assert len(bench.link.waits) > waits, "the link waits again"


@pytest.mark.parametrize("name", [b"t", b"", b"t/+", b"t\xff"])
@pytest.mark.parametrize("size", [0, 300])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_whatever_is_wrong_comes_in_pieces(qos: int, size: int, name: bytes, clock: Clock) -> None:
    """A whole message that `take` leaves ends the connection, as in any client."""
    body = peer.text(name) + (b"\0\3" if qos else b"") + b"\1\x7f" + bytes(size)
    program = Program(clock, 5)
    bench = program.bench.accepted()
    bench.feed(peer.packet(0x30 | qos << 1, body))
    assert bench.client.connected == (size > 0)
    assert [head + payload for head, payload, _ in program.got] == (
        [peer.packet(0x30 | qos << 1, body)] if size else []
    )


def test_identifiers_of_qos_2_beside_a_plain_list(clock: Clock) -> None:
    """The client looks for, sets and frees places in either."""
    choose = random.Random(1)
    fast = Program(clock, incoming=20).bench.client.received
    plain = [0] * 20
    for _ in range(5_000):
        pid = choose.randrange(1, 30)
        assert (pid in fast, 0 in fast) == (pid in plain, 0 in plain)
        for there in (fast, plain):
            if pid in there:
                there[there.index(pid)] = 0
            elif 0 in there:
                there[there.index(0)] = pid
        assert sorted(fast) == sorted(plain)
    for i in range(20):
        fast[i] = 0
    assert list(fast) == [0] * 20
