"""How does a message leave that is larger than the ring?

Its payload stays where the application has it, and goes out in pieces between two spans of the
ring. The client loads this with the first one; a sketch without pays nothing.
"""

from .port import const
from .session import PUBACK, Session
from .wire import number, put_length

_PIECE = const(512)  # bytes handed to the network at once: a board blocks when it gets more
_BURST = const(8)  # pieces in one go, so that a poll does other things too

TYPE_CHECKING = False
if TYPE_CHECKING:  # there is no typing on a board
    from typing import Any

# A builtin is found after a miss in the module; a module global is found at once.
_min = min


class Pieces:
    """One such message at a time, for a `session`."""

    def __init__(self, session: Session, slot: int) -> None:
        self._session = session
        self._slot = slot  # of the packet identifier, in the session's `ids`
        self._head: Any = None  # the packet up to its payload, bytearray; None: there is none
        self._data: Any = None  # the payload, or what was read of it last, memoryview
        self._source: Any = None  # the file that it comes from
        self._scratch: memoryview | None = None  # what is read of a file, claimed with the first
        self._size = 0  # of the payload in bytes
        self._at = -1  # bytes of it that were handed over; -1: not even the header
        self._tried = False  # on an earlier connection, so that DUP is due
        self._burst = 0

    @property
    def waits(self) -> bool:
        """Whether a message is not yet written out, or at QoS 1 not acknowledged."""
        return self._head is not None

    @property
    def begun(self) -> bool:
        """Whether a part of the packet has left, so that nothing else may before the rest."""
        return self._at >= 0

    def publish(self, head: int, topic: bytes, source) -> "int | None":
        """Accept a PUBLISH whose first byte is `head`: see `Client.publish_from`."""
        s = self._session
        if self._head is not None or s.end or s.tail:
            return None
        self._source = None
        if hasattr(source, "readinto"):
            self._size = source.seek(0, 2)
            self._source = source
            if self._scratch is None:
                self._scratch = memoryview(bytearray(_PIECE))
            self._data = self._scratch
        else:
            self._data = memoryview(source.encode() if isinstance(source, str) else source)
            self._size = len(self._data)
        n = len(topic) + self._size + (4 if head & 6 else 2)
        number("packet: bytes after its header", n, 0, 268435455)
        pid = s.next_id() if head & 6 else 0
        packet = bytearray(5)
        packet[0] = head
        packet = packet[: put_length(packet, 1, n)]
        packet.extend(bytes((len(topic) >> 8, len(topic) & 255)) + topic)
        if pid:
            packet.extend(bytes((pid >> 8, pid & 255)))
        self._head = packet
        s.ids[self._slot] = pid
        self._tried = False
        self._rewind()
        return pid

    def _rewind(self):
        self._at = -1
        self._session.feed = self
        self._session.plain = False

    def next(self) -> bool:
        """Begin the next span: the header, or a piece of the payload. False for now, or when the
        source has failed, which `Session.failed` then tells."""
        s = self._session
        if self._at < 0:
            return self._begin()
        if self._at == self._size:
            s.feed = None
            if not s.ids[self._slot]:
                self._head = self._source = self._data = None
            self._at = -1
            return s.next()
        self._burst += 1
        if self._burst > _BURST:
            self._burst = 0
            return False
        s.left = _min(_PIECE, self._size - self._at)
        s.out = self._at
        if self._source is not None and not self._fill():
            return False
        s.src = self._data
        self._at += s.left
        return True

    def _begin(self):
        s = self._session
        if self._tried and s.ids[self._slot]:
            s.stats.resent += 1
            if s.same:
                self._head[0] |= 8  # DUP
            else:
                s.stats.renewed += 1
                self._head[0] &= 0xF7
        self._tried = True
        self._at = 0
        s.src = self._head
        s.out = 0
        s.left = len(self._head)
        return True

    def _fill(self):
        """Read the next piece of a file."""
        s = self._session
        s.out = 0
        n = self._read()
        if not n:
            s.failed = f"source: ended after {self._at} of {self._size} bytes"
            self._give_up()
            return False
        s.left = _min(s.left, n)
        return True

    def _read(self):
        try:
            if not self._at:
                self._source.seek(0)
            return self._source.readinto(self._data)
        except OSError:
            return 0

    def _give_up(self):
        s = self._session
        self._head = self._source = self._data = s.feed = None
        s.ids[self._slot] = s.left = 0
        self._at = -1

    def settle(self, wait: int) -> bool:
        """PUBACK for it, when `wait` is that constant. False when it was not waited for."""
        if wait != PUBACK or self._session.feed:
            return False
        self._session.ids[self._slot] = 0
        self._head = self._source = self._data = None
        return True

    def lost(self) -> None:
        """The connection is gone: what is not acknowledged goes again from its start."""
        if self._head is not None:
            self._rewind()
