"""The log in which messages wait between the broker and the tables: a folder of segments.

`segments` says what lies in it, and `log_rows` reads it. Opening the log to write cuts the last
segment behind its last whole record. Beside the segments lie `lock`, with the process that writes,
and `id`, by which this log is not taken for another one that was in the same place.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from . import durable, in_use
from .log_rows import SCHEMA, read
from .segments import HEADER, SUFFIX, LogError, Record, Segment, bounds, end_of, header, segments

__all__ = [
    "HEADER", "MIB", "SCHEMA", "SUFFIX", "LogError", "Record", "Segment", "Writer", "bounds",
    "read", "segments",
]  # fmt: skip

MIB = 1 << 20

# Where there is no fdatasync (macOS), fsync does more than is needed.
_sync = getattr(os, "fdatasync", os.fsync)


class Writer:
    """The one who appends to the log in `folder`, which is made where it is missing.

    limit_bytes    above which the log is `full`; the batch that reaches it is still taken
    segment_bytes  above which a new segment is begun; at an eighth of `limit_bytes` it is anyway,
                   as a segment goes as a whole: several must find room

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
        self.segment_bytes = min(segment_bytes, max(1, limit_bytes // 8))
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
        return in_use.locked(
            self.folder / "lock",
            lambda pid: LogError(
                f"the log in {self.folder} is in use by process {pid}: end that one, or name "
                "another folder"
            ),
        )

    def _identity(self) -> str:
        path = self.folder / "id"
        with contextlib.suppress(FileNotFoundError):
            found = path.read_text().strip()
            if found:
                return found
        made = secrets.token_hex(8)
        draft = path.with_suffix(".new")
        durable.write(draft, f"{made}\n".encode())  # its name is synced with the first segment's
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
            # It was synced before the next one was begun: only its last record shows its end.
            if not self._sizes[segment.first] and after.first != segment.first:
                raise LogError(f"{segment.path} is empty: the messages up to {after.first} lack")
        last = found[-1]
        self.next_offset, end = end_of(last)
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
        durable.path(self.folder)
        old, self._file = self._file, file
        if old >= 0:
            os.close(old)
        self._segments.append(Segment(first, path))
        self._sizes[first] = 0

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return self._size

    @property
    def full(self) -> bool:
        """True while nothing more should be received until something is trimmed."""
        return self._size >= self.limit_bytes

    @property
    def first_offset(self) -> int:
        """The offset of the oldest message that is kept."""
        return self._segments[0].first

    def append(self, body: Any, count: int, time_us: int, version: int = 4) -> int:
        """Append `count` PUBLISH packets, and return the offset of the first.

        `body` holds their bytes, in that version of MQTT, received at `time_us` (us since
        1970). Raises OSError if the write fails or is short; nothing is appended then. The
        record is durable after the next `sync`.
        """
        first = self.next_offset
        head = header(first, count, time_us, body, version)
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
            try:
                os.ftruncate(self._file, at)
            except OSError:  # what is appended behind a torn record could not be read
                self._close()
            raise

    def sync(self) -> None:
        """Make everything appended survive a power cut.

        After an OSError the log is closed, as nobody knows what is durable: open it again.
        """
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
        """Remove the segments whose messages all lie before an offset.

        The last segment is removed only if the log is full.
        """
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
