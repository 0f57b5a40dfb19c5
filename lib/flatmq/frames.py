"""Encode and decode frames on a serial line that also carries text: see docs/serial.md.

Used at both ends. No I/O, no clock; nothing is allocated once the objects are made.
"""

from .port import const

PAYLOAD = 64  # most bytes of payload in a frame
HEAD = 5  # bytes of a head: kind, connection (2), seq, ack
SIZE = 2 * (HEAD + PAYLOAD + 2) + 2  # most bytes of a frame on the line
# The kinds of frames. A board sends capital letters, a bridge small ones, so that both ignore an
# echo of their own frames.
OPEN = const(79)  # O
DATA = const(68)  # D
ACK = const(65)  # A
ASK = const(81)  # Q
CLOSE = const(67)  # C
BEGIN = const(66)  # B
SMALL = const(32)  # added to a capital, makes it a small letter

_FIRST = const(0xFA)  # no byte of this value or above occurs in UTF-8 text
_LAST = const(0xFB)
_ESCAPE = const(0xFC)
_FLIP = const(0x40)


def crc(src: "bytes | bytearray | memoryview", at: int, end: int, value: int) -> int:
    """Return the CRC-16 of src[at:end], continued from `value`.

    Its polynomial is 0x1021, most significant bit first. For bytes followed by their own CRC
    it is 0.
    """
    while at < end:
        x = value >> 8 ^ src[at]
        x ^= x >> 4
        value = (value << 8 ^ x << 12 ^ x << 5 ^ x) & 0xFFFF
        at += 1
    return value


class Encoder:
    """Encode one frame at a time, from `head` and payload, into the first `n` bytes of `out`."""

    def __init__(self) -> None:
        self.out = bytearray(SIZE)
        self.n = 0
        self.head = bytearray(HEAD)
        self._check = bytearray(2)

    def frame(self, src: "bytes | bytearray | memoryview", off: int, n: int) -> None:
        """Encode `head` and the `n` bytes of `src` from `off` on; at most `PAYLOAD` bytes."""
        n += off
        value = crc(self.head, 0, HEAD, 0xFFFF)
        value = crc(src, off, n, value)
        self._check[0] = value >> 8
        self._check[1] = value & 255
        self.out[0] = _FIRST
        self.n = 1
        self._escape(self.head, 0, HEAD)
        self._escape(src, off, n)
        self._escape(self._check, 0, 2)
        self.out[self.n] = _LAST
        self.n += 1

    def _escape(self, src, at, end):
        out = self.out
        n = self.n
        while at < end:
            c = src[at]
            if c < 32 or c >= _FIRST:
                out[n] = _ESCAPE
                n += 1
                c ^= _FLIP
            out[n] = c
            n += 1
            at += 1
        self.n = n


class Decoder:
    """Find frames in received bytes, whatever is between them.

    When `take` has found a frame, its head is `buf[:HEAD]`, and `size` is the number of bytes of
    payload behind it; else `size` is -1. `bad` counts frames that were cut or damaged. Bytes that
    are not part of a frame are appended to `text`, unless that is None.
    """

    def __init__(self, text: "bytearray | None" = None) -> None:
        self.buf = bytearray(HEAD + PAYLOAD + 2)
        self.size = -1
        self.bad = 0
        self.text = text
        self._n = -1  # bytes of a frame so far; -1 outside of one
        self._flip = 0

    def take(self, data: "bytes | bytearray | memoryview", at: int, end: int) -> int:
        """Take in data[at:end], up to the end of a frame. Returns the position after that."""
        self.size = -1
        while at < end:
            c = data[at]
            at += 1
            if c < 32 or c >= _FIRST or self._n < 0:
                if self._special(c):
                    break
            elif self._n < HEAD + PAYLOAD + 2:
                self.buf[self._n] = c ^ self._flip
                self._n += 1
                self._flip = 0
            else:
                self._fail()
        return at

    def _special(self, c):
        """Take in a byte that is not plain data of a frame. Returns whether it completes one."""
        if c == _FIRST:
            if self._n >= 0:
                self._fail()
            self._n = self._flip = 0
        elif self._n < 0:
            if self.text is not None:
                self.text.append(c)
        elif c == _ESCAPE and not self._flip:
            self._flip = _FLIP
        else:
            return self._end(c)
        return False

    def _end(self, c):
        n = self._n
        if c == _LAST and n >= HEAD + 2 and not self._flip and not crc(self.buf, 0, n, 0xFFFF):
            self.size = n - HEAD - 2
            self._n = -1
            return True
        self._fail()
        if c < 32 and self.text is not None:  # a line of text interrupted the frame
            self.text.append(c)
        return False

    def _fail(self):
        self.bad += 1
        self._n = -1
