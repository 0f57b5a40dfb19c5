"""Acknowledgements of MQTT 5 that have a reason code, and all of QoS 2.

Loaded with the first of them, and kept. `engine` settles a PUBACK without a reason code.
"""

from ..engine import end_of
from ..port import const, drop, load
from ..queue import find, release

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# Counters: see `stats`.
_STRAYS = const(3)
_DOWNGRADED = const(9)

_ANSWER = const(32)  # see walk.TABLE
# The rules that a packet breaks: see `packets`.
_ID_0 = const(22)
_LENGTH = const(23)
_CODE = const(47)


def other(c: "Client5", first: int, t: int, end: int) -> "Any":
    """Handle one. Returns what `packets.other` does."""
    if end - t < 2:
        return _LENGTH
    if end - t > 3:
        end = c.five.properties(c, t + 3, end, _ANSWER)
        if end:
            return end
        end = t + 4
    return acknowledge(c, first, t, c.rx[t + 2] if end - t > 2 else 0)


def acknowledge(c: "Client5", first: int, t: int, code: int) -> "Any":
    """Handle an acknowledgement whose packet identifier is at `t` in the buffer."""
    if not (c.rx[t] or c.rx[t + 1]):
        return _ID_0
    if code > 127:
        if first != 0x62:  # else the broker has forgotten the identifier: there is nothing to keep
            code = load("reasons", "v5.").refused(c, first, t)
            drop("reasons", "strays")
            return code
    elif code and (code != 0x10 or first > 0x50):
        return _CODE | code << 9
    if first == 0x40:
        return _done(c, c.rx[t] << 8 | c.rx[t + 1])
    if c.two is None:
        c.two = load("qos2")
    code = c.two.other(c, first, t, t + 2)
    if first == 0x70:
        c.five.settle(c, c.rx[t] << 8 | c.rx[t + 1])
    return code


def _done(c, pid):
    """Handle a PUBACK that reports success."""
    p = find(c, pid)
    if p < 0 or end_of(c.q, p) > c.sent or c.q[p] & 6 == 6:
        if not (c.large and c.large.settle(pid)):
            c.counts[_STRAYS] += 1
            c.five.settle(c, pid)
        return None
    c.counts[_DOWNGRADED] += c.q[p] >> 2 & 1
    release(c, p)
    return True
