"""What must be known after a reboot about messages that are on their way?

A file of a few bytes, rewritten in place: littlefs keeps a file of up to 128 bytes (4 times the
larger of its read size and prog size) in its folder, where rewriting costs a fortieth of an erase.
"""

from .flash import START, access, close, crc, get, put, sync, write
from .port import const

# Identifiers of records; below are those that the session counts out.
FIRST_ID = const(33280)
IDS = const(32256)
_ID = const(0x7FFF)  # what is kept of one: they all have the bit above,
_DONE = const(0x8000)  # whose place says that PUBCOMP was there, else PUBREC was
_HEAD = const(8)
_FORMAT = const(0x4A)

# A builtin is found after a miss in the module; a module global is found at once.
_len = len


class Journal:
    """The file at `path`.

    `acked`: every record before the one of this number was acknowledged; `found`: the file could
    be read. At most `outgoing` QoS 2 records past PUBREC are told of, and `ids`:
    the packet identifiers of QoS 2 messages received and not released (section 4.3.3).

    A session calls `pubrec` and `forget`, a router `keep`; each returns when that is durable, and
    raises OSError when it cannot be. Nothing is written that is on flash already.
    """

    def __init__(self, path: str, outgoing: int, incoming: int) -> None:
        self._path = path
        self._buf = bytearray(_HEAD + 2 * (outgoing + incoming) + 4)
        self._out = [0] * outgoing
        self.ids: list[int] = []
        self.acked = 0
        self.found = False
        self._saved = -1  # the checksum of what is on flash
        self._file = None
        try:
            self._file = access(path, "r+b")
            buf = bytearray(self._file.read())
        except OSError:
            return
        self._restore(buf)

    def _restore(self, buf):
        if _len(buf) < _HEAD + 4 or buf[0] != _FORMAT:
            return
        n = buf[5]
        m = buf[6] << 8 | buf[7]
        end = _HEAD + 2 * (n + m)
        if end + 4 > _len(buf) or crc(START, buf, end) != get(buf, end):
            return
        self.acked = get(buf, 1)
        self.found = True
        found = [buf[i] << 8 | buf[i + 1] for i in range(_HEAD, end, 2)]
        # Larger than asked for when the sizes of the client were larger before.
        self._out = found[:n] + self._out[n:]
        self.ids = found[n:]
        if end + 4 > _len(self._buf):
            self._buf = bytearray(end + 4)
        self._saved = get(buf, end)

    # What a session and a router call

    def pubrec(self, pid: int) -> None:
        """PUBREC was there for `pid`."""
        if pid >= FIRST_ID:
            if not self._find(pid):
                self._out[self._out.index(0)] = pid & _ID
            self.save()

    def forget(self) -> None:
        """The broker has forgotten the session: nothing is past PUBREC, nothing was received."""
        for i, e in enumerate(self._out):
            if e < _DONE:
                self._out[i] = 0
        self.ids = []
        self.save()

    def keep(self, ids: "list[int]") -> None:
        """These packet identifiers, and zeros, are received and not released."""
        self.ids = ids
        self.save()

    # What a spool calls

    def _find(self, pid):
        return (pid & _ID) in self._out or (pid | _DONE) in self._out

    def is_received(self, pid: int) -> bool:
        """Whether PUBREC was there for a record, and not PUBCOMP."""
        return (pid & _ID) in self._out

    def is_done(self, pid: int) -> bool:
        """Whether PUBCOMP was there for a record that is not before `acked`."""
        return (pid | _DONE) in self._out

    def settle(self, in_use: "list[int]") -> bool:
        """Records past PUBREC whose identifiers are no longer `in_use` are done. Returns whether
        there was any."""
        found = False
        if not any(self._out):
            return False
        i = _len(self._out)
        while i:
            i -= 1
            if 0 < self._out[i] < _DONE and (self._out[i] | _DONE) not in in_use:
                self._out[i] |= _DONE
                found = True
        return found

    def remove(self, pid: int) -> None:
        """A record is acknowledged, and all before it."""
        if self._find(pid):
            i = (pid & _ID) if (pid & _ID) in self._out else (pid | _DONE)
            self._out[self._out.index(i)] = 0

    def retain(self, pid: int, n: int) -> None:
        """Forget what is known of records but those whose identifiers are `pid` and the `n` - 1
        after it."""
        for i, e in enumerate(self._out):
            if e and ((e | _DONE) - pid) % IDS >= n:
                self._out[i] = 0

    def save(self) -> None:
        """Write what is not on flash yet. OSError."""
        buf = self._buf
        buf[0] = _FORMAT
        put(buf, 1, self.acked)
        end = self._fill(_HEAD, self._out)
        buf[5] = (end - _HEAD) >> 1
        end = self._fill(end, self.ids)
        self._number(6, ((end - _HEAD) >> 1) - buf[5])
        n = crc(START, buf, end)
        if n != self._saved:
            put(buf, end, n)
            self._write(end + 4)
            self._saved = n

    def _fill(self, at, numbers):
        """Write what is not 0 of these at `at`. Returns the position after them."""
        i = 0
        while i < _len(numbers):  # a `for` would put the frame on the heap
            if numbers[i]:
                self._number(at, numbers[i])
                at += 2
            i += 1
        return at

    def _number(self, at, n):
        self._buf[at] = n >> 8
        self._buf[at + 1] = n & 255

    def _write(self, n):
        self._saved = -1
        try:
            if self._file is None:
                self._file = self._open()
            self._file.seek(0)
            write(self._file, self._buf, 0, n)
            sync(self._file)
        except OSError:
            # What failed leaves a file in which littlefs says of any sync that it is done.
            self.close()
            raise

    def _open(self):
        try:
            return access(self._path, "r+b")
        except OSError:
            return access(self._path, "w+b")

    def close(self) -> None:
        """Close the file."""
        f = self._file
        self._file = None
        if f is not None:
            close(f)
