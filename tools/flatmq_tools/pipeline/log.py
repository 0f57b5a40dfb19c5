"""Where do messages wait between the broker and the tables? In a folder of append-only segments.

A segment is a file named by the offset of its first message: `00000000000000001200.log`. In it
records follow each other, each a batch of PUBLISH packets as they came from the wire, behind a
header of 32 bytes, little-endian:

    magic, 4 B | first offset, u64 | messages, u32 | received, u64, us since 1970 |
    size of the body, u32, B | CRC, u32

The magic says what the packets are: `fMQ1` of MQTT 3.1.1 (section 3.3), `fMQ5` of MQTT 5, which
have properties. A log may have records of both. One that has the latter must not be opened to
write by a flatmq that does not know them: it would take the first of them as torn.

The CRC-32 is over the 28 bytes before it and the body. Offsets count messages from 0 and never
repeat. What was not synced when the machine went down may be torn: opening the log to write cuts
the last segment behind its last whole record. Beside the segments lie `lock`, with the process
that writes, and `id`, which tells this log from another one that was in the same place.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import itertools
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from flatmq.wire import get_length

from . import carried

MIB = 1 << 20
SUFFIX = ".log"
_MAGICS = {b"fMQ1": 4, b"fMQ5": 5}  # the version of MQTT as CONNECT has it
_BY_VERSION = {3: b"fMQ1", 4: b"fMQ1", 5: b"fMQ5"}
_HEAD = struct.Struct("<4sQIQI")
_CRC = struct.Struct("<I")
HEADER = _HEAD.size + _CRC.size  # 32 bytes

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("dup", pa.bool_()),
        ("offset", pa.int64()),
        *((name, kind) for name, (_, kind) in carried.COLUMNS.items()),
    ]
)
"""The columns of a message, here and in every table that is made of them."""

# By the first byte of a PUBLISH.
_QOS = pa.array([first >> 1 & 3 for first in range(256)], pa.int32())
_RETAIN = pa.array([bool(first & 1) for first in range(256)])
_DUP = pa.array([bool(first & 8) for first in range(256)])

_ROWS = 20_000  # in a RecordBatch, about
_BYTES = 8 * MIB  # of packets in one, about

# Where there is no fdatasync (macOS), fsync does more than is needed.
_sync = getattr(os, "fdatasync", os.fsync)


class LogError(RuntimeError):
    """The log cannot be used as it is; the text names the folder and what to do."""


class Record(NamedTuple):
    """A batch, as it lies in a segment."""

    at: int
    """Where it begins, in bytes."""
    first: int
    """The offset of its first message."""
    messages: int
    """How many are in it."""
    time_us: int
    """When they were received, in us since 1970, UTC."""
    size: int
    """Of its body, in bytes."""
    version: int = 4
    """Of MQTT: in 5 its packets have properties."""

    @property
    def end(self) -> int:
        """Where the next one begins, in bytes."""
        return self.at + HEADER + self.size

    @property
    def next(self) -> int:
        """The offset of the message after it."""
        return self.first + self.messages


class Segment(NamedTuple):
    """A file of the log."""

    first: int
    """The offset of its first message, or of the one to come where it is empty."""
    path: Path


def segments(folder: Path | str) -> list[Segment]:
    """The segments that are there, in the order of their offsets; none where no folder is."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for path in Path(folder).iterdir():
            if path.suffix == SUFFIX and path.stem.isdecimal():
                found.append(Segment(int(path.stem), path))
    return sorted(found)


def _records(file: BinaryIO, first: int, check: bool = True) -> Iterator[Record]:
    """The whole records of a segment that begins with the offset `first`, up to what is torn.

    With `check` the CRC is looked at, else the file is at the record's body when it is yielded.
    """
    at = 0
    while True:
        file.seek(at)
        head = file.read(HEADER)
        if len(head) < HEADER:
            return
        magic, offset, count, time_us, size = _HEAD.unpack_from(head)
        version = _MAGICS.get(magic)
        if version is None or offset != first or not count:
            return
        if check:
            body = file.read(size)
            if len(body) < size or not _is_whole(head, body):
                return
        yield Record(at, first, count, time_us, size, version)
        first += count
        at += HEADER + size


def _is_whole(head: bytes, body: bytes) -> bool:
    found = zlib.crc32(body, zlib.crc32(memoryview(head)[: _HEAD.size]))
    return bool(_CRC.unpack_from(head, _HEAD.size)[0] == found)


def _end(segment: Segment) -> tuple[int, int]:
    """The offset after the last whole record of a segment, and where that ends in bytes."""
    offset, at = segment.first, 0
    with segment.path.open("rb") as file:
        for record in _records(file, segment.first):
            offset, at = record.next, record.end
    return offset, at


def bounds(folder: Path | str) -> tuple[int, int]:
    """The offset of the first message, and that after the last whole one; (0, 0) without a log.

    Reads the last segment. While a Writer is at work, its `synced` is what will last.
    """
    while True:
        found = segments(folder)
        if not found:
            return 0, 0
        with contextlib.suppress(FileNotFoundError):  # it was trimmed meanwhile
            return found[0].first, _end(found[-1])[0]


class Writer:
    """The one who appends to the log in `folder`, which is made where it is missing.

    limit_bytes    above which the log is `full`; the batch that reaches it is still taken
    segment_bytes  above which a new segment is begun; at a quarter of `limit_bytes` it is anyway

    Raises LogError when another process, or another Writer, has the log open, and when segments
    are missing in between. `trim`, `rotate` and the properties may be used from other threads
    than the one that appends.
    """

    def __init__(
        self,
        folder: Path | str,
        limit_bytes: int = 1024 * MIB,
        segment_bytes: int = 64 * MIB,
    ) -> None:
        self.folder = Path(folder)
        self.limit_bytes = limit_bytes
        self.segment_bytes = min(segment_bytes, max(1, limit_bytes // 4))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._guard = threading.Lock()
        self._lock = self._locked()
        self._file = -1
        try:
            self.id = self._identity()
            self._segments: list[Segment] = []
            self._sizes: dict[int, int] = {}
            self._recover()
        except BaseException:
            os.close(self._lock)
            raise
        self.synced = self.next_offset

    def _locked(self) -> int:
        file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.read(file, 20).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise LogError(
                f"the log in {self.folder} is in use by process {pid}: end that one, or name "
                "another folder"
            ) from error
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        return file

    def _identity(self) -> str:
        path = self.folder / "id"
        with contextlib.suppress(FileNotFoundError):
            found = path.read_text().strip()
            if found:
                return found
        made = secrets.token_hex(8)
        draft = path.with_suffix(".new")
        draft.write_text(made + "\n")
        draft.replace(path)
        return made

    def _recover(self) -> None:
        found = segments(self.folder)
        if not found:
            self.next_offset = self._size = 0
            self._begin(0)
            return
        for segment, after in itertools.pairwise(found):
            self._sizes[segment.first] = segment.path.stat().st_size
            # It was synced before the next one was begun: only its last record tells its end.
            if not self._sizes[segment.first] and after.first != segment.first:
                raise LogError(f"{segment.path} is empty: the messages up to {after.first} lack")
        last = found[-1]
        self.next_offset, end = _end(last)
        self._segments = found
        self._file = os.open(last.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        if os.fstat(self._file).st_size != end:
            os.ftruncate(self._file, end)
        # What an earlier process has not synced is whole, and counts as synced from here on.
        _sync(self._file)
        self._sizes[last.first] = end
        self._size = sum(self._sizes.values())

    def _begin(self, first: int) -> None:
        """Begin a segment."""
        path = self.folder / f"{first:020d}{SUFFIX}"
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(path, flags, 0o644)
        sync_folder(self.folder)
        old, self._file = self._file, file
        if old >= 0:
            os.close(old)
        self._segments.append(Segment(first, path))
        self._sizes[first] = 0

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether nothing more should be received before something was trimmed."""
        return self._size >= self.limit_bytes

    @property
    def first_offset(self) -> int:
        """The offset of the oldest message that is kept."""
        return self._segments[0].first

    def append(self, body: Any, count: int, time_us: int, version: int = 4) -> int:
        """Append `count` PUBLISH packets of that version of MQTT, `body` (bytes-like), received at
        `time_us` (us since 1970). Returns the offset of the first. Raises OSError if the write
        fails or is short; nothing is appended then. The record is durable after the next
        `sync`."""
        first = self.next_offset
        head = _HEAD.pack(_BY_VERSION[version], first, count, time_us, len(body))
        head += _CRC.pack(zlib.crc32(body, zlib.crc32(head)))
        size = len(head) + len(body)
        with self._guard:
            if self._file < 0:
                raise LogError(f"the log in {self.folder} is closed")
            segment = self._segments[-1].first
            if self._sizes[segment] and self._sizes[segment] + size > self.segment_bytes:
                self._rotate()
                segment = first
            self._write(head, body, self._sizes[segment])
            self._sizes[segment] += size
            self._size += size
            self.next_offset = first + count
        return first

    def _write(self, head: bytes, body: Any, at: int) -> None:
        parts = [memoryview(head), memoryview(body)]
        try:
            while parts:
                n = os.writev(self._file, parts)
                while parts and n >= len(parts[0]):
                    n -= len(parts.pop(0))
                if n:
                    parts[0] = parts[0][n:]
        except OSError:
            os.ftruncate(self._file, at)
            raise

    def sync(self) -> None:
        """Have everything appended outlive a power cut. After an OSError the log is closed, as
        nobody knows what of it lasts: open it again."""
        with self._guard:
            self._sync()

    def _sync(self) -> None:
        if self.synced == self.next_offset:
            return
        if self._file < 0:
            raise LogError(f"the log in {self.folder} is closed")
        try:
            _sync(self._file)
        except OSError:
            self._close()
            raise
        self.synced = self.next_offset

    def rotate(self) -> None:
        """Sync, and have the next record begin a segment. Nothing where the last one is empty."""
        with self._guard:
            if self._sizes[self._segments[-1].first]:
                self._rotate()

    def _rotate(self) -> None:
        self._sync()
        self._begin(self.next_offset)

    def closed(self) -> list[tuple[Segment, int]]:
        """The segments that no longer grow, oldest first, each with the offset after it."""
        with self._guard:
            pairs = itertools.pairwise(self._segments)
            return [(segment, after.first) for segment, after in pairs]

    def trim(self, before_offset: int) -> None:
        """Remove the segments whose messages all lie before an offset; the last one only when the
        log is full."""
        with self._guard:
            if self.full and self.next_offset <= before_offset:
                self._rotate()
            while len(self._segments) > 1 and self._segments[1].first <= before_offset:
                segment = self._segments[0]
                segment.path.unlink(missing_ok=True)
                self._segments.pop(0)
                self._size -= self._sizes.pop(segment.first)

    def close(self) -> None:
        """Sync, and let others have the log. May be called again."""
        with self._guard:
            if self._file >= 0:
                self._sync()
                self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            os.close(self._lock)
            self._file = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder outlive a power cut."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class _Names(dict[bytes, str]):
    """Topic names as text, each decoded once."""

    def __missing__(self, name: bytes) -> str:
        if len(self) > 100_000:
            self.clear()
        text = self[name] = name.decode()
        return text


class _Columns:
    """Gathers messages for a RecordBatch."""

    def __init__(self) -> None:
        self._names = _Names()
        self._read = carried.Read()
        self._clear()

    def _clear(self) -> None:
        self._topics: list[str] = []
        self._payloads: list[bytes] = []
        self._carried: list[carried.Values] = []
        self._bare = True  # no message has properties
        self._firsts = bytearray()
        self._times = array.array("q")
        self._offsets = array.array("q")
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, record: Record, body: bytes, start: int, end: int) -> None:
        """Add those messages of a record that lie from offset `start` up to `end`."""
        names = self._names
        topics, payloads, firsts = [], [], bytearray()
        blocks: list[carried.Values] = []
        walks = record.version == 5
        at, have = 0, len(body)
        while at < have:
            first = body[at]
            n = body[at + 1]
            if n < 128:
                at += 2
            else:
                n = get_length(body, at + 1, have)
                at += (n & 3) + 2
                n >>= 2
            t = at + 2
            e = t + (body[at] << 8 | body[at + 1])
            at += n
            topics.append(names[body[t:e]])
            if first & 6:
                e += 2
            if walks:
                if body[e]:
                    b, e = carried.end_of(body, e, at)
                    blocks.append(self._read[body[b:e]])
                else:
                    e += 1
                    blocks.append(carried.NOTHING)
            payloads.append(body[e:at])
            firsts.append(first)
        cut = slice(max(0, start - record.first), max(0, end - record.first))
        offsets = range(record.first, record.next)[cut]
        self._topics += topics[cut]
        self._payloads += payloads[cut]
        self._carried += blocks[cut] if walks else [carried.NOTHING] * len(offsets)
        self._bare = self._bare and not walks
        self._firsts += firsts[cut]
        self._times.extend(array.array("q", [record.time_us]) * len(offsets))
        self._offsets.extend(offsets)
        self.bytes += len(body)

    def batch(self) -> pa.RecordBatch:
        """What was gathered; and begins anew."""
        n = len(self)
        firsts = pa.Array.from_buffers(pa.uint8(), n, [None, pa.py_buffer(bytes(self._firsts))])
        columns = [
            pa.array(self._topics, pa.string()),
            pa.array(self._payloads, pa.binary()),
            pa.Array.from_buffers(SCHEMA[2].type, n, [None, pa.py_buffer(self._times)]),
            _QOS.take(firsts),
            _RETAIN.take(firsts),
            _DUP.take(firsts),
            pa.Array.from_buffers(pa.int64(), n, [None, pa.py_buffer(self._offsets)]),
            *(carried.nulls(n) if self._bare else carried.arrays(self._carried)),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def read(folder: Path | str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The messages from offset `start` up to `end`, in their order, in batches of SCHEMA.

    Has no side effects and takes no lock: any process may read what is synced, while another
    one appends. LogError when not all of them are there, or a record is damaged.
    """
    if start >= end:
        return
    found = segments(folder)
    if not found or found[0].first > start:
        first = found[0].first if found else "nothing"
        raise LogError(f"the log in {folder} begins with {first}: {start} was trimmed")
    columns = _Columns()
    want = start
    for i, segment in enumerate(found):
        after = found[i + 1].first if i + 1 < len(found) else None
        if (after is not None and after <= want) or segment.first >= end:
            continue
        for record, body in _bodies(segment, want, end):
            columns.add(record, body, want, end)
            want = min(record.next, end)
            if len(columns) >= _ROWS or columns.bytes >= _BYTES:
                yield columns.batch()
        if want < end and want != after:
            raise LogError(f"{segment.path}: damaged, or ends, before message {want}")
    if columns:
        yield columns.batch()


def _bodies(segment: Segment, start: int, end: int) -> Iterator[tuple[Record, bytes]]:
    """The whole records of a segment that have messages from `start` up to `end`."""
    try:
        file = segment.path.open("rb")
    except FileNotFoundError as error:
        raise LogError(f"{segment.path} was trimmed while it was to be read") from error
    with file:
        for record in _records(file, segment.first, check=False):
            if record.first >= end:
                return
            if record.next > start:
                file.seek(record.at)
                head = file.read(HEADER)
                body = file.read(record.size)
                if len(body) < record.size or not _is_whole(head, body):
                    return
                yield record, body
