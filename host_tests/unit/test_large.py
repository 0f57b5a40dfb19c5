"""Messages larger than the buffers: in, piece by piece, and out, from where they lie."""

import io
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import pytest

import peer
from flatmq.message import Message
from unit import fake_link
from unit.both_versions import VersionBench
from unit.fake_link import FakeStream

PAYLOAD = bytes(i * 7 + i // 251 & 255 for i in range(5000))


def subscribed(make: Callable, handler, *, chunks: bool = True, **options) -> VersionBench:
    """A client that is online and subscribed to "t/#"."""
    bench = make(**{"rx_size": 64, **options})
    bench.client.subscribe(b"t/#", handler, qos=2, chunks=chunks)
    bench.online()
    (request,) = bench.sent()
    bench.feed(peer.suback(request.pid, 2))
    return bench


def sent_again(bench: VersionBench) -> list[bytes]:
    """The payloads of what is published, once all of it had time to leave."""
    for _ in range(5):
        bench.client.poll()
    return [p.payload for p in bench.published()]


# In

LARGEST = b"\xff\xff\xff\x7f"  # a Remaining Length of 268,435,455


class Flood(FakeStream):
    """Gives `left` bytes more behind `incoming`: BLOCK over and over."""

    BLOCK = bytes(i * 31 + (i >> 8) & 255 for i in range(65521))
    left = 0
    at = 0  # in BLOCK

    def readinto(self, buf: memoryview) -> int | None:
        if self.incoming or not self.left:
            return super().readinto(buf)
        n = min(len(buf), self.left, len(self.BLOCK) - self.at)
        buf[:n] = memoryview(self.BLOCK)[self.at : self.at + n]
        self.at = (self.at + n) % len(self.BLOCK)
        self.left -= n
        return n


@pytest.mark.parametrize(("chunks", "qos", "answer"), [(True, 2, 0x50), (False, 1, 0x40)])
def test_256_mb_that_come_are_one_message(
    qos: int, answer: int, chunks: bool, make: Callable
) -> None:
    """The largest packet there is (section 2.2.3), whole, in the memory of a small one."""
    size, total, whole = 0, 0, []

    def write(data: memoryview) -> int:
        nonlocal size, total
        size, total = size + len(data), zlib.crc32(data, total)
        return len(data)

    def handler(m: Message) -> None:
        nonlocal size, total
        assert m.offset == size
        m.write_to(SimpleNamespace(write=write))
        if m.last:
            whole.append((size, total))
            size = total = 0

    with mock.patch.object(fake_link, "FakeStream", Flood):
        bench = subscribed(make, handler, chunks=chunks, rx_size=32768)
    head = bytes([0x30 | qos << 1]) + LARGEST + b"\0\3t/1\0\7" + b"\0" * (bench.version == 5)
    length = 268_435_455 - (len(head) - 5)
    bench.stream.incoming.append(head)
    bench.client.poll()
    bench.stream.left = length - 1  # type: ignore[attr-defined]
    tracemalloc.start()
    try:
        bench.drain()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000, "bytes"
    assert bench.sent() == []
    bench.stream.left = 1  # type: ignore[attr-defined]
    bench.drain()
    assert [(p.first, p.pid) for p in bench.sent()] == [(answer, 7)]
    bench.feed(peer.publish(b"t/1", b"x", 1, 8))
    assert [(p.first, p.pid) for p in bench.sent()] == [(0x40, 8)]
    assert bench.client.connected
    stats = bench.client.stats
    assert (stats.received, stats.skipped, stats.losses) == ((2, 0, 0) if chunks else (1, 1, 0))
    times, rest = divmod(length, len(Flood.BLOCK))
    wanted = 0
    for _ in range(times):
        wanted = zlib.crc32(Flood.BLOCK, wanted)
    first = [(length, zlib.crc32(Flood.BLOCK[:rest], wanted))] if chunks else []
    assert whole == [*first, (1, zlib.crc32(b"x"))]


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_large_message_that_nobody_takes_is_reported(
    qos: int, raises: bool, make: Callable
) -> None:
    reports = []

    def report(*about: object) -> None:
        reports.append(about)
        if raises:
            raise ValueError

    bench = subscribed(make, print, chunks=False, on_dropped=report)
    large = [peer.publish(topic, bytes(200), qos, 7) for topic in (b"t/1", b"t" * 70)]
    for packet in large:
        with pytest.raises(ValueError) if raises else nullcontext():
            bench.feed(packet)
        bench.drain()
        bench.sent()
        if qos == 2:
            bench.feed(b"\x62\2\0\7")
            bench.sent()
    why = "it is larger than rx_size, and no handler takes pieces"
    assert reports == [(0, b"t/1", why), (0, b"", why)]
    assert (bench.client.stats.skipped, bench.client.stats.losses) == (2, 0)


def test_a_handler_may_disconnect_in_the_middle(make: Callable) -> None:
    whole: list[bytes] = []
    bench = subscribed(make, lambda message: message.last and whole.append(message.payload))

    def stop(message: Message) -> None:
        bench.client.disconnect(0)

    bench.client.subscribe(b"t/1", stop, chunks=True)
    bench.client.poll()
    data = bench.wire(peer.publish(b"t/1", PAYLOAD, 1, 7))
    bench.feed_bytes(*(data[at : at + 64] for at in range(0, len(data), 64)))
    assert (bench.client.state, whole) == ("offline", [])
    bench.client.unsubscribe(b"t/1")
    bench.online()
    bench.feed(peer.publish(b"t/2", b"x"))
    assert whole == [b"x"]


# Out


class File(io.BytesIO):
    """A file that fails after `broken` bytes."""

    def __init__(self, broken: int | None, error: Exception | None = None) -> None:
        super().__init__(PAYLOAD)
        self.broken = broken
        self.error = error or OSError(5, "read")

    def readinto(self, buf) -> int:
        if self.broken is not None and self.tell() >= self.broken:
            raise self.error
        return super().readinto(buf)


def test_a_file_that_is_being_sent_may_be_offered_again(make: Callable) -> None:
    bench = make().online()
    file = io.BytesIO(PAYLOAD)
    bench.client.publish_from(b"t", file)
    bench.stream.room = 1500
    bench.client.poll()
    assert bench.client.publish_from(b"t", file) is None
    bench.stream.room = None
    while bench.client.pending:
        bench.client.poll()
    assert [p.payload for p in bench.published()] == [PAYLOAD]


def test_a_file_that_was_closed_is_given_up(make: Callable) -> None:
    bench = make(clean_session=False).online()
    with io.BytesIO(PAYLOAD) as file:
        bench.client.publish_from(b"t", file, 1)
    bench.client.publish(b"t", b"after", 1)
    bench.client.poll()
    assert (bench.client.error.kind, bench.client.state) == ("resource", "waiting")
    bench.online(present=True)
    bench.client.poll()
    assert [p.payload for p in bench.published()] == [b"after"]


def test_a_poll_sends_a_part_of_it(make: Callable) -> None:
    """Else a fast network and a slow flash would hold up the loop for as long as it takes."""
    bench = make().online()
    bench.client.publish_from(b"t", bytes(100_000))
    bench.client.poll()
    assert 0 < len(bench.stream.written) < 10_000
    bench.client.poll(20)
    assert bench.link.waits == [(20, True)]  # to write on at once
    bench.link.on_wait = [lambda: None] * 50  # no time passes
    bench.client.disconnect(5000)
    packets, rest = peer.split(bytes(bench.stream.written))
    assert [p.first for p in packets] == [0x10, 0x30, 0xE0]
    assert rest == b""


def test_at_qos_1_a_loss_has_it_sent_again(make: Callable) -> None:
    bench = make(clean_session=False).online()
    pid = bench.client.publish_from(b"t", io.BytesIO(PAYLOAD), 1)
    bench.stream.room = 2000
    bench.client.poll()
    for present, dup in ((True, True), (False, False), (True, True)):
        bench.lose()
        bench.online(present=present)
        for _ in range(5):
            bench.client.poll()
        assert bench.published() == [(dup, 1, False, b"t", pid, PAYLOAD)]
        bench.client.publish(b"t", b"after")
        bench.client.poll()
        assert [p.payload for p in bench.published()] == [b"after"]
    stats = bench.client.stats
    assert (stats.resent, stats.renewed) == (3, 1)
    bench.feed(peer.puback(pid))
    assert (bench.client.pending, stats.strays) == (0, 0)
    bench.feed(peer.puback(pid))
    assert stats.strays == 1


def test_one_that_is_dropped_in_the_middle_ends_the_connection(make: Callable) -> None:
    """And until then no other is accepted, of which only a part would leave."""
    bench = make().online()
    client = bench.client
    bench.stream.room = 2000
    pid = client.publish_from(b"t", PAYLOAD, 1)
    client.poll()
    assert client.drop(pid)
    assert client.publish_from(b"t", PAYLOAD) is None
    bench.stream.room = 1 << 20
    client.poll()
    assert str(client.error) == "resource: dropped while it was being sent"
    assert client.publish_from(b"t", PAYLOAD) == 0
    bench.online()
    assert sent_again(bench) == [PAYLOAD]


def test_an_acknowledgement_before_its_end_is_not_one(make: Callable) -> None:
    bench = make().online()
    pid = bench.client.publish_from(b"t", PAYLOAD, 1)
    bench.stream.room = 100
    bench.client.poll()
    bench.feed(peer.puback(pid), peer.pubrec(pid), peer.puback(pid + 1))
    assert (bench.client.pending, bench.client.stats.strays) == (1, 3)


OS_ERROR = OSError(5, "read")
FAILURES = [
    (OS_ERROR, 0),
    *((e, 1024) for e in (OS_ERROR, RuntimeError("read"), AttributeError())),
]


@pytest.mark.parametrize(("error", "at"), [*FAILURES, (None, 600)], ids=repr)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_source_that_fails_is_given_up_and_reported(
    qos: int, error: Exception | None, at: int, make: Callable
) -> None:
    """Nothing is raised by poll, and what is behind it is sent with the next connection."""
    reports: list[tuple[int, bytes, str]] = []
    bench = make(on_dropped=lambda *report: reports.append(report)).online()
    file = File(at if error else None, error)
    pid = bench.client.publish_from(b"t", file, qos)
    if not error:
        file.truncate(at)
    bench.client.publish(b"t", b"after", 1)
    for _ in range(5):
        bench.client.poll()
    said = f"{error!r} after" if error else "ended after"
    assert str(bench.client.error) == f"resource: source: {said} {at} of 5000 bytes"
    assert reports == [(pid, b"t", bench.client.error.detail)]
    assert bench.client.stats.dropped == 1
    bench.online()
    assert [p.payload for p in bench.published()] == [b"after"]
    assert (bench.client.error, bench.client.pending) == (None, 1)


def test_a_read_that_fails_once_is_repeated(bench: VersionBench) -> None:
    file = File(1024)
    right = file.seek

    def seek(at: int, whence: int = 0) -> int:
        if at == 1024:
            file.broken = None
        return right(at, whence)

    file.seek = seek  # type: ignore[method-assign]
    bench.client.publish_from(b"t", file, 1)
    assert sent_again(bench) == [PAYLOAD]


@pytest.mark.parametrize("source", ["raises", "ends"])
def test_on_dropped_may_raise_for_a_source(source: str, make: Callable) -> None:
    """It is called once, and the client goes on."""
    reports: list[int] = []

    def on_dropped(packet_id: int, topic: bytes, reason: str) -> None:
        reports.append(packet_id)
        raise KeyError

    bench = make(on_dropped=on_dropped).online()
    file = File(1024 if source == "raises" else None)
    pid = bench.client.publish_from(b"t", file, 1)
    if source == "ends":
        file.truncate(600)
    bench.client.publish(b"t", b"after", 1)
    with pytest.raises(KeyError):
        for _ in range(5):
            bench.client.poll()
    bench.online()
    assert reports == [pid]
    assert [p.payload for p in bench.published()] == [b"after"]


def test_a_file_that_grew_is_sent_as_it_was(make: Callable) -> None:
    bench = make().online()
    file = io.BytesIO(PAYLOAD[:600])
    bench.client.publish_from(b"t", file)
    file.seek(600)
    file.write(b"more")
    assert sent_again(bench) == [PAYLOAD[:600]]


def test_a_slow_network_is_not_taken_for_a_dead_one_which_is_found(make: Callable) -> None:
    """No PINGREQ can leave while the message does; that bytes are taken is as good."""
    bench = make(keepalive=4, timeout=3).online()
    bench.client.publish_from(b"t", PAYLOAD, 1)
    while len(bench.stream.written) < len(PAYLOAD):
        bench.stream.room = 100
        bench.pass_time(1000, step=100)
        assert bench.client.connected
    bench.stream.room = 0
    bench.pass_time(8000)
    assert (bench.client.error.kind, bench.client.pending) == ("timeout", 1)


def test_text_is_a_source(bench: VersionBench) -> None:
    assert bench.client.publish_from(b"t", "text") == 0
    assert sent_again(bench) == [b"text"]
