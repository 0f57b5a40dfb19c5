"""Store records on flash, and read them in order.

A record is a header of nine bytes (the flags of its PUBLISH, the lengths of topic and payload, a
checksum), its topic and its payload. Records are numbered. The number is not stored: it is part of
the checksum, and a segment is named after the number of its first record.

    00000a31.seg  00000a60.seg  00000a8e.seg  head
    oldest                      open          newest

New records go to the head, a file so small that littlefs stores it inside the folder, where a
rewrite costs a twentieth of an erase. Records acknowledged in the meantime are overwritten there.
When the head is full, its records go to the open segment in one write. That costs an erase and
programs half a segment on average, because littlefs copies the block to which it appends.

Nothing is ever repaired: a segment ends before its first damaged record, and nothing more is
appended to it.
"""

import os
from errno import ENOENT

from .flash import (
    FULL,
    START,
    access,
    close,
    crc,
    get,
    patiently,
    put,
    reopen,
    sync,
    sync_folder,
    write,
)
from .port import const

RECORD = const(9)  # bytes of a record's header
_NUMBER = const(4)  # bytes of the head before its records: the number of the first record
_SUFFIX = const(".seg")
_TRIES = const(1000)  # to read a file, until it is taken for damaged

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

# Found without the miss in the module that a builtin costs.
_len = len


class Store:
    """Records in `folder`, which is created if it does not exist.

    There are at most `segments` files of `segment` bytes, and a head of `head` bytes (0: no
    head). Records before number `acked` are no longer needed. An empty store begins with
    number `start`.

    `next` is the number of the next record to be appended, `seq` that of the next to be read. The
    record read last is in `first` (the first byte of its PUBLISH), `topic` and `payload`, which
    are reused. `bad` counts places with a damaged record, `skipped` the records lost there.

    If the flash fails, a call raises OSError. It has no effect then, and may be repeated. A file
    that cannot be read in a thousand tries is damaged.
    """

    def __init__(
        self, folder: str, segment: int, segments: int, head: int, acked: int, start: int
    ) -> None:
        self._folder = folder
        self._segment = segment
        self._segments = segments
        self._limit = head
        self.bad = self.skipped = 0
        self._firsts: list[int] = []  # for each segment, the number of its first record
        self._ends: list[int] = []  # and one more than the number of its last
        self._out: Any = None  # the last segment, while it can be appended to
        self._size = 0  # bytes in it
        # The head as on flash. A memoryview, so that a slice of the wrong length raises.
        self._head = memoryview(bytearray(head))
        self._head_first = self._head_next = 0  # its records: the first, and one after the last
        self._head_end = _NUMBER  # where they end
        self._head_file: Any = None
        self._hdr = bytearray(RECORD)
        self._flags = 0
        self._given: Any = b""  # the topic being appended
        self._with: Any = b""  # the payload being appended
        self.first = 0
        self.topic = bytearray()
        self.payload = bytearray()
        self._in: Any = None  # the file of the next record; may be one of the two above
        self._in_end = -1  # the number at which it ends; -1: not known yet
        self._in_size = 0  # bytes in it
        self._at = 0  # where the next record begins
        self._n = 0  # its size
        self._tries = 0  # to read it, that failed
        self.next = self.seq = 0
        names = self._names()
        self._load_segments(sorted(n for n in map(_number, names) if n >= 0))
        end = self._ends[-1] if self._ends else 0
        if "head" in names:
            try:
                patiently(self._load_head, end)
            except OSError:
                self.bad += 1
        if not (names or self.next):
            acked = max(acked, start)
        self.next = max(self.next, acked)
        self.seq = max(acked, self._firsts[0] if self._firsts else self._head_first)
        self.free(acked)

    # Opening

    def _names(self):
        try:
            return os.listdir(self._folder)
        except OSError:
            os.mkdir(self._folder)
            return []

    def _load_segments(self, found):
        for n in found:
            if self._ends and self._ends[-1] > n:
                self._ends[-1] = n
            try:
                patiently(self._load_segment, n, n == found[-1])
            except OSError:
                self.next = n + self._segment // RECORD + 1
                if n == found[-1]:
                    self.bad += 1
                else:  # to be read later
                    self._firsts.append(n)
                    self._ends.append(self.next)

    def _load_segment(self, first, is_last):
        f = access(self._path(first), "r+b")
        try:
            size = f.seek(0, 2)
            at = 0
            n = first
            while at < size:
                step = self._read(f, at, n, size) if is_last else self._peek(f, at, size)
                if not step:
                    break
                at += step
                n += 1
            self.next = n
            if at < size:  # the numbers of unreadable records are not used again
                self.bad += 1
                self.next += (size - at) // RECORD + 1
            elif is_last:
                self._out = f
                self._size = size
                f = None
        finally:
            if f is not None:
                close(f)
        if n == first and self._out is None:
            try:  # noqa: SIM105 (there is no contextlib on a board)
                os.remove(self._path(first))
            except OSError:  # the next start tries again
                pass
        else:
            self._firsts.append(first)
            self._ends.append(n)

    def _load_head(self, end):
        f = self._head_file = access(self._folder + "/head", "r+b")
        size = f.seek(0, 2)
        if size > len(self._head):  # written with a larger `head`
            self._head = memoryview(bytearray(size))
        f.seek(0)
        f.readinto(self._head)
        first = get(self._head, 0) if size > _NUMBER else -1
        if first < 0:
            return
        at = _NUMBER
        n = first
        while at < size:
            step = self._read(f, at, n, size)
            if not step:  # the rest is older
                break
            at += step
            n += 1
        if n <= end:  # its records are also in a segment
            self._head_first = self._head_next = end
            return
        if first < end:
            self._ends[-1] = first
            self._seal()
        self._head_first = first
        self._head_next = n
        self._head_end = at
        self.next = max(self.next, n)

    # Appending

    def append(self, first: int, topic, payload, acked: int) -> bool:
        """Append a record; those before number `acked` are no longer needed.

        Returns True once it is durable, False if there is no room. Raises OSError.
        """
        self._given = topic
        self._with = payload
        self._flags = first
        n = self._try_append(acked)
        self._given = self._with = b""  # the collector may free them
        return n

    def _try_append(self, acked):
        try:
            return self._append(acked)
        except Exception:  # "as e" would put the frame on the heap
            pass
        self._abandon()
        return self._append_again(acked)

    def _append_again(self, acked):
        """Try once more, with files that are opened again."""
        try:
            return self._append(acked)
        except Exception as e:
            self._abandon()
            if getattr(e, "errno", 0) not in FULL:
                raise
            return False

    def _fits(self, n):
        """Return whether the next record follows those in the head and has room there."""
        return self._head_end + n <= self._limit and self._head_next == self.next

    def _append(self, acked):
        n = RECORD + _len(self._given) + _len(self._with)
        if acked == self.next and self._head_first != self.next:
            self._empty()
        if _NUMBER + n <= self._limit:
            if not (self._fits(n) or self._spill(acked)):
                return False
            self._put_header()
            self._put_head(n)
            return True
        if not (self._spill(acked) and self._room(self.next, n, acked)):
            return False
        self._put_header()
        self._put_segment()
        self._written(n, self.next + 1)
        self.next += 1
        return True

    def _put_segment(self):
        self._out.seek(self._size)
        write(self._out, self._hdr, 0, RECORD)
        write(self._out, self._given, 0, _len(self._given))
        write(self._out, self._with, 0, _len(self._with))

    def _put_header(self):
        h = self._hdr
        h[0] = self._flags
        h[1] = _len(self._given) >> 8
        h[2] = _len(self._given) & 255
        h[3] = _len(self._with) >> 8
        h[4] = _len(self._with) & 255
        put(h, 5, self._sum(self.next, self._given, self._with))

    def _sum(self, seq, topic, payload):
        """Return the checksum of a record whose header is otherwise complete."""
        put(self._hdr, 5, seq)
        seq = crc(START, self._hdr, RECORD)
        return crc(crc(seq, topic, _len(topic)), payload, _len(payload))

    def _put_head(self, n):
        at = self._head_end
        if at == _NUMBER:
            put(self._head, 0, self.next)
            self._head_first = self.next
        self._head[at : at + RECORD] = self._hdr
        at += RECORD
        self._head[at : at + _len(self._given)] = self._given
        at += _len(self._given)
        self._head[at : at + _len(self._with)] = self._with
        at = self._head_end
        if at == _NUMBER:
            at = 0
        if self._head_file is None:
            self._head_file = reopen(self._folder + "/head")
            at = 0  # it may have been made again
        self._head_file.seek(at)
        write(self._head_file, self._head, at, self._head_end + n - at)
        sync(self._head_file)
        self._head_end += n
        self.next += 1
        self._head_next = self.next
        if self._in is self._head_file:
            self._in_end = self.next
            self._in_size = self._head_end

    def _empty(self):
        """Forget the records in the head."""
        self._head_first = self._head_next = self.next
        self._head_end = _NUMBER
        if self._in is self._head_file:
            self._leave()

    def _spill(self, acked):
        """Move the records of the head to a segment. Returns False if there is no room."""
        n = self._head_end - _NUMBER
        if n:
            if not self._room(self._head_first, n, acked):
                return False
            self._out.seek(self._size)
            write(self._out, self._head, _NUMBER, n)
            self._written(n, self._head_next)
        self._empty()
        return True

    def _written(self, n, end):
        sync(self._out)
        self._size += n
        self._ends[-1] = end
        if self._in is self._out:
            self._in_end = end
            self._in_size = self._size

    def _room(self, seq, n, acked):
        """Open a segment for `n` more bytes that begin with record `seq`, unless one is open.
        Returns False if there is no room."""
        if self._out is not None and self._ends[-1] == seq and self._size + n <= self._segment:
            return True
        if _len(self._firsts) >= self._segments and self._ends[0] > acked:
            return False
        self._seal()
        self.free(acked)
        # In the lists first: if memory is short, `_abandon` removes it.
        self._ends.append(seq)
        self._firsts.append(seq)
        self._out = access(self._path(seq), "w+b")
        self._size = 0
        sync_folder(self._folder)
        return True

    def _seal(self):
        """End the last segment: nothing more is appended to it."""
        f = self._out
        self._out = None
        if f is not None and f is not self._in:
            close(f)

    def _abandon(self):
        """Close the open files after a failure.

        littlefs would report success for them from now on. A partial write is not visible.
        """
        self._leave()
        self._seal()
        if self._head_file is not None:
            close(self._head_file)
            self._head_file = None
        if _len(self._ends) > _len(self._firsts):
            self._ends.pop()
        if self._firsts and self._firsts[-1] == self._ends[-1]:
            try:
                self._remove(_len(self._firsts) - 1)
            except Exception:  # an empty file, to be overwritten
                self._firsts.pop()
                self._ends.pop()

    # Removing

    def free(self, acked: int) -> None:
        """Remove segments that have only records before number `acked`. OSError."""
        while self._firsts and self._ends[0] <= acked:
            if self._out is not None and _len(self._firsts) == 1:
                return
            self._remove(0)

    def drop(self, acked: int) -> int:
        """Remove the oldest segment without records from `acked` to `seq`, which are in flight.
        Returns the number of unread records lost, -1 if there is no such segment. OSError."""
        i = 0
        if acked != self.seq:
            while i < _len(self._firsts) and self._firsts[i] < self.seq:
                i += 1
        if i == _len(self._firsts):
            return -1
        end = self._ends[i]
        n = max(0, end - max(self._firsts[i], self.seq))
        if i + 1 == _len(self._firsts):
            self._seal()
        self._leave()
        self._remove(i)
        if not i:
            self.seq = max(self.seq, end)
        return n

    def _remove(self, i):
        """Remove segment `i`, which must not be open for appending."""
        if self._in is not self._head_file:
            self._leave()
        try:
            os.remove(self._path(self._firsts[i]))
        except OSError as e:
            if e.errno != ENOENT:  # it is gone
                raise
        self._firsts.pop(i)
        self._ends.pop(i)

    def _leave(self):
        """Close the file being read, unless it is open for appending."""
        f = self._in
        self._in = None
        self._in_end = -1
        if f is not None and f is not self._out and f is not self._head_file:
            close(f)

    def close(self) -> None:
        """Close the files."""
        self._leave()
        self._seal()
        if self._head_file is not None:
            close(self._head_file)
            self._head_file = None

    # Reading

    def read(self) -> bool:
        """Read record `seq`, or the first readable one after it.

        Returns False if there is none. Raises OSError if it cannot be read now.
        """
        while self.seq < self.next:
            if self._try_read():
                return True
        return False

    def advance(self) -> None:
        """Move on to the next record."""
        self._at += self._n
        self.seq += 1

    def look(self, seq: int) -> bool:
        """Read record `seq`, which is before the next one to be read. Returns False if it is lost.

        The next `read` repeats what it read last, unless `advance` has been called since. OSError.
        """
        here = self.seq
        self._leave()
        self.seq = seq
        try:
            return self.read() and self.seq == seq
        finally:  # also without memory
            self._leave()
            self.seq = here

    def count(self) -> int:
        """Return the number of records from `seq` on, according to their headers."""
        n = max(0, self._head_next - max(self._head_first, self.seq))
        for i, end in enumerate(self._ends):
            n += max(0, end - max(self._firsts[i], self.seq))
        return n

    def _try_read(self):
        """Do the next step of reading. Returns whether a record was read."""
        try:
            if self.seq >= self._in_end:
                self._seek()
                return False
            self._n = self._read(self._in, self._at, self.seq, self._in_size)
            self._tries = 0
            if self._n:
                return True
        except OSError:
            self.close()  # so that it is opened again
            self._tries += 1
            if self._tries < _TRIES:
                raise
            os.listdir(self._folder)  # if that fails too, it is not the file
        except MemoryError:  # the next read tries again
            self._leave()
            raise
        self.give_up()
        return False

    def _read(self, f, at, seq, size):
        """Read a whole record. Returns its size, 0 if it is damaged."""
        size = self._peek(f, at, size)
        if size:
            self._get_fields(f)
            at = get(self._hdr, 5)
            if at != self._sum(seq, self.topic, self.payload):
                return 0
            self.first = self._hdr[0]
        return size

    def _get_fields(self, f):
        _resize(self.topic, self._hdr[1] << 8 | self._hdr[2])
        _resize(self.payload, self._hdr[3] << 8 | self._hdr[4])
        f.readinto(self.topic)
        f.readinto(self.payload)

    def _peek(self, f, at, size):
        """Read the header of a record. Returns the size of the record, 0 if it is damaged."""
        h = self._hdr
        if at + RECORD > size:
            return 0
        f.seek(at)
        f.readinto(h)
        n = RECORD + (h[1] << 8 | h[2]) + (h[3] << 8 | h[4])
        if not 0x32 <= h[0] <= 0x35 or at + n > size:
            return 0
        return n

    def _seek(self):
        """Go to record `seq`, or to the first one after it."""
        self._leave()
        i = self._find()
        if i < _len(self._ends):
            self._enter(i)
        elif self.seq < self._head_next > self._head_first:
            self.seq = max(self.seq, self._head_first)
            self._in_end = self._head_next
            if self._head_file is None:
                self._head_file = access(self._folder + "/head", "r+b")
            self._in = self._head_file
            self._in_size = self._head_end
            self._hop(self._head_first, _NUMBER)
        else:
            self.seq = self.next

    def _find(self):
        """Return the index of the first segment that ends after record `seq`."""
        i = 0
        while i < _len(self._ends) and self._ends[i] <= self.seq:
            i += 1
        return i

    def _enter(self, i):
        self.seq = max(self.seq, self._firsts[i])
        self._in_end = self._ends[i]
        if self._out is not None and i + 1 == _len(self._ends):
            self._in = self._out
            self._in_size = self._size
        else:
            self._in = access(self._path(self._firsts[i]), "rb")
            self._in_size = self._in.seek(0, 2)
        self._hop(self._firsts[i], 0)

    def _hop(self, seq, at):
        """Go to record `self.seq` of the file in which record `seq` begins at `at`."""
        while seq < self.seq:
            n = self._peek(self._in, at, self._in_size)
            if not n:
                break
            at += n
            seq += 1
        self._at = at if seq == self.seq else self._in_size

    def give_up(self) -> None:
        """Give up record `seq`, which cannot be read, and those behind it in its file."""
        i = self._find()
        end = self._head_next
        if i < _len(self._ends):
            end = self._ends[i]
            self._ends[i] = self.seq
            if i + 1 == _len(self._ends):
                self._seal()
        self.bad += 1
        self.skipped += end - self.seq
        self.seq = end
        self._tries = 0
        self._leave()

    def _path(self, seq):
        return f"{self._folder}/{seq:08x}{_SUFFIX}"


def _number(name):
    """Return the number in the file name of a segment, -1 for any other file."""
    if _len(name) != 12 or name[8:] != _SUFFIX:
        return -1
    try:
        n = int(name[:8], 16)
    except ValueError:
        return -1
    return n if f"{n:08x}" == name[:8] else -1


def _resize(buf, n):
    """Give a bytearray the length `n`. Allocates only if it has never been that long."""
    while _len(buf) < n:
        buf.append(0)
    if _len(buf) > n:
        buf[n:] = b""
