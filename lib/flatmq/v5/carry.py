"""Properties of incoming messages: check them, and find the handlers that their identifiers name.

Identifiers are used if the broker supports them. A message with identifiers goes only to the
handlers of those: if a broker sends a copy for each filter, each handler is called once.

A broker that keeps the session may send messages with identifiers from before a reboot, when they
belonged to other subscriptions. So an identifier counts only if the topic name matches its
subscription. Loaded with the first message that has properties, and kept.
"""

# An imported builtin is found without a miss in the module.
from builtins import len

from .. import message
from ..port import const, load
from . import walk
from .walk import number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..message import Message
    from . import Client5

_PUBLISH = const(16)  # see walk.TABLE
_IDENTIFIER = const(0x0B)
_ALIAS = const(0x23)
_NO_ALIAS = const(0x23 << 9 | 46)
_NAMES = const(8)  # see route
walk.held = True
faulty: "Any" = None  # faulty.taken, once it has been needed
_CHOSEN = const(9)  # the place in `routes` of the handler that identifiers name


def route(c: "Client5", e: int, end: int, i: int) -> int:
    """Handle the properties of the message in `message`, whose length is at `e`.

    `i` is the place in `routes` of the handler for its topic name. Returns the place of the one
    that gets it, and sets `at` where the payload begins; or returns the rule that the properties
    break as a negative number. Those that are the same as in the last message with this topic
    name are not checked again.
    """
    if i < _NAMES and c.blocks:
        b = c.blocks[i & c.learned - 1]
        n = e + len(b)
        if c.rx.find(b, e, n) == e and n <= end and not c.limit:
            c.message.at = n
            b = c.owners[i & c.learned - 1]
            if b is False:
                return i
            c.routes[_CHOSEN] = b
            return _CHOSEN
    return new(c, e, end, i)


def new(c, e, end, i):
    """Handle properties that differ from those of the last message with this topic name."""
    global faulty
    if c.owners is None:
        begin(c)
    n = c.message.properties.read(e, end, _PUBLISH)
    if n > 0 and c.rx.find(b"\x23", e, n) >= 0 and c.message.properties.find(_ALIAS):
        n = -_NO_ALIAS
    if n < 0:
        if faulty is None:
            faulty = load("faulty", "v5.").taken
        return faulty(c, e, end, i, n)
    c.message.at = n
    end = c.routes[i] is not False and choose(c, e, n)
    if i < _NAMES and c.learned and n - e < 128:
        c.owners[i & c.learned - 1] = end
        _remember(c, i & c.learned - 1, e, n)
    if end is False:
        return i
    c.routes[_CHOSEN] = end
    return _CHOSEN


def begin(c: "Client5") -> None:
    """Claim memory for the properties of messages."""
    c.message.properties = walk.View(c.rx, c.message)
    c.routes.append(None)
    c.owners = [None] * 9


def _remember(c, i, e, n):
    """Remember checked properties, to be compared with those of the next message."""
    if not c.blocks:
        c.blocks = [bytearray(message.NEVER) for _ in range(c.learned)]
    i = c.blocks[i]
    i[0] = 0  # matches nothing until it is complete: memory may be short
    n -= e
    while len(i) < n:
        i.extend(message.NEVER)
    i[n:] = b""  # keeps its memory
    while n:
        n -= 1
        i[n] = c.rx[e + n]


def choose(c: "Client5", e: int, n: int) -> "Any":
    """Return the handler that the identifiers of the message name, or None if it is on_message.

    Returns False if they do not decide. Its properties are from `e` to `n` in the buffer.
    """
    m = c.message
    if c.rx.find(b"\x0b", e, n) < 0 or c.bulk is not None or not _decides(c, m.properties):
        return False
    n = m.t + 2 + (m.buf[m.t] << 8 | m.buf[m.t + 1])
    e = -1 if c.limit else search(c, 0, n)
    if c.limit or (e >= 0 and search(c, e + 1, n) >= 0):
        if message.several is None:
            message.several = load("several").several
        return tagged
    return c.subscriptions[e].handler if e >= 0 else None


def tagged(m: "Message") -> "object | None":
    """Call the handlers that the identifiers of a message name."""
    return message.several(m, False, search)


def search(c: "Any", index: int, e: int, chunks: bool = False) -> int:
    """Return the first subscription, from `index` on, that an identifier names: see `message`."""
    while True:
        index = message.search(c, index, e, chunks)
        if index < 0 or _has(c.message.properties, c.subscriptions[index].identifier):
            return index
        index += 1


def _has(p, identifier):
    """Return whether the properties of a message have this subscription identifier."""
    at = 0
    while p.find(_IDENTIFIER, at):
        if number(p.buf, p.at, p.end) >> 2 == identifier:
            return True
        at = p.end
    return False


def _decides(c, p):
    """Return whether the identifiers of the message decide who gets it.

    They do if one of them belongs to a subscription that matches, or all belong to
    subscriptions that have ended.
    """
    ended = False
    at = 0
    while p.find(_IDENTIFIER, at):
        at = _owner(c, number(p.buf, p.at, p.end) >> 2)
        if at is not None:
            return at
        ended = True
        at = p.end
    return ended


def _owner(c, identifier):
    """Return whether the subscription with this identifier matches; None if it has ended.

    An identifier never assigned, or one that does not match, is from before a reboot.
    """
    m = c.message
    i = 0
    while i < len(c.subscriptions):
        s = c.subscriptions[i]
        if s.identifier == identifier:
            i = m.t + 2 + (m.buf[m.t] << 8 | m.buf[m.t + 1])
            return s.match(m.buf, m.t + 2, i)
        i += 1
    return False if identifier > c.numbered else None
