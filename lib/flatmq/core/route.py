"""Find the handler of a received message by its topic name, and remember it.

The handlers of the last topic names are remembered. The search starts at the last name found, so
names that repeat in the same order are found at once.
"""

from ..load import load
from ..port import const
from ..topic import is_name

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..client import Client

_NAMES = const(8)  # remembered topic names; a power of two
_LONGEST = const(48)  # bytes of the longest one, with its length in front
NEVER = b"\0\0\0"  # no PUBLISH begins like this: a topic name is never empty

# What a handler returns to be called with the same message again at the next poll.
HOLD = object()

_several: "Any" = None  # once it is loaded


def nearest(c: "Client", i: int, t: int, e: int, chunks: bool = False) -> int:
    """Return the first subscription, from `i` on, that matches the topic name; -1 if none does.

    The length of the name is at `t` in the receive buffer, and it ends at `e`. With `chunks`, only
    subscriptions that take messages in pieces are looked at. With `bulk`, all messages are left
    to `on_message`.
    """
    if c.bulk is not None:
        return -1
    while i < len(c.subscriptions):
        s = c.subscriptions[i]
        if s.handler is not None and (s.chunks or not chunks) and s.fits(c.rx, t + 2, e):
            return i
        i += 1
    return -1


def route(c: "Client", t: int, e: int) -> int:
    """Find the handler for the topic name whose length is at `t`, and remember it.

    Returns its place in `routes`; -1 if the name is not valid.
    """
    global _several
    if not is_name(c.rx, t + 2, e):
        return -1
    i = nearest(c, 0, t, e)
    found = None
    if i >= 0:
        found = c.subscriptions[i].handler
    if c.limit or (i >= 0 and nearest(c, i + 1, t, e) >= 0):
        if _several is None:
            _several = load("several").several
        found = _several
    i = c.newest
    c.routes[_NAMES] = found
    if e - t > _LONGEST or not c.learned:
        return _NAMES
    c.newest = (i + 1) % c.learned
    if c.blocks:  # the properties that it was last seen with
        c.blocks[i][0:] = NEVER
    c.names[i][0:] = b""  # keeps its memory
    while t < e:
        c.names[i].append(c.rx[t])
        t += 1
    while i < _NAMES:  # with few names each has several places, so the next one is always near
        c.routes[i] = found
        i += c.learned
    return (c.newest or c.learned) - 1
