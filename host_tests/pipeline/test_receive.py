"""The bulk client does what the ordinary one does, except for the log."""

from __future__ import annotations

import ast
import copy
import itertools
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peer
from flatmq import Client
from flatmq_tools.pipeline import log, receive
from flatmq_tools.pipeline.receive import BulkClient
from hostile import cases, corpus, rules
from unit.fake_link import Bench, FakeStream, fake_clock


class Told(NamedTuple):
    """A message out of the log, as a handler of the ordinary client gets it."""

    topic: bytes
    payload: bytes
    qos: int
    retain: int
    dup: int

    @classmethod
    def of(cls, packet: peer.Packet) -> Told:
        """Return the content of a PUBLISH."""
        p = peer.take_apart(packet)
        return cls(p.topic, p.payload, p.qos, int(p.retain), int(p.dup))


def told(writer: log.Writer, start: int) -> list[Told]:
    """The messages of a log from that offset on."""
    return [
        Told(m["topic"].encode(), m["payload"], m["qos"], int(m["retain"]), int(m["dup"]))
        for b in log.read(writer.folder, start, writer.next_offset)
        for m in b.to_pylist()
    ]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.Writer]:
    with log.Writer(tmp_path / "log") as made:
        yield made


# The rules of what comes in

# What an ordinary client passes over, unless it takes it in pieces, is kept here.
KEPT = (
    "larger than rx_size: a message is skipped and acknowledged",
    "larger than rx_size: at QoS 2 too",
)


def through(log_: log.Writer) -> type[BulkClient]:
    """A client whose `on_message` gets what is in the log."""

    class Through(BulkClient):
        def __init__(self, name: bytes, on_message: Any, **options: Any) -> None:
            options.setdefault("incoming", 32)
            super().__init__(log_, name, delay_ms=0, **options)
            self.on_message = on_message
            self.seen = log_.next_offset

        def poll(self, ms: int = 0) -> bool:
            moved = super().poll(ms)
            for message in told(log_, self.seen):
                self.on_message(message)
            self.seen = log_.next_offset
            return moved

    return Through


@pytest.mark.parametrize("name", rules.RULES)
def test_a_rule_of_what_comes_in(name: str, writer: log.Writer) -> None:
    rule = copy.copy(rules.RULES[name])
    if name in KEPT:
        rule.gets = [Told.of(p) for p in peer.split(rule.data)[0] if p.first >> 4 == 3]
        assert len(rule.gets) == len(rules.RULES[name].gets) + 1
    with mock.patch.object(rules, "Client", through(writer)):
        for way in rules.WAYS:
            rules.check(rule, way)


# Beside the ordinary client


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, again and again."""
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


class Gather:
    """A handler that puts the pieces of a message together."""

    def __init__(self) -> None:
        self.got: list[Told] = []
        self.payload = b""

    def __call__(self, m: Any) -> None:
        self.payload = (b"" if m.offset == 0 else self.payload) + m.payload
        if m.last:
            self.got.append(Told(m.topic, self.payload, m.qos, m.retain, m.dup))


FILTERS = [b"#", b"$SYS/#", b"$a/#"]


def outcome(bench: Bench, data: bytes, sizes: list[int]) -> tuple[Any, ...]:
    """Return the outcome of these bytes: the answers, how it ended, and what was counted."""
    for piece in pieces(data, sizes):
        if bench.client.connected:
            bench.feed(piece)
    error, stats = bench.client.error, bench.client.stats
    if error:
        return error.kind, str(error.detail)
    return sorted(bench.sent()), stats.received + stats.unrouted, stats.strays


def both(writer: log.Writer, data: bytes, sizes: list[int], rx_size: int) -> list[Any]:
    """The messages and the outcome, in an ordinary client and in the bulk one."""
    gather = Gather()
    start = writer.next_offset
    with fake_clock() as clock:
        bench = Bench(clock, rx_size=rx_size, incoming=4)
        bench.online()
        bench.client.subscribe(FILTERS, gather, 2, chunks=True)
        bench.drain()
        bench.client.flush()
        bench.sent()
        ordinary = outcome(bench, data, sizes)
        bench = Bench(clock)
        bench.client = BulkClient(
            writer, b"unit", link=bench.link, rx_size=rx_size, incoming=4, delay_ms=0
        )
        bench.online()
        bench.client.subscribe(FILTERS, print, 2)
        bench.drain()
        bench.client.flush()
        bench.sent()
        bulk = outcome(bench, data, sizes)
    return [(gather.got, ordinary), (told(writer, start), bulk)]


FED = sorted(
    {
        b"".join(argument for step, argument in cases.decode(data)[1] if step == cases.FEED)
        for data in corpus.load().values()
    }
)


@pytest.mark.parametrize("rx_size", [64, 512])
def test_the_corpus_of_hostile_bytes(
    rx_size: int, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_sync", lambda _: None)
    ends = set()
    for i, data in enumerate(FED):
        for sizes in ([rx_size], [1 + i % 7, 1 + i % 60]):
            ordinary, bulk = both(writer, data, sizes, rx_size)
            assert bulk == ordinary, f"{data.hex()} in pieces of {sizes}"
            ends.add(str(ordinary[1][:2]))
    assert len(ends) > 20, "they end in many ways"


NAMES = st.sampled_from(
    [b"t", b"a/b", "é".encode(), b"$SYS/x", b"$a/b", b"t" * 50] * 3
    + [b"", b"a+", b"#", b"\xff", b"\xed\xa0\x80", b"a\0"]
)
PUBLISH = st.builds(
    lambda name, payload, first, pid: peer.packet(
        first, len(name).to_bytes(2, "big") + name + (pid if first & 6 else b"") + payload
    ),
    NAMES,
    st.binary(max_size=40) | st.sampled_from([b"x" * 120, b"x" * 700]),
    st.sampled_from([0x30, 0x32] * 9 + [0x31, 0x33, 0x34, 0x3A, 0x3B, 0x3C] * 3 + [0x36, 0x38]),
    st.sampled_from([b"\0\1", b"\1\0", b"\xff\xff"] * 9 + [b"\0\0"]),
)
OTHER = st.sampled_from(
    [peer.pubrel(1), peer.pubrel(256), peer.puback(9), peer.PINGRESP, peer.pubcomp(4)] * 3
    + [b"\x30\0", b"\x32\3\0\1t", b"\x32\2\0\0", b"\x30\x80\x80\x80\x80\1", b"\0\0", b"\x30"]
)


@settings(max_examples=300)
@given(
    packets=st.lists(st.one_of(PUBLISH, PUBLISH, PUBLISH, OTHER), max_size=25),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    rx_size=st.sampled_from([64, 200, 4096]),
)
def test_whatever_comes_in(packets: list[bytes], sizes: list[int], rx_size: int) -> None:
    with (
        mock.patch.object(log, "_sync"),
        mock.patch.object(log, "sync_folder"),
        tempfile.TemporaryDirectory() as folder,
        log.Writer(folder) as writer,
    ):
        ordinary, bulk = both(writer, b"".join(packets), sizes, rx_size)
    assert bulk == ordinary


# Nothing is acknowledged before it is synced


def acknowledged(bench: Bench) -> list[int]:
    """The identifiers of every PUBACK and PUBREC that was written on this connection."""
    packets = peer.split(bytes(bench.stream.written))[0]
    return [p.pid for p in packets if p.first in (0x40, 0x50)]


def until(done: Callable[[], bool], client: Client) -> None:
    """Poll until then."""
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        client.poll()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("rx_size", [64, 4096])
@pytest.mark.parametrize("room", [None, 7])
def test_no_acknowledgement_before_the_sync(
    qos: int, rx_size: int, room: int | None, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, int]] = []

    def sync(file: int) -> None:
        os.fdatasync(file)
        events.append(("synced", writer.next_offset))

    def write(stream: FakeStream, *span: Any) -> int | None:
        sent = ordinary(stream, *span)
        events.append(("acknowledged", len(acknowledged(bench))))
        return sent

    ordinary = FakeStream.write
    monkeypatch.setattr(log, "_sync", sync)
    monkeypatch.setattr(FakeStream, "write", write)
    with fake_clock() as clock:
        bench = Bench(clock)
        bench.client = BulkClient(writer, b"unit", link=bench.link, rx_size=rx_size)
        bench.greet()
        # The first ones come with CONNACK, and some are larger than the buffer.
        data = peer.connack()
        for i in range(60):
            data += peer.publish(b"t", b"%d" % i + b"x" * (100 * (i % 7 == 0)), qos, i + 1)
        for piece in pieces(data, [50, 3, 200]):
            bench.stream.room = room
            bench.feed(piece)
        bench.stream.room = None
        until(lambda: len(acknowledged(bench)) == 60, bench.client)
    synced = 0
    for what, n in events:
        if what == "synced":
            synced = n
        else:
            assert n <= synced
    assert [m.payload.rstrip(b"x") for m in told(writer, 0)] == [b"%d" % i for i in range(60)]
    assert acknowledged(bench) == list(range(1, 61))


def test_few_messages_wait_for_others_and_many_do_not(
    writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10**9
    monkeypatch.setattr(receive.time, "monotonic_ns", lambda: now)
    with fake_clock() as clock:
        bench = Bench(clock)
        bench.client = BulkClient(writer, b"unit", link=bench.link, delay_ms=5)
        bench.online()
        bench.feed(peer.publish(b"t", b"", 1, 1))
        now += 4_000_000
        bench.feed(peer.publish(b"t", b"", 1, 2))
        assert (bench.sent(), writer.synced) == ([], 0)
        bench.client.poll(100)
        assert bench.link.waits[-1][0] == 1, "it waits no longer than until the sync is due"
        now += 1_000_000
        bench.client.poll()
        assert ([p.pid for p in bench.sent()], writer.synced) == ([1, 2], 2)
        writes = len(bench.stream.writes)
        bench.stream.incoming.append(
            b"".join(peer.publish(b"t", b"", 1, i + 1) for i in range(200))
        )
        bench.client.poll()
        assert ([p.pid for p in bench.sent()], writer.synced) == (list(range(1, 201)), 202)
        assert len(bench.stream.writes) == writes + 1, "all of them in one write"


def test_acknowledgements_stay_with_their_connection(
    writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identifiers mean something else on the next one."""
    now = 10**9
    monkeypatch.setattr(receive.time, "monotonic_ns", lambda: now)
    with fake_clock() as clock:
        bench = Bench(clock)
        bench.client = BulkClient(writer, b"unit", link=bench.link, clean_session=False)
        bench.online()
        bench.stream.room = 5  # so that some are cut, some wait to be sent,
        bench.feed(*[peer.publish(b"t", b"", 1, i + 1) for i in range(20)])
        bench.feed(*[peer.publish(b"t", b"", 1, i + 1) for i in range(20, 40)])
        bench.feed(peer.publish(b"t", b"", 1, 41))  # and one to be synced
        bench.stream.ended = True
        bench.drain()
        bench.online(present=True)
        now += 10**9
        bench.client.poll()
        bench.client.poll()
        assert bench.sent() == []
        assert writer.synced == 41


def test_what_is_published_meanwhile_is_not_torn(writer: log.Writer) -> None:
    with fake_clock() as clock:
        bench = Bench(clock)
        client = bench.client = BulkClient(writer, b"unit", link=bench.link, delay_ms=0)
        bench.online()
        numbers = iter(range(1, 10_000))
        for i in range(60):
            client.publish(b"out", b"x" * 30, i % 3)
            bench.stream.room = i % 40
            bench.feed(*[peer.publish(b"t", b"", 1, next(numbers)) for _ in range(1 + i % 7)])
            client.ping()
            bench.feed(peer.PINGRESP)
        bench.stream.room = None
        count = next(numbers) - 1
        until(lambda: len(acknowledged(bench)) == count and not client.queued, client)
        packets = bench.sent()  # asserts that there is no rest
    assert acknowledged(bench) == list(range(1, count + 1))
    assert sum(p.first >> 4 == 3 for p in packets) > 10


# A full log, and a disk that takes nothing


def test_a_full_log_reads_nothing_and_stays_connected(tmp_path: Path) -> None:
    with fake_clock() as clock, log.Writer(tmp_path, 5000, 1000) as writer:
        bench = Bench(clock)
        bench.client = BulkClient(
            writer, b"unit", link=bench.link, keepalive=60, rx_size=512, delay_ms=0
        )
        bench.online()
        sent = 0
        while not writer.full:
            bench.feed(peer.publish(b"t", b"%0100d" % sent, 1, sent + 1))
            sent += 1
        bench.sent()
        bench.stream.incoming.append(peer.publish(b"t", b"%0100d" % sent, 1, sent + 1))
        reads = bench.stream.reads
        for _ in range(1200):  # ten minutes
            clock.now += 500
            bench.client.poll()
        assert bench.client.connected
        assert (bench.stream.reads, writer.next_offset) == (reads, sent)
        pings = bench.sent()
        assert len(pings) >= 10, "the broker receives it"
        assert {p.first for p in pings} == {0xC0}
        writer.trim(sent)
        bench.drain()
        assert writer.next_offset == sent + 1
        assert [p.pid for p in bench.sent()] == [sent + 1]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("rx_size", [64, 4096])
def test_a_disk_that_takes_nothing_for_a_while(
    qos: int, rx_size: int, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fake_clock() as clock:
        bench = Bench(clock)
        bench.client = BulkClient(writer, b"unit", link=bench.link, rx_size=rx_size, delay_ms=0)
        bench.online()
        for i in range(5):
            bench.stream.incoming.append(peer.publish(b"t", b"%0200d" % i, qos, i + 1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", mock.Mock(side_effect=OSError(28, "no space")))
            for _ in range(5):
                with pytest.raises(OSError, match="no space"):
                    bench.drain()
                assert (bench.sent(), writer.next_offset) == ([], 0)
        bench.drain()
        assert [int(m.payload) for m in told(writer, 0)] == list(range(5))
        assert [p.pid for p in bench.sent()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("full", [False, True])
def test_disconnecting_does_not_wait_for_a_log_that_is_full(full: bool, tmp_path: Path) -> None:
    with fake_clock() as clock, log.Writer(tmp_path, 100, 100) as writer:
        bench = Bench(clock)
        bench.client = BulkClient(writer, b"unit", link=bench.link, delay_ms=0)
        bench.online()
        bench.feed(peer.publish(b"t", b"x" * 100 * full, 1, 1))
        assert writer.full == full
        bench.stream.incoming.append(peer.publish(b"t", b"", 1, 2))
        bench.link.on_wait.append(lambda: setattr(bench.stream, "ended", True))
        before = clock.now
        assert bench.client.disconnect(5000)
        assert clock.now == before
        assert [p.first for p in bench.sent()] == [0x40, 0xE0]


def test_a_broker_that_takes_no_answers(writer: log.Writer) -> None:
    """Nothing more is read then, and every acknowledgement is sent in the end."""
    with fake_clock() as clock:
        bench = Bench(clock)
        client = bench.client = BulkClient(
            writer, b"unit", link=bench.link, rx_size=64, delay_ms=0
        )
        bench.online()
        bench.stream.room = 0
        count = 500
        for i in range(count):
            bench.stream.incoming.append(peer.publish(b"t", b"", 1 + i % 2, i + 1))
        for _ in range(count):
            client.poll()
        assert client.paused
        assert 16 <= writer.next_offset < 30
        assert client.connected
        while bench.stream.incoming or client.queued:
            bench.stream.room = 3
            client.poll()
        assert acknowledged(bench) == list(range(1, count + 1))
        assert writer.next_offset == count


@pytest.mark.parametrize("size", [10, 300])
def test_filters_that_overlap_bring_a_message_once(size: int, writer: log.Writer) -> None:
    with fake_clock() as clock:
        bench = Bench(clock)
        client = bench.client = BulkClient(writer, b"unit", link=bench.link, rx_size=128)
        asked = [client.subscribe("a/#", qos=2), client.subscribe("+/b", qos=2)]
        bench.online()
        client.poll()
        bench.feed(*[peer.suback(p.pid, 2) for p in bench.sent()])
        assert [s.granted for s in asked] == [b"\2", b"\2"]
        bench.feed(peer.publish(b"a/b", b"x" * size, 2, 7))
        client.unsubscribe("a/#")
        bench.feed(peer.publish(b"a/b", b"y" * size, 2, 8))
        assert [m.payload[:1] for m in told(writer, 0)] == [b"x", b"y"]


# The seam


def test_it_uses_what_is_documented_of_the_client_and_nothing_else() -> None:
    """The other names that a client, its counters and its messages have may change."""
    with fake_clock() as clock:
        client = Bench(clock, version=5).client
        message = client.load().message
    theirs = {
        "self": client, "super()": client, "self.stats": client.stats, "m": message,
        "m.properties": message.properties,
    }  # fmt: skip
    tree = ast.parse(Path(receive.__file__).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and hasattr(theirs.get(ast.unparse(node.value)), node.attr)
    }
    used |= {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and hasattr(client, node.name)
    }
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text()
    documented = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`\n]+`", guide))))
    assert {"gate", "poll", "offset"} <= used
    assert used - documented - {"__init__"} == set()
