"""Save the state of QoS 2 messages in flight, which must survive a reboot.

The journal is a file of a few bytes, rewritten in place. littlefs stores a file of up to 128 bytes
(4 times the larger of its read size and prog size) inside the folder, where a rewrite costs a
fortieth of an erase.
"""

from .flash import START, access, close, crc, get, patiently, put, reopen, sync, write
from .port import const

# Packet identifiers of records. Lower ones are for messages that do not go through the spool.
FIRST_ID = const(33280)
IDS = const(32256)
_ID = const(0x7FFF)  # the bits that are stored; the bit above is set in all of them
_DONE = const(0x8000)  # that bit in the file: set after PUBCOMP, clear after PUBREC
_HEAD = const(8)
_FORMAT = const(0x4A)

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .rare.handover import Handover

# Found without the miss in the module that a builtin costs.
_len = len


class Journal:
    """The journal at `path`.

    It has up to `outgoing` records past PUBREC, and the packet identifiers of messages received
    but not released (section 4.3.3).

    `acked`: all records before this number are acknowledged. `received`: the identifiers found in
    the file; `watch` replaces it with the list of a client. `changed`: the file is out of date.

    The methods that write raise OSError if the flash fails; the next call tries again. Data that
    is on flash already is not written again.
    """

    def __init__(self, path: str, outgoing: int) -> None:
        self._path = path
        self._out = [0] * outgoing
        self._past = [0] * outgoing
        self.received: list[int] = []
        self.acked = 0
        self.changed = False
        self._saved = -1  # the checksum of the data on flash
        self._file: Any = None
        try:  # noqa: SIM105 (there is no contextlib on a board)
            self._restore(patiently(self._load))
        except OSError:
            pass

    def _load(self):
        self.close()
        self._file = access(self._path, "r+b")
        return bytearray(self._file.read())

    def _restore(self, buf):
        if _len(buf) < _HEAD + 4 or buf[0] != _FORMAT:
            return
        n = buf[5]
        end = _HEAD + 2 * (n + (buf[6] << 8 | buf[7]))
        if end + 4 > _len(buf) or crc(START, buf, end) != get(buf, end):
            return
        self.acked = get(buf, 1)
        found = [buf[i] << 8 | buf[i + 1] for i in range(_HEAD, end, 2)]
        self._out = found[:n] + self._out[n:]
        self.received = found[n:]
        self._saved = get(buf, end)

    def watch(self, received: "list[int]") -> None:
        """Use this list of incoming messages not yet released; 0 is a free place."""
        self.received = received
        self._kept = list(received)  # as on flash
        self._buf = bytearray(_HEAD + 2 * (_len(self._out) + _len(received)) + 4)

    def note(self, client: "Handover") -> None:
        """Save `received`, and which of the records in the client are past PUBREC. OSError."""
        i = client.released(self._past)
        while i:  # a `for` would put the frame on the heap
            i -= 1
            if self._past[i] >= FIRST_ID and not self._has(self._past[i]):
                self._out[self._out.index(0)] = self._past[i] & _ID
                self.changed = True
        if self.changed or self.received != self._kept:
            self.save()

    def forget(self) -> None:
        """Forget which records are past PUBREC: the broker has forgotten the session."""
        for i, e in enumerate(self._out):
            if e < _DONE:
                self._out[i] = 0
        self.changed = True

    def _has(self, pid):
        return (pid & _ID) in self._out or (pid | _DONE) in self._out

    def is_received(self, pid: int) -> bool:
        """Return whether PUBREC has come for a record but PUBCOMP has not."""
        return (pid & _ID) in self._out

    def is_done(self, pid: int) -> bool:
        """Return whether PUBCOMP has come for a record that is not before `acked`."""
        return (pid | _DONE) in self._out

    def settle(self, client: "Handover", pid: int, n: int) -> None:
        """Mark records past PUBREC as done if the client does not await them any more.

        It has been handed those with the `n` identifiers from `pid` on.
        """
        if not any(self._out):
            return
        i = _len(self._out)
        while i:
            i -= 1
            if (
                0 < self._out[i] < _DONE
                and ((self._out[i] | _DONE) - pid) % IDS < n
                and not client.awaits(self._out[i] | _DONE)
            ):
                self._out[i] |= _DONE
                self.changed = True

    def remove(self, pid: int) -> None:
        """Forget a record: it and all before it are acknowledged."""
        if self._has(pid):
            i = (pid & _ID) if (pid & _ID) in self._out else (pid | _DONE)
            self._out[self._out.index(i)] = 0

    def retain(self, pid: int, n: int) -> None:
        """Forget all records except those with the `n` identifiers from `pid` on."""
        for i, e in enumerate(self._out):
            if e and ((e | _DONE) - pid) % IDS >= n:
                self._out[i] = 0

    def save(self) -> None:
        """Write the journal unless it is on flash already. OSError."""
        if _len(self.received) > _len(self._kept):
            self._grow()
        buf = self._buf
        buf[0] = _FORMAT
        put(buf, 1, self.acked)
        end = self._fill(_HEAD, self._out)
        buf[5] = (end - _HEAD) >> 1
        end = self._fill(end, self.received)
        self._number(6, ((end - _HEAD) >> 1) - buf[5])
        n = crc(START, buf, end)
        if n != self._saved:
            put(buf, end, n)
            self._write(end + 4)
            self._saved = n
        self.changed = False
        n = 0
        while n < _len(self._kept):
            self._kept[n] = self.received[n]
            n += 1

    def _grow(self):
        """Follow the client, which has received more than was foreseen."""
        n = _len(self.received) - _len(self._kept)
        self._buf.extend(bytes(2 * n))
        self._kept.extend([0] * n)

    def _fill(self, at, numbers):
        """Write all numbers but 0 from `at` on. Returns the position after them."""
        i = 0 if any(numbers) else _len(numbers)
        while i < _len(numbers):
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
                self._file = reopen(self._path)
            self._file.seek(0)
            write(self._file, self._buf, 0, n)
            sync(self._file)
        except OSError:
            # After a failure littlefs reports success for every later sync of this file.
            self.changed = True
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        f = self._file
        self._file = None
        if f is not None:
            close(f)
