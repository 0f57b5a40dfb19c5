"""Messages of the log as rows of Arrow.

A valid topic name is its own text: it has no `#`. In the text of another one, `#` and two
hexadecimal digits stand for each byte that is `#`, U+0000 or not UTF-8, so that its bytes can be
known again.
"""

from __future__ import annotations

import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from flatmq.wire import get_length

from . import carried
from .segments import FORGOTTEN, LogError, Record, records, segments

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("dup", pa.bool_()),
        ("offset", pa.int64()),
        *carried.COLUMNS.items(),
    ]
)
"""The columns of a message, here and in every table that is made of them."""

# By the first byte of a PUBLISH.
_QOS = pa.array([first >> 1 & 3 for first in range(256)], pa.int32())
_RETAIN = pa.array([bool(first & 1) for first in range(256)])
_DUP = pa.array([bool(first & 8) for first in range(256)])

_ESCAPES = {0: "#00", 35: "#23"} | {0xDC00 + byte: f"#{byte:02X}" for byte in range(128, 256)}
_REMEMBERED = 100_000
_ROWS = 20_000  # in a RecordBatch, about
_BYTES = 8 << 20  # of packets in one, about


def topic_text(name: bytes) -> str:
    """Return the text of a topic name."""
    return name.decode(errors="surrogateescape").translate(_ESCAPES)


class _Columns:
    """A collector of messages for a RecordBatch."""

    def __init__(self) -> None:
        self._text = lru_cache(_REMEMBERED)(topic_text)
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

    def add(self, record: Record, start: int, end: int) -> None:
        """Add those messages of a record that lie from offset `start` up to `end`."""
        text = self._text
        topics: list[str] = []
        payloads: list[bytes] = []
        firsts = bytearray()
        blocks: list[carried.Values] = []
        walks = record.version == 5
        body = record.body
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
            topics.append(text(body[t:e]))
            if first & 6:
                e += 2
            if walks:
                if body[e]:
                    b, e = carried.end_of(body, e, at)
                    blocks.append(carried.read(body[b:e]))
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
        """Return what was gathered, and begin again."""
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
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        if FORGOTTEN in self._firsts:
            batch = batch.filter(pc.not_equal(firsts, FORGOTTEN))
        self._clear()
        return batch


def read(folder: Path | str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The messages from offset `start` up to `end`, in their order, in batches of SCHEMA.

    Has no side effects and takes no lock: any process may read what is synced, while another
    one appends. Raises LogError when not all of them are there, or a record is damaged.
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
        try:
            file = segment.path.open("rb")
        except FileNotFoundError as error:
            raise LogError(f"{segment.path} was trimmed while it was to be read") from error
        with file:
            for record in records(file, segment.first, want):
                columns.add(record, want, end)
                want = min(record.next, end)
                if len(columns) >= _ROWS or columns.bytes >= _BYTES:
                    yield columns.batch()
                if want == end:
                    break
        if want < end and want != after:
            raise LogError(f"{segment.path}: damaged, or ends, before message {want}")
    if columns:
        yield columns.batch()
