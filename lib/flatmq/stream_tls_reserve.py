"""Hold heap for TLS, on boards where Mbed TLS takes its memory from MicroPython's heap.

Mbed TLS allocates two buffers and 1.7 KB in small blocks for each connection, and 3 to 6 KB more
in small blocks during the handshake. What the application has taken or split meanwhile is missing
at the next connection.
"""

import gc
import sys

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_WORD = 8 if sys.maxsize >> 32 else 4
# Each takes as much of the heap as what Mbed TLS allocates there.
_IN = const(16725)
_OUT = const(4437)
# TLS asks for the socket first, which takes the first place that is large enough. That must not be
# in one of a buffer, nor the only one for 1,062 bytes. So small places lie below the buffers, and
# there is one more for 1,062 bytes than TLS needs. The last one is held at all times.
_LARGE = tuple([n // _WORD - 1 for n in (_IN, _OUT, 300, 300, 1062, 1062, 1062)])  # words
_PIECES = const(8)  # of the spare for the handshake,
_LEAST = const(24)  # and the least words of one, where there is no room for larger ones
_SLOTS = const(64)


class Reserve:
    """A spare of `n` bytes, and all that TLS keeps besides while there is no connection.

    MemoryError if there is no room for the buffers.
    """

    def __init__(self, n: int) -> None:
        self._spare = n // _WORD
        # Tuples: a bytearray is two blocks, and the small one might split the place of a buffer.
        self._kept: list[tuple[int, ...] | None] = [None] * _SLOTS
        above = _above()  # of the heap, all but its end
        for i in range(len(_LARGE) - 1, -1, -1):  # those of the buffers last, above the others
            self._kept[i] = (0,) * _LARGE[i]
        del above
        self.hold(False)

    def hold(self, online: bool, tls: "Any" = None) -> None:
        """Close `tls`, and claim what is missing: only the spare if there is a connection.

        What TLS releases is claimed with no call in between, whose frame might be in the place of
        a buffer. The buffers come first. For one that does not fit, smaller pieces are claimed: in
        its place may be no more than the error that ended the connection.
        """
        kept = self._kept
        large = len(_LARGE)
        left = self._spare
        n = left // _PIECES
        i = large - 1 if online else 0
        if tls:
            tls.close()
        gc.collect()
        while i < _SLOTS and n >= _LEAST:
            if kept[i] is None:
                if left <= 0:
                    break
                try:
                    kept[i] = (0,) * (_LARGE[i] if i < large else n)
                except MemoryError:
                    if i >= large:
                        n >>= 1
                        continue
                    left += _LARGE[i]
                    n = max(n, _LARGE[i] >> 1)  # what is left of its place comes first
            if i >= large:
                left -= len(kept[i] or ()) + 2
            i += 1

    def release(self) -> None:
        """Release everything: the handshake comes."""
        for i in range(_SLOTS):
            self._kept[i] = None
        gc.collect()


def _above() -> bytearray:
    """Return a buffer that leaves room for those of TLS at the end of the largest free block.

    What the application claims is below them then, and what is short-lived does not split them.
    """
    gc.collect()
    n = gc.mem_free()  # type: ignore[attr-defined, unused-ignore]
    while n > _IN + _OUT:
        try:
            bytearray(n)
            break
        except MemoryError:
            n -= 1024
    gc.collect()
    return bytearray(max(n - _IN - _OUT - 5120, 0))
