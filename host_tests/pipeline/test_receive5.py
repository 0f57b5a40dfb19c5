"""The bulk client of MQTT 5 does what the ordinary one does, but for the log."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peer
from flatmq.v5_walk import TABLE
from flatmq_tools.pipeline import log
from flatmq_tools.pipeline.carried import Checked
from flatmq_tools.pipeline.receive import BulkClient5
from unit.fake_link import Bench, fake_clock
from v5 import build5, strict5
from v5.properties5 import Id
from v5.properties5 import encoded as encoded_properties

COLUMNS = {
    0x03: "content_type",
    0x08: "response_topic",
    0x09: "correlation_data",
    0x02: "message_expiry",
    0x01: "payload_format",
}
FULL = [
    (Id.PAYLOAD_FORMAT, 1),
    (Id.USER_PROPERTY, (b"k", b"1")),
    (Id.MESSAGE_EXPIRY, 60),
    (Id.CONTENT_TYPE, b"text/plain"),
    (Id.USER_PROPERTY, (b"k", b"2")),
]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[log.Writer]:
    with log.Writer(tmp_path / "log") as made:
        yield made


class Gather:
    """A handler that keeps messages as rows of the log, the pieces of each put together."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._payload = b""

    def __call__(self, m: Any) -> None:
        self._payload = (b"" if m.offset == 0 else self._payload) + m.payload
        if not m.last:
            return
        p = m.properties
        row: dict[str, Any] = {name: p.get(i) for i, name in COLUMNS.items()}
        for name in ("content_type", "response_topic"):
            row[name] = row[name] if row[name] is None else row[name].decode()
        pairs = []
        at = 0
        while p.find(0x26, at):
            n = p.at + 2 + int.from_bytes(p.buf[p.at : p.at + 2], "big")
            name, value = bytes(p.buf[p.at + 2 : n]), bytes(p.buf[n + 2 : p.end])
            pairs.append({"name": name.decode(), "value": value.decode()})
            at = p.end
        row["user_properties"] = pairs or None
        row.update(topic=m.topic.decode(), payload=self._payload, qos=m.qos)
        row.update(retain=bool(m.retain), dup=bool(m.dup))
        self.rows.append(row)


def rows(writer: log.Writer, start: int = 0) -> list[dict[str, Any]]:
    """The messages of a log from that offset on, as `Gather` has them."""
    found = [m for b in log.read(writer.folder, start, writer.next_offset) for m in b.to_pylist()]
    return [{k: v for k, v in m.items() if k not in ("timestamp", "offset")} for m in found]


def bench(clock: Any, writer: log.Writer, **options: Any) -> Bench:
    """A bulk client, online."""
    made = Bench(clock)
    made.client = BulkClient5(writer, b"unit", link=made.link, **{"delay_ms": 0, **options})
    made.greet()
    made.feed(build5.connack())
    return made


def written(bench: Bench) -> list[Any]:
    """All packets that were written on this connection, read strictly."""
    packets, rest = strict5.split(bytes(bench.stream.written))
    assert rest == b""
    return [strict5.from_client(*p) for p in packets if p[0] != 0x10]


# Beside the ordinary client


def outcome(bench: Bench, data: bytes, sizes: list[int]) -> tuple[Any, ...]:
    """Return the outcome of these bytes: what was written, how it ended, and the counts."""
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(data) or not bench.client.connected:
            break
        bench.feed(data[at : at + size])
        at += size
    error, stats = bench.client.error, bench.client.stats
    packets = written(bench)
    ended = [p.code for p in packets if p.name == "DISCONNECT"]
    if error:
        return error.kind, str(error.detail), ended
    return sorted(packets), stats.received + stats.unrouted, stats.strays, stats.skipped


def both(writer: log.Writer, data: bytes, sizes: list[int], rx_size: int) -> list[Any]:
    """The messages and the outcome, in an ordinary client and in the bulk one."""
    gather = Gather()
    start = writer.next_offset
    with fake_clock() as clock:
        ordinary = Bench(clock, version=5, rx_size=rx_size, incoming=4)
        ordinary.client.options["on_message"] = gather
        ordinary.client.options["chunks"] = True
        ordinary.greet()
        ordinary.feed(build5.connack())
        ours = bench(clock, writer, rx_size=rx_size, incoming=4)
        found = [outcome(one, data, sizes) for one in (ordinary, ours)]
    return [(gather.rows, found[0]), (rows(writer, start), found[1])]


TEXT = st.sampled_from([b"", b"x", "é/ü".encode(), b"long" * 40] * 3 + [b"\xff", b"a\0", b"+"])
VALUES = {
    Id.PAYLOAD_FORMAT: st.sampled_from([0, 1, 1, 1, 2]),
    Id.MESSAGE_EXPIRY: st.sampled_from([0, 1, 0xFFFFFFFF]),
    Id.CONTENT_TYPE: TEXT,
    Id.RESPONSE_TOPIC: TEXT,
    Id.CORRELATION_DATA: st.binary(max_size=20),
    Id.SUBSCRIPTION_IDENTIFIER: st.sampled_from([1, 200, 268435455]),
    Id.USER_PROPERTY: st.tuples(TEXT, TEXT),
}
PROPERTIES = st.lists(
    st.sampled_from(list(VALUES)).flatmap(lambda i: st.tuples(st.just(i), VALUES[i])), max_size=4
)
WRONG = st.sampled_from([b"\x23\0\1", b"\x27\0\0\0\1", b"\x7f", b"\x26\0\5a", b"\x0b\0"])
BLOCK = st.one_of(
    PROPERTIES.map(encoded_properties),
    PROPERTIES.map(encoded_properties),
    WRONG.map(lambda raw: bytes([len(raw)]) + raw),
    st.sampled_from([b"", b"\x80\0", b"\x81\0x", b"\x80\x80\x80\x80\1", b"\x40"]),
)


def publish(name: bytes, block: bytes, payload: bytes, first: int, pid: bytes) -> bytes:
    """A PUBLISH of these parts, of which any may be wrong."""
    return peer.packet(first, peer.text(name) + (pid if first & 6 else b"") + block + payload)


PUBLISH = st.builds(
    publish,
    st.sampled_from([b"t", b"a/b", "é".encode(), b"$SYS/x"] * 4 + [b"", b"#", b"\xff"]),
    st.one_of(st.just(b"\0"), st.just(b"\0"), BLOCK),
    st.binary(max_size=40) | st.sampled_from([b"x" * 120, b"x" * 700]),
    st.sampled_from([0x30, 0x32] * 9 + [0x31, 0x33, 0x34, 0x3A, 0x3B, 0x3C] * 3 + [0x36]),
    st.sampled_from([b"\0\1", b"\1\0", b"\xff\xff"] * 9 + [b"\0\0"]),
)
OTHER = st.sampled_from([build5.ack("PUBREL", 1), build5.ack("PUBACK", 9, 0x10), build5.PINGRESP])


@settings(max_examples=400)
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
    assert bulk[0] == ordinary[0]
    assert bulk[1] == ordinary[1]


@pytest.mark.parametrize("identifier", [i for i in range(len(TABLE)) if TABLE[i] & 16])
def test_a_property_twice_is_taken_where_the_standard_has_it_so(identifier: int) -> None:
    one = {
        0x01: b"\1", 0x02: bytes(4), 0x03: b"\0\1x", 0x08: b"\0\1x", 0x09: b"\0\1x", 0x0B: b"\1",
        0x23: b"\0\1", 0x26: b"\0\1x\0\1y",
    }[identifier]  # fmt: skip
    block = bytes([identifier]) + one
    checked = Checked()
    for _ in range(2):
        assert checked.takes(block) == (identifier != 0x23)
        assert checked.takes(block * 2) == (identifier in (0x0B, 0x26))
    assert checked <= {block, block * 2}


# What goes to the log


@pytest.mark.parametrize("rx_size", [64, 4096])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_of_messages_of_any_size(qos: int, rx_size: int, writer: log.Writer) -> None:
    with fake_clock() as clock:
        there = bench(clock, writer, rx_size=rx_size)
        for i in range(40):
            carried = FULL if i % 3 else []
            payload = b"%d" % i + b"x" * (200 * (i % 5 == 0))
            there.feed(build5.publish(b"t", payload, qos, i + 1, carried))
        there.client.poll()
        found = rows(writer)
        answers = [p.pid for p in written(there) if p.name in ("PUBACK", "PUBREC")]
    assert answers == (list(range(1, 41)) if qos else [])
    assert [int(m["payload"].rstrip(b"x")) for m in found] == list(range(40))
    for i, m in enumerate(found):
        pairs = [{"name": "k", "value": "1"}, {"name": "k", "value": "2"}]
        assert m["user_properties"] == (pairs if i % 3 else None)
        assert (m["content_type"], m["message_expiry"], m["payload_format"]) == (
            ("text/plain", 60, 1) if i % 3 else (None, None, None)
        )


def test_properties_larger_than_the_buffer_are_skipped_and_counted(writer: log.Writer) -> None:
    with fake_clock() as clock:
        there = bench(clock, writer, rx_size=128)
        large = [(Id.USER_PROPERTY, (b"k", b"v" * 500))]
        there.feed(build5.publish(b"t", b"x", 1, 1, large), build5.publish(b"t", b"y", 1, 2))
        there.drain()
        there.client.poll()
        assert [m["payload"] for m in rows(writer)] == [b"y"]
        assert there.client.stats.skipped == 1
        assert [p.pid for p in written(there)] == [1, 2]


def test_filters_that_overlap_bring_a_message_once(writer: log.Writer) -> None:
    """A message comes once, whatever identifiers it carries.

    The subscriptions have none, and another program's session may have some.
    """
    with fake_clock() as clock:
        there = bench(clock, writer, rx_size=128)
        client = there.client
        client.subscribe("a/#", qos=2)
        client.subscribe("+/b", qos=2)
        client.poll()
        asked = [p for p in written(there) if p.name == "SUBSCRIBE"]
        assert [list(p.properties) for p in asked] == [[], []]
        there.feed(*[build5.answer("SUBACK", p.pid, b"\2") for p in asked])
        both = [(Id.SUBSCRIPTION_IDENTIFIER, 1), (Id.SUBSCRIPTION_IDENTIFIER, 2)]
        for pid, size in ((7, 10), (8, 300)):
            for more in ([], both[:1], both):
                there.feed(build5.publish(b"a/b", b"x" * size, 1, pid, more))
        assert writer.next_offset == 6


# A property that breaks a rule


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"\x7f\0", 0x81), (b"\x01\1\x01\1", 0x82), (b"\x0b\0", 0x82), (b"\x23\0\1", 0x94)],
)
@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_what_came_before_a_broken_one_is_acknowledged_first(
    raw: bytes, code: int, delay_ms: int, writer: log.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a broker that sends the broken one again would send all of that again, each time."""
    synced = []
    monkeypatch.setattr(log, "_sync", lambda file: (os.fdatasync(file), synced.append(file)))
    bad = publish(b"t", bytes([len(raw)]) + raw, b"bad", 0x32, b"\0\3")
    with fake_clock() as clock:
        there = bench(clock, writer, delay_ms=delay_ms, clean_session=False)
        there.feed(build5.publish(b"t", b"1", 1, 1))
        there.feed(build5.publish(b"t", b"2", 1, 2), bad, build5.publish(b"t", b"4", 1, 4))
        assert not there.client.connected
        assert there.client.error.kind == "protocol"
        packets = written(there)
        assert [(p.name, p.pid, p.code) for p in packets] == [
            ("PUBACK", 1, 0), ("PUBACK", 2, 0), ("DISCONNECT", 0, code),
        ]  # fmt: skip
        assert synced and writer.synced == 2
        there.greet()
        there.feed(build5.connack(present=1), build5.publish(b"t", b"4", 1, 4))
        there.client.poll(delay_ms)
        assert [m["payload"] for m in rows(writer)] == [b"1", b"2", b"4"]


@pytest.mark.parametrize("how", ["lost", "blocked"])
def test_a_broken_one_while_nothing_can_be_sent(how: str, writer: log.Writer) -> None:
    bad = publish(b"t", b"\1\x7f", b"bad", 0x32, b"\0\3")
    with fake_clock() as clock:
        there = bench(clock, writer, clean_session=False)
        if how == "lost":
            there.stream.raises["write"] = ConnectionResetError("write")
        else:
            there.stream.room = 0
        there.feed(build5.publish(b"t", b"1", 1, 1), bad)
        assert not there.client.connected
        there.greet()
        there.feed(build5.connack(present=1), build5.publish(b"t", b"1", 1, 1, dup=1))
        there.client.poll()
        assert [p.pid for p in written(there)] == [1]
        assert [m["payload"] for m in rows(writer)] == [b"1", b"1"]


@pytest.mark.parametrize("size", [0, 300])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_broken_one_that_comes_again_is_acknowledged_and_not_kept(
    qos: int, size: int, writer: log.Writer
) -> None:
    """Another one ends the connection again, and so does the same at QoS 0."""

    def bad(block: bytes, pid: int, qos: int = qos, dup: int = 0) -> bytes:
        number = pid.to_bytes(2, "big")
        return publish(b"t", block, b"bad" + bytes(size), 0x30 | qos << 1 | dup << 3, number)

    first, second = b"\2\x0b\0", b"\4\x03\0\1\xff"
    with fake_clock() as clock:
        there = bench(clock, writer, clean_session=False, rx_size=128)
        client = there.client
        assert isinstance(client, BulkClient5)
        there.feed(bad(first, 3))
        assert not client.connected and client.refused == 0
        there.greet()
        there.feed(build5.connack(present=1))
        there.feed(bad(first, 3, dup=1), build5.publish(b"t", b"kept", qos, 4), bad(second, 5))
        assert not client.connected and client.refused == 1
        assert [(p.name, p.pid) for p in written(there)][:2] == [
            ("PUBACK" if qos == 1 else "PUBREC", 3), ("PUBACK" if qos == 1 else "PUBREC", 4),
        ]  # fmt: skip
        there.greet()
        there.feed(build5.connack(present=1))
        there.feed(bad(second, 5, dup=1))
        assert client.connected and client.refused == 2 and client.refused_topic == b"t"
        there.feed(build5.publish(b"t", b"too", qos, 6))
        assert [m["payload"] for m in rows(writer)] == [b"kept", b"too"]
        there.feed(bad(first, 0, qos=0))
        assert not client.connected and client.refused == 2
        there.greet()
        there.feed(build5.connack(present=1))
        there.feed(bad(first, 0, qos=0))
        assert not client.connected
