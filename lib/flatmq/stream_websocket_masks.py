"""Mask frames where there is no native module `websocket`: on CPython, and without a network."""

from array import array

from .port import MICROPYTHON, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_SHORT = const(125)  # see stream_websocket
_PIECE = const(256)


class websocket:
    """A reader of masked frames from a `ring`, each of which is there as a whole."""

    def __init__(self, ring: "Any") -> None:
        self._ring = ring
        self._head = array("H", bytes(8))
        self._words = array("H", bytes(_PIECE))

    def readinto(self, into: memoryview, n: int) -> None:
        """Read the payload of `n` bytes, and take the mask of its frame off."""
        ring = self._ring
        at = 2 if n > _SHORT else 1  # words before the mask
        ring.readinto(self._head, 2 * at + 4)
        ring.readinto(self._words, n)
        _unmask(self._words, n, self._head, at)
        ring.write(self._words, 0, n)
        ring.readinto(into, n)


def _unmask(words, n, b, at):
    """Take the mask, which is at `at` in the header `b`, off `n` bytes, or some more."""
    a = b[at]
    b = b[at + 1]
    at = 0
    while at << 1 < n:
        words[at] ^= a
        words[at + 1] ^= b
        words[at + 2] ^= a
        words[at + 3] ^= b
        at += 4


if not MICROPYTHON:

    class RingIO:
        """Bytes that are read in the order in which they were written."""

        def __init__(self, size: int) -> None:
            self._data = bytearray()

        def write(self, buf: "bytearray | memoryview | array[int]", off: int, n: int) -> None:
            """Write `n` bytes of `buf` from `off` on."""
            self._data += memoryview(buf).cast("B")[off : off + n]

        def readinto(self, buf: "bytearray | memoryview | array[int]", n: int = 0) -> None:
            """Read `n` bytes, or all if it is 0."""
            n = n or len(self._data)
            memoryview(buf).cast("B")[:n] = self._data[:n]
            del self._data[:n]
