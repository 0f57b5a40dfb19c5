"""Check properties that are larger than the buffer, as they pass. Loaded with the first of them.

They are skipped, but a broker that breaks a rule in them loses its connection, as with others.
"""

from ..port import const
from .walk import TABLE

_PUBLISH = const(16)  # see walk.TABLE
_LONG = const(3)
_VARIABLE = const(4)
_TEXT = const(5)
_PAIR = const(6)
_USER = const(0x26)
_SUBSCRIPTION = const(0x0B)
_ALIAS = const(0x23)

# The rules that properties break: see `walk`.
_UNKNOWN = const(41)
_TWICE = const(42)
_CUT = const(43)
_VALUE = const(44)
_NO_TEXT = const(45)
_BAD_ALIAS = const(46)

# What comes next.
_IDENTIFIER = const(0)
_HIGH = const(1)  # the first byte of a length,
_LOW = const(2)  # and the second
_NUMBER = const(3)  # a byte of a variable byte integer
_BYTES = const(4)  # the rest of a value


class Walk:
    """The properties of a message, which come in pieces."""

    def begin(self, size: int) -> None:
        """Begin with properties of `size` bytes."""
        self.left = size  # bytes that are still to come
        self.rule = 0  # that they break
        self._next = _IDENTIFIER
        self._seen = 0
        self._i = 0  # the property
        self._texts = 0  # those of it that are still to come
        self._size = 0  # bytes of its value that are still to come; of a number, its value
        self._more = 0  # bytes of a character that are still to come, and what the next may be
        self._least = self._most = 0

    def take(self, buf: bytearray, at: int, end: int) -> None:
        """Check the bytes from `at` to `end`, and set `rule` to the one that they break."""
        while at < end and not self.rule:
            if self._next == _BYTES:
                at = self._bytes(buf, at, end)
            else:
                self.left -= 1
                self._byte(buf[at])
                at += 1
            if not self.rule and (
                self._size + (1 if self._texts == 2 else 0) > self.left  # more must follow
                if self._next == _BYTES
                else self._next != _IDENTIFIER and not self.left
            ):
                self._broken(_CUT)

    def _broken(self, rule):
        self.rule = self._i << 9 | rule

    def _byte(self, c):
        """Take in a byte that is not of a value."""
        if self._next == _IDENTIFIER:
            self._i = c
            self._begin(c)
        elif self._next == _HIGH:
            self._size = c << 8
            self._next = _LOW
        elif self._next == _LOW:
            self._size |= c
            self._next = _BYTES
            if not self._size:
                self._ended()
        else:
            self._size |= c & 127
            self._texts += 1
            if c < 128:
                self._next = _IDENTIFIER
                if not self._size:
                    self._broken(_VALUE)
            elif self._texts == 4:
                self._broken(_CUT)

    def _begin(self, i):
        if i >= len(TABLE) or not TABLE[i] & _PUBLISH:
            self._broken(_UNKNOWN)
            return
        if i == _ALIAS:
            self._broken(_BAD_ALIAS)
        elif i != _USER and i != _SUBSCRIPTION:
            if self._seen >> i & 1:
                self._broken(_TWICE)
            self._seen |= 1 << i
        i = TABLE[i] & 7
        self._size = self._texts = 0
        if i < _VARIABLE:
            self._size = 4 if i == _LONG else i
            self._next = _BYTES
        elif i == _VARIABLE:
            self._next = _NUMBER
        else:
            self._texts = 2 if i == _PAIR else 1
            self._next = _HIGH

    def _bytes(self, buf, at, end):
        """Take in bytes of a value. Returns where they end."""
        n = self._size if self._size < end - at else end - at
        self._size -= n
        self.left -= n
        n += at
        if TABLE[self._i] & 7 == _TEXT or self._i == _USER:
            self._text(buf, at, n)
        if not self._size and not self.rule:
            self._ended()
        return n

    def _ended(self):
        """Handle the end of a value, or of one of two texts."""
        if self._more:
            self._broken(_NO_TEXT)
        self._texts -= 1
        self._next = _HIGH if self._texts > 0 else _IDENTIFIER

    def _text(self, buf, at, end):
        """Check bytes of a text (section 1.5.4)."""
        while at < end:
            c = buf[at]
            at += 1
            if not self._more:
                if 0 < c < 128:
                    continue
                if c < 0xC2 or c > 0xF4:
                    self._broken(_NO_TEXT)
                    return
                self._more = 1 if c < 0xE0 else 2 if c < 0xF0 else 3
                # The second byte shows whether the code point is allowed.
                self._least = 0xA0 if c == 0xE0 else 0x90 if c == 0xF0 else 0x80
                self._most = 0x9F if c == 0xED else 0x8F if c == 0xF4 else 0xBF
            elif self._least <= c <= self._most:
                self._more -= 1
                self._least = 0x80
                self._most = 0xBF
            else:
                self._broken(_NO_TEXT)
                return
