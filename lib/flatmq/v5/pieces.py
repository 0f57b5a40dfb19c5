"""Receive MQTT 5 packets that are larger than the buffer. Loaded with the first such packet.

A message whose properties are larger than the buffer is acknowledged and counted in `skipped`, but
not delivered.
"""

from ..core.route import HOLD
from ..load import load
from ..port import const
from .carry import choose
from .walk import checked, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

_PUBLISH = const(16)  # see walk.TABLE
_LENGTH = const(23)
_TOO_LARGE = const(32)
_LONG_NAME = const(33)
_PROPERTIES = const(40)
_NO_ALIAS = const(0x23 << 9 | 46)
_ANSWERS = b"\x40\x50\x62\x70"  # the first byte of PUBACK, PUBREC, PUBREL and PUBCOMP


def begin(c: "Client5", first: int, at: int, t: int, have: int, end: int, n: int) -> int:
    """Begin with a message whose properties begin at `n`: see `rare.pieces.begin`."""
    most = len(c.rx) // 2 - 1
    if n + 4 - at > most:
        return -_LONG_NAME
    size = number(c.rx, n, have)
    if size < 0:
        return -_PROPERTIES if n + 4 <= have else 0
    e = n + 1 + (size & 3)
    size >>= 2
    if e + size > end:
        return -_PROPERTIES
    if e + size - at > most:  # even if all have come: there is no room to keep them
        c.pieces.take(first, t, e, e, end)
        c.pieces.blind = True
        return e
    e += size
    if e > have:
        return 0
    n = checked(c.rx, n, end, _PUBLISH)
    m = c.message
    c.pieces.take(first, t, e, e, end)
    m.at = m.end = e
    if n > 0 and m.properties.find(0x23):
        n = -_NO_ALIAS
    if n > 0:
        c.tagged = choose(c, 0, m.properties.stop) is not False
        return e
    if c.refuse is None or not c.refuse(m, -n):
        m.size = 0
        return n
    c.pieces.blind = True
    return e


def other(c: "Client5", first: int, t: int, have: int, end: int) -> "Any":
    """Begin with a packet that is not PUBLISH.

    What follows the reason code of an acknowledgement is skipped.
    """
    if first not in _ANSWERS:
        return -_TOO_LARGE if first in b"\x20\x90\xb0\xe0\xf0" else -_LENGTH
    if t + 3 > have:
        return 0
    if first & 0x30 and first != 0x70 and len(c.acks) > c.space:
        return HOLD
    what = c.five.acknowledge(c, first, t, c.rx[t + 2])
    if what is not None:
        return what if what is HOLD else -what
    pieces = load("pieces")
    if not c.pieces:
        c.pieces = pieces.Pieces(c)
    # Like a message at QoS 0 that nobody gets.
    c.message.first = 0x30
    c.message.offset = 0
    c.message.size = end - t - 3
    c.pieces.blind = True
    c.pieces.new = False
    return t + 3
