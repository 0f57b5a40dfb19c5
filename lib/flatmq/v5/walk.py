"""Check and find the properties of incoming packets in the buffer (MQTT 5 section 2.2.2)."""

# An imported builtin is found without a miss in the module.
from builtins import len

from .. import is_name, is_utf8
from ..port import MICROPYTHON, Shown, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..message import Message
    from . import viewing

held = False  # whether another module keeps this one: see `port.drop`

# The types of values: the three lowest bits of TABLE.
_FLAG = const(1)  # a byte that is 0 or 1
_LONG = const(3)  # four bytes; 2 is two bytes
_VARIABLE = const(4)  # one to four bytes, like Remaining Length
_TEXT = const(5)  # UTF-8 with its length in front
_PAIR = const(6)  # two texts; 7 is bytes with their length in front

# For each identifier, the type of its value, and a bit for each kind of packet from a server that
# may contain it: 8 CONNACK, 16 PUBLISH, 32 acknowledgements, SUBACK and UNSUBACK, 64 DISCONNECT,
# 128 AUTH.
TABLE = (
    b"\0\x11\x13\x15\0\0\0\0\x15\x17\0\x14\0\0\0\0"
    b"\0\x0b\x0d\x0a\0\x8d\x8f\1\3\1\x0d\0\x4d\0\0\xed"
    b"\0\x0a\x0a\x12\x09\x09\xfe\x0b\x09\x09\x09"
)
_USER = const(0x26)  # User Property
_RESPONSE = const(0x08)  # Response Topic
_SUBSCRIPTION = const(0x0B)  # Subscription Identifier
# Receive Maximum, Topic Alias and Maximum Packet Size must not be 0. Nor must Subscription
# Identifier, the only variable byte integer.
_NOT_ZERO = const(b"\x21\x23\x27")
_ALIAS = const(0x23)

# The rules that properties break, with their texts in `reasons`.
_LENGTH = const(40)
_UNKNOWN = const(41)
_TWICE = const(42)
_CUT = const(43)
_VALUE = const(44)
_NO_TEXT = const(45)
_BAD_ALIAS = const(46)


def number(buf: "bytes | bytearray", at: int, end: int) -> int:
    """Read a variable byte integer that starts at `at` (section 1.5.5).

    Returns `value << 2 | bytes - 1`; -1 if it does not end before `end`, or has a fifth byte.
    """
    value = 0
    for i in range(4):
        if at + i >= end:
            return -1
        value |= (buf[at + i] & 127) << 7 * i
        if buf[at + i] < 128:
            return value << 2 | i
    return -1


def after(buf: "bytes | bytearray", at: int, end: int) -> int:
    """Return the position after the property whose identifier is at `at`.

    It is past `end` if its value is not valid or is cut short.
    """
    kind = TABLE[buf[at]] & 7
    at += 1
    if kind < _VARIABLE:
        return at + (4 if kind == _LONG else kind)
    if kind == _VARIABLE:
        kind = number(buf, at, end)
        return end + 1 if kind < 0 else at + 1 + (kind & 3)
    while True:
        if at + 2 > end:
            return end + 1
        at += 2 + (buf[at] << 8 | buf[at + 1])
        if at > end:
            return at
        if kind != _PAIR:
            return at
        kind = _TEXT


def is_value(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the property from `at` to `end` has a value that is allowed."""
    i = buf[at]
    at += 1
    kind = TABLE[i] & 7
    if kind == _FLAG:
        return buf[at] < 2
    if kind == _TEXT:
        return (is_name if i == _RESPONSE else is_utf8)(buf, at + 2, end)
    if kind == _PAIR:
        kind = at + 2 + (buf[at] << 8 | buf[at + 1])
        return is_utf8(buf, at + 2, kind) and is_utf8(buf, kind + 2, end)
    if kind == _VARIABLE:
        return number(buf, at, end) > 3  # not 0, even in an encoding with needless bytes
    if i in _NOT_ZERO:
        while at < end:
            if buf[at]:
                return True
            at += 1
        return False
    return True


def broken(buf: "bytes | bytearray", at: int, end: int, packet: int) -> int:
    """Return the rule that the properties from `at` to `end` break, 0 if they break none.

    `packet` is the bit in TABLE for the packet that contains them. The identifier of the property
    is above the rule's nine bits.
    """
    seen = 0
    while at < end:
        i = buf[at]
        if i >= len(TABLE) or not TABLE[i] & packet:
            return i << 9 | _UNKNOWN
        # The identifiers that one packet may contain leave different remainders.
        if i != _USER and i != _SUBSCRIPTION:
            if seen >> i % 29 & 1:
                return i << 9 | _TWICE
            seen |= 1 << i % 29
        n = after(buf, at, end)
        if n > end:
            return i << 9 | _CUT
        if not is_value(buf, at, n):
            if i == _ALIAS:
                return i << 9 | _BAD_ALIAS
            return i << 9 | (_NO_TEXT if TABLE[i] & 7 >= _TEXT else _VALUE)
        at = n
    return 0


class View(Shown):
    """The properties of a message or packet, read from the receive buffer.

    Valid as long as the message is. `message` is None for packets other than PUBLISH.

    An identifier is the number of a property in section 2.2.2.2, such as 3 for Content Type.
    """

    if TYPE_CHECKING:  # the methods that `viewing` adds
        is_value = viewing.is_value
        user = viewing.user
        is_user = viewing.is_user

    def __init__(self, buf: bytearray, message: "Message | None" = None) -> None:
        self.buf = buf
        self.message = message
        self.start = self.stop = 0  # the limits of the properties
        self.at = self.end = 0  # the limits of the value found last

    def read(self, at: int, end: int, packet: int) -> int:
        """Check the properties whose length is at `at` in a packet that ends at `end`.

        `packet` is its bit in TABLE. Returns where the properties end; if they break a rule, that
        rule as a negative number.
        """
        n = number(self.buf, at, end)
        if n < 0:
            return -_LENGTH
        self.start = at + 1 + (n & 3)
        self.stop = n = self.start + (n >> 2)
        if n > end:
            return -_LENGTH
        return -broken(self.buf, self.start, n, packet) or n

    def seek(self) -> None:
        """Set `start` and `stop` to the properties of the message.

        They follow its topic name, or its packet identifier.
        """
        m: Any = self.message
        at = m.t + 2 + (m.buf[m.t] << 8 | m.buf[m.t + 1])
        if m.first & 6:
            at += 2
        self.start = self.stop = 0
        if m.client.five:
            n = number(m.buf, at, len(m.buf))
            self.start = at + 1 + (n & 3)
            self.stop = self.start + (n >> 2)

    def find(self, identifier: int, at: int = 0) -> bool:
        """Find a property, from position `at` on if that is not 0.

        Returns whether it is there; `self.at` and `self.end` are then the limits of its
        value in `buf`. Allocates nothing.
        """
        if not at and self.message is not None:
            self.seek()
        self.at = at or self.start
        while self.at < self.stop:
            self.end = after(self.buf, self.at, self.stop)
            self.at += 1
            if self.buf[self.at - 1] == identifier:
                return True
            self.at = self.end
        return False

    def get(self, identifier: int, default: "Any" = None) -> "Any":
        """Return the value of a property; `default` if it is missing.

        It is an int, or bytes, which are allocated. Use `user` for User Property, and
        `is_value` to compare bytes.
        """
        if not self.find(identifier):
            return default
        kind = TABLE[identifier] & 7
        if kind >= _TEXT:
            return bytes(self.buf[self.at + 2 : self.end])
        if kind == _VARIABLE:
            return number(self.buf, self.at, self.end) >> 2
        value = 0
        for i in range(self.at, self.end):
            value = value << 8 | self.buf[i]
        return value

    def __getattr__(self, name: str) -> "Any":
        return load("viewing", "v5.").get(self, name)


if not MICROPYTHON:
    load("viewing", "v5.").install(View)
    del View.__getattr__
