"""Hold heap for TLS, on boards where Mbed TLS takes its memory from MicroPython's heap.

Mbed TLS allocates two buffers and 1.7 KB in small blocks for each connection, and 3 to 6 KB more
in small blocks during the handshake. What the application has taken or split meanwhile is missing
at the next connection.
"""

import gc

from .port import const

# Each takes as much of the heap as what Mbed TLS allocates there.
_IN = const(16725)
_OUT = const(4437)
_SMALL = const(1062)
_PIECES = const(8)  # of the spare for the handshake


class Reserve:
    """A spare of `n` bytes, and all that TLS keeps besides while there is no connection.

    MemoryError if there is no room for the buffers.
    """

    def __init__(self, n: int) -> None:
        self._sizes = (n // _PIECES,) * _PIECES + (_SMALL, _SMALL, _OUT, _IN)
        self._kept: list[bytearray | None] = [None] * len(self._sizes)
        above = _above()  # of the heap, all but its end
        self._kept[-2] = bytearray(_OUT)
        self._kept[-1] = bytearray(_IN)
        del above
        self.hold(False)

    def hold(self, online: bool) -> None:
        """Claim what is missing: only the spare if there is a connection.

        The buffers come first: a small block in their place might stay there permanently. Without
        the spare, small blocks of TLS and of the client would be in it.
        """
        gc.collect()
        try:  # noqa: SIM105 (there is no contextlib on a board)
            self._claim(_PIECES if online else len(self._kept))
        except MemoryError:
            pass  # the next connection tries with what there is

    def _claim(self, i):
        while i:
            i -= 1
            if self._kept[i] is None:
                self._kept[i] = bytearray(self._sizes[i])

    def release(self) -> None:
        """Release everything: the handshake comes."""
        for i in range(len(self._kept)):
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
    return bytearray(max(n - _IN - _OUT - 1024, 0))
