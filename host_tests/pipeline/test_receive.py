"""The bulk client does what the ordinary one does, in both versions, and keeps every message."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

import peer
import sizes
from flatmq.wire import get_length
from flatmq_tools.pipeline import log, receive
from flatmq_tools.pipeline.log_rows import topic_text
from flatmq_tools.pipeline.receive import BulkClient, BulkClient5
from hostile import cases, chance, corpus
from observer import until
from packets import build, strict
from packets.fields import length
from packets.properties import Id
from unit.fake_link import Bench, Clock, FakeStream, fake_clock

FULL = [
    (Id.PAYLOAD_FORMAT, 1), (Id.USER_PROPERTY, (b"k", b"1")), (Id.MESSAGE_EXPIRY, 60),
    (Id.CONTENT_TYPE, b"text/plain"), (Id.USER_PROPERTY, (b"k", b"2")),
]  # fmt: skip
BOTH = pytest.mark.parametrize("version", [4, 5])


def bulk(clock: Clock, writer: log.Writer, version: int = 4, **options: Any) -> Bench:
    """A bulk client that awaits CONNACK."""
    made = Bench(clock)
    kind = BulkClient5 if version == 5 else BulkClient
    made.client = kind(writer, b"unit", link=made.link, **{"delay_ms": 0, **options})
    made.greet()
    return made


def online(clock: Clock, writer: log.Writer, version: int = 4, **options: Any) -> Bench:
    """A bulk client that is connected."""
    made = bulk(clock, writer, version, **options)
    made.feed(connack(version))
    return made


def again(bench: Bench, version: int = 4) -> None:
    """Connect again, to the same session."""
    bench.greet()
    bench.feed(connack(version, present=True))


def connack(version: int, present: bool = False) -> bytes:
    return build.connack(present=present) if version == 5 else peer.connack(present=present)


def publish(version: int, payload: bytes, qos: int, pid: int, carried: Any = ()) -> bytes:
    """A PUBLISH to t."""
    if version == 5:
        return build.publish(b"t", payload, qos, pid, carried)
    return peer.publish(b"t", payload, qos, pid)


def raw(name: bytes, block: bytes, payload: bytes, first: int, pid: bytes) -> bytes:
    """A PUBLISH of these parts, of which any may be wrong."""
    return peer.packet(first, peer.text(name) + (pid if first & 6 else b"") + block + payload)


def rows(writer: log.Writer, start: int = 0) -> list[dict[str, Any]]:
    """The messages of a log from that offset on, as `Gather` has them."""
    found = [m for b in log.read(writer.folder, start, writer.next_offset) for m in b.to_pylist()]
    return [{k: v for k, v in m.items() if k not in ("timestamp", "offset")} for m in found]


def payloads(writer: log.Writer) -> list[bytes]:
    return [m["payload"] for m in rows(writer)]


def written(bench: Bench) -> list[strict.Packet]:
    """All packets of MQTT 5 that were written on this connection, read strictly."""
    packets, rest = strict.split(bytes(bench.stream.written))
    assert rest == b""
    return [strict.from_client(*p) for p in packets if p[0] != 0x10]


def acknowledged(bench: Bench) -> list[int]:
    """The identifiers of every PUBACK and PUBREC that was written on this connection."""
    packets = peer.split(bytes(bench.stream.written))[0]
    return [p.pid for p in packets if p.first in (0x40, 0x50)]


COLUMNS = {
    "content_type": 0x03, "response_topic": 0x08, "correlation_data": 0x09,
    "message_expiry": 0x02, "payload_format": 0x01,
}  # fmt: skip


class Gather:
    """A handler that keeps messages as rows of the log, the pieces of each put together."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._payload = b""

    def __call__(self, m: Any) -> None:
        self._payload = (b"" if m.offset == 0 else self._payload) + m.payload
        if not m.last:
            return
        row = {"topic": m.topic.decode(), "payload": self._payload, "qos": m.qos}
        row.update(retain=bool(m.retain), dup=bool(m.dup))
        self.rows.append({**row, **_carried(getattr(m, "properties", None))})


def _carried(p: Any) -> dict[str, Any]:
    found: dict[str, Any] = {name: p and p.get(i) for name, i in COLUMNS.items()}
    for name in ("content_type", "response_topic"):
        found[name] = found[name] if found[name] is None else found[name].decode()
    pairs = []
    at = 0
    while p is not None and p.find(0x26, at):
        n = p.at + 2 + int.from_bytes(p.buf[p.at : p.at + 2], "big")
        name, value = bytes(p.buf[p.at + 2 : n]), bytes(p.buf[n + 2 : p.end])
        pairs.append({"name": name.decode(), "value": value.decode()})
        at = p.end
    return {**found, "user_properties": pairs or None, "invalid_properties": None}


class Outcome(NamedTuple):
    """The result of some bytes: the end of the connection, what was written, and the counts."""

    ended: tuple[Any, ...]
    sent: list[Any]
    taken: int
    strays: int
    skipped: int


def outcome(bench: Bench, version: int, data: bytes, pieces: list[int]) -> Outcome:
    """Return the outcome of these bytes."""
    at = 0
    for size in itertools.cycle(pieces):
        if at >= len(data) or not bench.client.connected:
            break
        bench.feed(data[at : at + size])
        at += size
    error, stats = bench.client.error, bench.client.stats
    sent: list[Any] = written(bench) if version == 5 else bench.sent()
    ended: tuple[Any, ...] = ()
    if error:
        said = [p.code for p in sent if version == 5 and p.name == "DISCONNECT"]
        ended = error.kind, str(error.detail), said
        sent = []
    taken = stats.received + stats.unrouted
    return Outcome(ended, sorted(sent), taken, stats.strays, stats.skipped)


def both(
    version: int, writer: log.Writer, data: bytes, pieces: list[int], rx_size: int
) -> tuple[list[dict[str, Any]], Outcome, list[dict[str, Any]], Outcome]:
    """The messages and the outcome, in an ordinary client and in the bulk one."""
    gather = Gather()
    start = writer.next_offset
    with fake_clock() as clock:
        ordinary = Bench(
            clock, version=version, rx_size=rx_size, incoming=4, on_message=gather, chunks=True
        )
        ordinary.greet()
        ordinary.feed(connack(version))
        ours = online(clock, writer, version, rx_size=rx_size, incoming=4)
        found = [outcome(one, version, data, pieces) for one in (ordinary, ours)]
    return gather.rows, found[0], rows(writer, start), found[1]


def repeats(data: bytes) -> bool:
    """Return whether a message at QoS 2 has the packet identifier of an earlier one."""
    seen = set()
    at = 0
    while (size := get_length(data, at + 1, len(data))) >= 0:
        topic = at + 2 + (size & 3)
        pid = topic + 2 + int.from_bytes(data[topic : topic + 2], "big")
        if data[at] & 0xF6 == 0x34:
            if data[pid : pid + 2] in seen:
                return True
            seen.add(data[pid : pid + 2])
        at = topic + (size >> 2)
    return False


def agree(
    data: bytes,
    delivered: list[dict[str, Any]],
    ordinary: Outcome,
    kept: list[dict[str, Any]],
    ours: Outcome,
    rx_size: int = 4096,
) -> None:
    """Check that the bulk client kept all that the ordinary one delivered, skipped or left for.

    Of a topic name larger than the buffer, that one did not judge the properties.
    """
    handled = len(delivered) + ordinary.skipped
    if ours.ended != ordinary.ended:
        # Properties ended the ordinary one, and the other one has not stopped there.
        assert re.search(_OF_A_PROPERTY, ordinary.ended[1])
        # One that came before at QoS 2 is not kept twice.
        last = kept[handled : handled + 1]
        assert repeats(data) or all(row["invalid_properties"] for row in last)
        kept = kept[:handled]
    assert len(kept) == handled
    short = [row for row in kept if len(row["topic"].encode()) < rx_size - 9]
    assert not any(row["invalid_properties"] for row in short)
    left_out = sum(delivered_of(row) != row for row in kept)
    rest = iter([delivered_of(row) for row in kept if is_name(row["topic"])])
    assert all(row in rest for row in delivered), "in this order"
    if not ordinary.ended:
        assert ours.sent == ordinary.sent
        assert ours.taken + ours.skipped == ordinary.taken + ordinary.skipped
        assert ours.strays <= ordinary.strays <= ours.strays + left_out


_OF_A_PROPERTY = "property 0x|topic alias"


def is_name(text: str) -> bool:
    """Return whether it is the text of a valid topic name."""
    return bool(text) and not {"+", "#"} & {*text}


def delivered_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the values that the log keeps and a client leaves out."""
    row = dict(row)
    if row["response_topic"] is not None and not is_name(row["response_topic"]):
        row["response_topic"] = None
    if row["payload_format"] not in (None, 0, 1):
        row["payload_format"] = None
    return row


def streams(version: int) -> Iterator[bytes]:
    """The bytes of each connection of hostile cases: the kept ones, and others by chance."""
    kept = corpus.load(version).values()
    by_chance = itertools.islice(chance.made(1, version), 4000 if sizes.whole() else 120)
    for data in (*kept, *(case.data for case in by_chance)):
        fed = b""
        for step, argument in cases.decode(data)[1]:
            if step == cases.FEED:
                fed += argument
            elif step == cases.NEXT and fed:
                yield fed
                fed = b""
        yield fed


@BOTH
def test_hostile_bytes(version: int, writer: log.Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_sync", lambda _: None)
    ends = set()
    for i, data in enumerate(sorted({*streams(version)})):
        rx_size = (64, 200, 4096)[i % 3]
        pieces = [1 + i % 7, 1 + i % 60] if i % 2 else [rx_size]
        found = both(version, writer, data, pieces, rx_size)
        try:
            agree(data, *found, rx_size)
        except AssertionError as error:
            raise AssertionError(f"{data.hex()} in pieces of {pieces}: {found}") from error
        ends.add(str(found[1].ended))
    assert len(ends) > 100, "they end in many ways"


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("rx_size", [64, 4096])
@pytest.mark.parametrize("room", [None, 7])
def test_no_acknowledgement_before_the_sync(
    version: int, qos: int, rx_size: int, room: int | None, clock: Clock, writer: log.Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Messages of any size, in MQTT 5 with properties, have been synced when they are."""
    events: list[tuple[str, int]] = []

    def sync(file: int) -> None:
        os.fdatasync(file)
        events.append(("synced", writer.next_offset))

    def write(stream: FakeStream, *span: Any) -> int | None:
        sent = ordinary(stream, *span)
        events.append(("acknowledged", len(acknowledged(bench))))
        return sent

    ordinary = FakeStream.write
    bench = bulk(clock, writer, version, rx_size=rx_size, delay_ms=5)
    monkeypatch.setattr(log, "_sync", sync)
    monkeypatch.setattr(FakeStream, "write", write)
    # The first ones come with CONNACK, and some are larger than the buffer.
    data = connack(version)
    for i in range(60):
        payload = b"%d" % i + b"x" * (100 * (i % 7 == 0))
        data += publish(version, payload, qos, i + 1, FULL if i % 3 else [])
    for at in range(0, len(data), 85):
        bench.stream.room = room
        bench.feed(data[at : at + 50])
        bench.feed(data[at + 50 : at + 85])
    bench.stream.room = None
    expected = list(range(1, 61)) if qos else []
    until(
        "the sync",
        lambda: acknowledged(bench) == expected and writer.synced == 60,
        bench.client.poll,
    )
    synced = 0
    for what, n in events:
        synced = n if what == "synced" else synced
        assert n <= synced
    found = rows(writer)
    assert [m["payload"].rstrip(b"x") for m in found] == [b"%d" % i for i in range(60)]
    pairs = [{"name": "k", "value": "1"}, {"name": "k", "value": "2"}]
    for i, m in enumerate(found):
        names = ("user_properties", "content_type", "message_expiry", "payload_format")
        carries = version == 5 and i % 3
        assert [m[name] for name in names] == (
            [pairs, "text/plain", 60, 1] if carries else [None] * 4
        )


def test_few_messages_wait_for_others_and_many_do_not(
    clock: Clock, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10**9
    monkeypatch.setattr(receive.time, "monotonic_ns", lambda: now)
    bench = online(clock, writer, delay_ms=5)
    bench.feed(publish(4, b"", 1, 1))
    now += 4_000_000
    bench.feed(publish(4, b"", 1, 2))
    assert (bench.sent(), writer.synced) == ([], 0)
    bench.client.poll(100)
    assert bench.link.waits[-1][0] == 1, "it waits no longer than until the sync is due"
    now += 1_000_000
    bench.client.poll()
    assert ([p.pid for p in bench.sent()], writer.synced) == ([1, 2], 2)
    writes = len(bench.stream.writes)
    bench.stream.incoming.append(b"".join(publish(4, b"", 1, i + 1) for i in range(200)))
    bench.client.poll()
    assert ([p.pid for p in bench.sent()], writer.synced) == (list(range(1, 201)), 202)
    assert len(bench.stream.writes) == writes + 1, "all of them in one write"


def test_acknowledgements_stay_with_their_connection(
    clock: Clock, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identifiers mean something else on the next one."""
    now = 10**9
    monkeypatch.setattr(receive.time, "monotonic_ns", lambda: now)
    bench = online(clock, writer, delay_ms=5, clean_session=False)
    bench.stream.room = 5  # so that some are cut, some wait to be sent,
    bench.feed(*[publish(4, b"", 1, i + 1) for i in range(20)])
    bench.feed(*[publish(4, b"", 1, i + 1) for i in range(20, 40)])
    bench.feed(publish(4, b"", 1, 41))  # and one to be synced
    bench.stream.ended = True
    bench.drain()
    again(bench)
    now += 10**9
    bench.client.poll()
    bench.client.poll()
    assert bench.sent() == []
    assert writer.synced == 41


def test_what_is_published_meanwhile_is_not_torn(clock: Clock, writer: log.Writer) -> None:
    bench = online(clock, writer)
    client = bench.client
    numbers = iter(range(1, 10_000))
    for i in range(60):
        client.publish(b"out", b"x" * 30, i % 3)
        bench.stream.room = i % 40
        bench.feed(*[publish(4, b"", 1, next(numbers)) for _ in range(1 + i % 7)])
        client.ping()
        bench.feed(peer.PINGRESP)
    bench.stream.room = None
    count = next(numbers) - 1
    until("it", lambda: len(acknowledged(bench)) == count and not client.flush(), client.poll)
    packets = bench.sent()  # asserts that there is no rest
    assert acknowledged(bench) == list(range(1, count + 1))
    assert sum(p.first >> 4 == 3 for p in packets) > 10


def test_a_full_log_reads_nothing_and_stays_connected(clock: Clock, tmp_path: Path) -> None:
    with log.Writer(tmp_path, 5000, 1000) as writer:
        bench = online(clock, writer, keepalive=60, rx_size=512)
        sent = 0
        while not writer.full:
            bench.feed(publish(4, b"%0100d" % sent, 1, sent + 1))
            sent += 1
        bench.sent()
        bench.stream.incoming.append(publish(4, b"%0100d" % sent, 1, sent + 1))
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
    qos: int, rx_size: int, clock: Clock, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = online(clock, writer, rx_size=rx_size)
    for i in range(5):
        bench.stream.incoming.append(publish(4, b"%0200d" % i, qos, i + 1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", mock.Mock(side_effect=OSError(28, "no space")))
        for _ in range(5):
            with pytest.raises(OSError, match="no space"):
                bench.drain()
            assert (bench.sent(), writer.next_offset) == ([], 0)
    bench.client.poll()  # what was read before; nothing new comes in
    bench.drain()
    assert [int(payload) for payload in payloads(writer)] == list(range(5))
    assert [p.pid for p in bench.sent()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("full", [False, True])
def test_disconnecting_does_not_wait_for_a_log_that_is_full(
    full: bool, clock: Clock, tmp_path: Path
) -> None:
    with log.Writer(tmp_path, 100, 100) as writer:
        bench = online(clock, writer)
        bench.feed(publish(4, b"x" * 100 * full, 1, 1))
        assert writer.full == full
        bench.stream.incoming.append(publish(4, b"", 1, 2))
        bench.link.on_wait.append(lambda: setattr(bench.stream, "ended", True))
        before = clock.now
        assert bench.client.disconnect(5000)
        assert clock.now == before
        assert [p.first for p in bench.sent()] == [0x40, 0xE0]


def test_a_broker_that_takes_no_answers(clock: Clock, writer: log.Writer) -> None:
    """Nothing more is read then, and every acknowledgement is sent in the end."""
    bench = online(clock, writer, rx_size=64)
    client = bench.client
    bench.stream.room = 0
    count = 500
    for i in range(count):
        bench.stream.incoming.append(publish(4, b"", 1 + i % 2, i + 1))
    for _ in range(count):
        client.poll()
    assert client.paused
    assert 16 <= writer.next_offset < 30
    assert client.connected
    while bench.stream.incoming or client.flush():
        bench.stream.room = 3
        client.poll()
    assert acknowledged(bench) == list(range(1, count + 1))
    assert writer.next_offset == count


def test_waiting_for_such_a_broker_is_no_spin(clock: Clock, writer: log.Writer) -> None:
    bench = online(clock, writer)
    bench.stream.room = 0
    bench.feed(publish(4, b"", 1, 1))
    bench.feed(publish(4, b"", 1, 2))
    assert writer.synced == 2
    bench.client.poll(50)
    assert bench.link.waits[-1:] == [(50, True)]


def test_a_broker_that_waits_for_no_answer_is_read_after_a_pause(
    clock: Clock, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that may wait is read at once, or it would send only so many in each pause."""
    pauses: list[float] = []
    monkeypatch.setattr(receive.time, "sleep", pauses.append)
    bench = online(clock, writer)
    for count, paused in ((1, 0), (20, 0), (63, 0), (64, 1), (20, 1), (200, 2)):
        packets = [publish(4, b"", 1, i + 1) for i in range(count)]
        bench.stream.incoming.append(b"".join(packets))
        bench.client.poll(50)
        assert len(pauses) == paused


NAMES = [b"t", b"t/+", b"t/#", b"t\0", b"", b"t\xff"]
BLOCKS = [b"", b"\x7f\0", b"\x01\1\x01\1", b"\x0b\0", b"\x23\0\1", b"\x03\0\1\xff", b"\x26\0"]


@BOTH
@pytest.mark.parametrize("size", [0, 300, 3000])
@pytest.mark.parametrize(("qos", "answers"), [(0, []), (1, [1, 2, 3]), (2, [1, 2, 2, 3])])
def test_a_message_that_breaks_a_rule_is_kept(
    version: int, qos: int, answers: list[int], size: int, clock: Clock, writer: log.Writer
) -> None:
    """If it ended the connection, it would come again on the next one, before all others."""
    there = online(clock, writer, version, rx_size=128)
    first = 0x30 | qos << 1
    long = b"\x26\0\1k" + peer.text(b"x" * size)  # larger than the buffer, but for one size
    for name, block in itertools.product(NAMES, BLOCKS if version == 5 else [b""]):
        start = writer.next_offset
        carried = b"" if version == 4 else length(len(block + long)) + block + long
        bad = raw(name, carried, b"bad" + bytes(size), first, b"\0\2")
        there.feed(publish(version, b"1", qos, 1), bad)
        if qos == 2:
            there.feed(bytes((first | 8,)) + bad[1:])
        there.feed(publish(version, b"3", qos, 3))
        assert there.client.connected
        before, kept, after = rows(writer, start)
        assert (before["payload"], after["payload"]) == (b"1", b"3")
        assert (kept["topic"], kept["payload"]) == (topic_text(name), b"bad" + bytes(size))
        assert kept["invalid_properties"] == (block + long if block else None)
        assert acknowledged(there)[-len(answers) :] == answers
        if qos == 2:
            there.feed(*(peer.pubrel(pid) for pid in (1, 2, 3)))
