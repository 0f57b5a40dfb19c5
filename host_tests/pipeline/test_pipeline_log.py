"""The log keeps what it should, whatever happens to it."""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import peer
import sizes
from conftest import ran
from flatmq_tools.pipeline import durable, log
from packets import build
from packets.properties import Id
from pipeline.survive import batch, points

TIME = 1_700_000_000_123_456


@pytest.fixture(scope="module", autouse=True)
def quick_disk() -> Iterator[None]:
    """Do not wait for the disk: what is seen here is the same without that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_sync", lambda _: None)
        patch.setattr(durable, "path", lambda _: None)
        yield


def append(writer: log.Writer, count: int) -> None:
    first = writer.next_offset
    assert writer.append(batch(first, count), count, TIME + first) == first


def payloads(folder: Path, start: int, end: int) -> list[bytes]:
    return [p for b in log.read(folder, start, end) for p in b["payload"].to_pylist()]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % i for i in range(start, end)]


EVERY_PROPERTY = [
    (Id.PAYLOAD_FORMAT, 1), (Id.USER_PROPERTY, (b"b", "ü".encode())),
    (Id.MESSAGE_EXPIRY, 0xFFFFFFFF), (Id.USER_PROPERTY, (b"a", b"")),
    (Id.CONTENT_TYPE, "text/ü".encode()), (Id.RESPONSE_TOPIC, b"answers/1"),
    (Id.CORRELATION_DATA, b"\0\xff"), (Id.SUBSCRIPTION_IDENTIFIER, 200),
    (Id.USER_PROPERTY, (b"b", b"again")),
]  # fmt: skip


def test_the_columns_of_both_versions(tmp_path: Path) -> None:
    long = [(Id.CONTENT_TYPE, b"x" * 300), (Id.CORRELATION_DATA, b"")]
    of_5 = build.publish(b"t", b"0", 1, 7, EVERY_PROPERTY) + build.publish(b"t", b"1")
    with log.Writer(tmp_path) as writer:
        writer.append(of_5 + build.publish(b"t", b"2", 2, 9, long), 3, TIME, 5)
        writer.append(peer.publish("ü".encode(), b"\xff\0", 1, 7, retain=True, dup=True), 1, TIME)
        writer.append(build.publish(b"t", b"x" * 200, 0, 0, EVERY_PROPERTY[1:2]), 1, TIME + 5, 5)
    (found,) = log.read(tmp_path, 0, 5)
    assert found.schema == log.SCHEMA
    assert found["timestamp"].cast("int64").to_pylist() == [TIME] * 4 + [TIME + 5]
    b, a, again = ({"name": n, "value": v} for n, v in (("b", "ü"), ("a", ""), ("b", "again")))
    assert {
        name: found[name].to_pylist() for name in found.schema.names if name != "timestamp"
    } == {
        "topic": ["t", "t", "t", "ü", "t"],
        "payload": [b"0", b"1", b"2", b"\xff\0", b"x" * 200],
        "qos": [1, 0, 2, 1, 0],
        "retain": [False, False, False, True, False],
        "dup": [False, False, False, True, False],
        "offset": [0, 1, 2, 3, 4],
        "user_properties": [[b, a, again], None, None, None, [b]],
        "content_type": ["text/ü", None, "x" * 300, None, None],
        "response_topic": ["answers/1", None, None, None, None],
        "correlation_data": [b"\0\xff", None, b"", None, None],
        "message_expiry": [0xFFFFFFFF, None, None, None, None],
        "payload_format": [1, None, None, None, None],
        "invalid_properties": [None] * 5,
    }
    for start in range(5):
        for end in range(start + 1, 6):
            (part,) = log.read(tmp_path, start, end)
            assert part.equals(found.slice(start, end - start))


def test_a_log_of_an_earlier_version_is_read_and_goes_on(tmp_path: Path) -> None:
    old = [peer.publish(b"t", b"a0", 1, 1), peer.publish(b"t", b"b", 0)]
    body = b"".join(old)
    head = struct.pack("<4sQIQI", b"fMQ1", 0, 2, TIME, len(body))
    head += struct.pack("<I", zlib.crc32(head + body))
    (tmp_path / f"{0:020d}.log").write_bytes(head + body)
    assert payloads(tmp_path, 0, 2) == [b"a0", b"b"]
    with log.Writer(tmp_path) as writer:
        assert writer.next_offset == 2
        writer.append(build.publish(b"t", b"c", 1, 2, [(Id.CONTENT_TYPE, b"x")]), 1, TIME, 5)
    with log.Writer(tmp_path) as writer:
        assert writer.next_offset == 3
    (found,) = log.read(tmp_path, 0, 3)
    assert found["payload"].to_pylist() == [b"a0", b"b", b"c"]
    assert found["content_type"].to_pylist() == [None, None, "x"]


def test_more_than_is_there(tmp_path: Path) -> None:
    with log.Writer(tmp_path, segment_bytes=1) as writer:
        for _ in range(3):
            append(writer, 10)
        writer.trim(10)
        with pytest.raises(log.LogError, match="before message 30"):
            payloads(tmp_path, 12, 31)
        with pytest.raises(log.LogError, match="begins with 10: 9 was trimmed"):
            payloads(tmp_path, 9, 11)
    with pytest.raises(log.LogError, match="nothing"):
        payloads(tmp_path / "none", 0, 1)
    assert log.bounds(tmp_path / "none") == (0, 0)


def test_a_large_log_comes_in_several_batches(tmp_path: Path) -> None:
    with log.Writer(tmp_path) as writer:
        for _ in range(10):
            append(writer, 10_000)
    counts = [b.num_rows for b in log.read(tmp_path, 5, 99_999)]
    assert sum(counts) == 99_994
    assert max(counts) <= 40_000


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("trim"), st.integers(0, 200)),
        st.tuples(st.sampled_from(["sync", "rotate", "reopen", "torn"]), st.integers(0, 400)),
    ),
    max_size=40,
)


@given(calls=CALLS, segment_bytes=st.sampled_from([1, 200, 1000, 1 << 20]))
def test_any_sequence_of_calls(calls: list[tuple[str, int]], segment_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)

        def opened() -> log.Writer:
            return stack.enter_context(log.Writer(folder, segment_bytes=segment_bytes))

        writer = opened()
        kept = end = 0
        for call, n in calls:
            if call == "append":
                append(writer, n)
                end += n
            elif call == "trim":
                writer.trim(n)
                # A segment goes only as a whole, and never what was not asked for.
                assert kept <= writer.first_offset <= max(kept, n)
                kept = writer.first_offset
            elif call == "sync":
                writer.sync()
                assert writer.synced == end
            elif call == "rotate":
                writer.rotate()
                assert log.segments(folder)[-1].first == end
            else:
                writer.close()
                if call == "torn":  # what a write leaves that was cut by a power cut
                    record = log.HEADER + len(batch(end, 9))
                    with log.Writer(folder) as torn:
                        path = log.segments(folder)[-1].path
                        before = path.stat().st_size
                        torn.append(batch(end, 9), 9, TIME)
                    os.truncate(path, before + n % record)
                writer = opened()
            assert (writer.first_offset, writer.next_offset) == (kept, end)
            assert log.bounds(folder) == (kept, end)
            assert writer.size == sum(s.path.stat().st_size for s in log.segments(folder))
        slices = [(kept, end), *((s.first, after) for s, after in writer.closed())]
        # They begin and end within records.
        slices += [(a, b) for a in range(kept, end, 13) for b in range(a, end, 17)]
        assert all(payloads(folder, a, b) == numbers(a, b) for a, b in slices)


def test_a_torn_or_wrong_tail(tmp_path: Path) -> None:
    """A record that is cut at any byte, or has any wrong bit, is none; what precedes it stays."""
    ends = [0]
    with log.Writer(tmp_path) as writer:
        for count in (2, 1, 3):
            append(writer, count)
            ends.append(writer.size)
    (segment,) = log.segments(tmp_path)
    data = segment.path.read_bytes()

    def recovers(spoiled: bytes, whole: int) -> None:
        """It goes on after so many records."""
        messages = (0, 2, 3, 6)[whole]
        segment.path.write_bytes(spoiled)
        assert log.bounds(tmp_path) == (0, messages)
        if messages < 6:
            with pytest.raises(log.LogError, match=f"before message {messages}"):
                payloads(tmp_path, 0, 6)
        with log.Writer(tmp_path) as writer:
            assert (writer.next_offset, writer.size) == (messages, ends[whole])
            append(writer, 4)
        assert payloads(tmp_path, 0, messages + 4) == numbers(0, messages + 4)

    for size in range(len(data)):
        for rest in (b"", bytes(40)):  # the file may have grown before its bytes were there
            recovers(data[:size] + rest, sum(end <= size for end in ends) - 1)
    for at in range(ends[2], len(data)):
        for bit in range(8) if sizes.whole() else [at % 8]:
            recovers(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], 2)


def test_full_until_something_is_trimmed(tmp_path: Path) -> None:
    with log.Writer(tmp_path, limit_bytes=1000) as writer:
        while not writer.full:
            append(writer, 5)
        assert 1000 <= writer.size < 1000 + log.HEADER + len(batch(0, 5)) * 2
        assert len(log.segments(tmp_path)) > 4  # of which each goes as a whole
        writer.trim(writer.next_offset - 1)
        assert not writer.full
        append(writer, 100)  # more than the limit at once
        assert writer.full
        writer.trim(writer.next_offset - 1)
        assert writer.full
        writer.trim(writer.next_offset)
        assert writer.size == 0


def test_a_log_has_an_identity_and_one_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    with log.Writer(tmp_path) as writer:
        append(writer, 3)
        identity = writer.id
        code = f"from flatmq_tools.pipeline import log; log.Writer({str(tmp_path)!r})"
        done = ran([sys.executable, "-c", code])
        assert done.returncode == 1
        assert f"the log in {tmp_path} is in use by process {os.getpid()}" in done.stderr
        with pytest.raises(log.LogError, match="in use"):
            log.Writer(tmp_path)
        append(writer, 1)
    with log.Writer(tmp_path) as writer:
        assert (writer.next_offset, writer.id) == (4, identity)
    with log.Writer(tmp_path / "other") as writer:
        assert writer.id != identity
        file = (tmp_path / "other" / "id").stat().st_ino
        assert file in synced, "with another one, what has landed would land again"


def test_a_disk_that_takes_only_a_part(tmp_path: Path) -> None:
    """As with no room: then nothing was appended, and later it goes on."""
    code = f"""
import resource, signal
from flatmq_tools.pipeline import log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with log.Writer({str(tmp_path)!r}) as writer:
    writer.append(b"\\x30\\x04\\0\\1t1", 1, 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            writer.append(b"\\x30\\x7f\\0\\1t" + bytes(124), 1, 1)
            raise SystemExit("it was taken")
        except OSError:
            assert writer.next_offset == 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    writer.append(b"\\x30\\x04\\0\\1t2", 1, 1)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert payloads(tmp_path, 0, 2) == [b"1", b"2"]


@pytest.mark.parametrize("stays", [False, True])
def test_a_record_that_is_torn_is_removed_or_ends_the_log(
    stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is ever appended behind it: nobody could read that."""
    with log.Writer(tmp_path) as writer:
        append(writer, 2)
        with monkeypatch.context() as patch:

            def tears(file: int, parts: list[bytes]) -> int:
                os.write(file, b"torn")
                raise OSError(28, "no space")

            patch.setattr(os, "writev", tears)
            if stays:
                patch.setattr(os, "ftruncate", tears)
            with pytest.raises(OSError, match="no space"):
                append(writer, 3)
        with pytest.raises(log.LogError, match="is closed") if stays else contextlib.nullcontext():
            append(writer, 3)
    with log.Writer(tmp_path) as writer:
        assert writer.next_offset == (2 if stays else 5)


def test_sigkill_at_every_line(tmp_path: Path) -> None:
    """Whatever the writer is at: what was synced is there, and nothing but what was appended."""
    count = 0
    for status, told in points("appending", tmp_path):
        folder = tmp_path / str(count)
        count += 1
        synced = max(told, default=0)
        with log.Writer(folder, segment_bytes=200) as writer:
            assert synced <= writer.next_offset <= synced + 6
            assert payloads(folder, writer.first_offset, writer.next_offset) == numbers(
                writer.first_offset, writer.next_offset
            )
            append(writer, 1)
        if status == 0:
            assert synced == 12
        else:
            assert status == -signal.SIGKILL
    assert count > 100, "there is a point for every line"
