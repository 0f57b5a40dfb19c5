"""The segments of the log: their files, and the records in them.

A segment is a file named by the offset of its first message: `00000000000000001200.log`. In it
records follow each other, each a batch of PUBLISH packets as they came from the wire, behind a
header of 32 bytes, little-endian:

    magic, 4 B | first offset, u64 | messages, u32 | received, u64, us since 1970 |
    size of the body, u32, B | CRC, u32

The magic says what the packets are: `fMQ1` of MQTT 3.1.1 (section 3.3), `fMQ5` of MQTT 5, which
have properties. A log may have records of both. One that has the latter must not be opened to
write by a flatmq that does not know them: it would take the first of them as torn.

A PUBLISH is there whatever its topic name and properties are, if they end before it does. One
whose first byte is FORGOTTEN stands for a message that was removed.

The CRC-32 is over the 28 bytes before it and the body. Offsets count messages from 0 and never
repeat. What was not synced when the machine went down may be torn: behind the last whole record
of the last segment.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

SUFFIX = ".log"
FORGOTTEN = 0x36  # QoS 3, which no message has
_MAGICS = {b"fMQ1": 4, b"fMQ5": 5}  # the version of MQTT as CONNECT has it
_BY_VERSION = {3: b"fMQ1", 4: b"fMQ1", 5: b"fMQ5"}
_HEAD = struct.Struct("<4sQIQI")
_CRC = struct.Struct("<I")
HEADER = _HEAD.size + _CRC.size  # 32 bytes


class LogError(RuntimeError):
    """The log cannot be used as it is; the text names the folder and what to do."""


class Record(NamedTuple):
    """A batch, as it lies in a segment."""

    first: int
    """The offset of its first message."""
    messages: int
    """How many are in it."""
    time_us: int
    """When they were received, in us since 1970, UTC."""
    version: int
    """Of MQTT: in 5 its packets have properties."""
    body: bytes
    end: int
    """Where it ends in the file, in bytes."""

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


def header(first: int, count: int, time_us: int, body: Any, version: int) -> bytes:
    """Return what stands before the `body` of a record."""
    head = _HEAD.pack(_BY_VERSION[version], first, count, time_us, len(body))
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(head)))


def records(file: BinaryIO, first: int, start: int = 0) -> Iterator[Record]:
    """The whole records of a segment that begins with the offset `first`, up to what is torn.

    Those whose messages all lie before `start` are passed over unread.
    """
    at = 0
    while len(head := _read(file, HEADER)) == HEADER:
        magic, offset, count, time_us, size = _HEAD.unpack_from(head)
        version = _MAGICS.get(magic)
        if version is None or offset != first or not count:
            return
        at += HEADER + size
        if first + count <= start:
            file.seek(at)
        else:
            body = _read(file, size)
            if head != header(first, count, time_us, body, version):
                return
            yield Record(first, count, time_us, version, body, at)
        first += count


def _read(file: BinaryIO, size: int) -> bytes:
    try:
        return file.read(size)
    except OSError as error:  # of a disk that fails: it names no file by itself
        error.filename = str(file.name)
        raise


def end_of(segment: Segment) -> tuple[int, int]:
    """The offset after the last whole record of a segment, and where that ends in bytes."""
    offset, at = segment.first, 0
    with segment.path.open("rb") as file:
        for record in records(file, segment.first):
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
            return found[0].first, end_of(found[-1])[0]
