"""Messages whose properties break a rule. Loaded with the first of them, and kept.

Brokers pass on a Payload Format Indicator that is neither 0 nor 1, and a Response Topic that is no
topic name. One client that publishes these must not end the connections of others: the message is
delivered without such a property, and counted in `strays`. Other faults end the connection.
"""

from .. import is_name, is_utf8
from ..engine import HOLD
from ..port import const
from .carry import choose
from .walk import View, after, broken, is_value, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# Counters: see `stats`.
_STRAYS = const(3)

_PUBLISH = const(16)  # see walk.TABLE
_FORMAT = const(1)  # Payload Format Indicator
_RESPONSE = const(8)  # Response Topic
_ALIAS = const(0x23)
_ONCE = const(b"\1\2\3\x08\x09")  # what a message has once at most, besides an alias
_NAMES = const(8)  # see carry
_CHOSEN = const(9)
_find = View.find

# The rules that a property with an unknown value breaks, and those that a client cannot bear.
_BAD_FORMAT = const(1 << 9 | 44)
_BAD_RESPONSE = const(8 << 9 | 45)
_TWICE = const(42)
_NO_ALIAS = const(0x23 << 9 | 46)


def taken(c: "Client5", e: int, end: int, i: int, n: int) -> int:
    """Handle a message with such properties: see `carry.route`. They break the rule `-n`."""
    n = borne(c, e, end, n)
    if n < 0:
        return n
    c.message.at = n
    h = c.routes[i] is not False and choose(c, e, n)
    if h is False:
        h = c.routes[i]
    if h is None:
        h = c.on_message
    c.owners[_NAMES] = h
    c.routes[_CHOSEN] = h and _without
    return _CHOSEN


def borne(c: "Any", e: int, end: int, n: int) -> int:
    """Return where the properties of the message end, whose length is at `e`, if the client bears
    what is wrong with them; else the rule that they break as a negative number.

    The first one that they break is `-n`. `c` is the client.
    """
    c = c.message.properties  # another local would put the frame on the heap
    at = number(c.buf, e, end)
    end = e + 1 + (at & 3) + (at >> 2)
    at = e + 1 + (at & 3)
    n = -n
    while n:
        if n != _BAD_FORMAT and n != _BAD_RESPONSE:
            return -n
        e = after(c.buf, at, end)
        while is_value(c.buf, at, e):
            at = e
            e = after(c.buf, at, end)
        if c.buf[at] == _RESPONSE and not is_utf8(c.buf, at + 3, e):
            return -n
        at = e
        n = broken(c.buf, at, end, _PUBLISH)
    return -_repeated(c) or end


def _repeated(p):
    """Return the rule that properties break which were not checked in one go, else 0."""
    for i in _ONCE:
        if _find(p, i) and _find(p, i, p.end):
            return i << 9 | _TWICE
    return _NO_ALIAS if _find(p, _ALIAS) else 0


def _without(m):
    """Call the handler of a message, and count it once it is handled."""
    if m.client.owners[_NAMES](m) is HOLD:
        return HOLD
    m.client.counts[_STRAYS] += 1
    return None


def find(self: "Any", identifier: int, at: int = 0) -> bool:
    """Find a property of a message, unless its value is unknown: see `View.find`."""
    if not _find(self, identifier, at):
        return False
    if identifier == _FORMAT:
        return self.buf[self.at] < 2
    return identifier != _RESPONSE or is_name(self.buf, self.at + 2, self.end)


View.find = find  # type: ignore[method-assign]
