"""Receive a message larger than the buffer, and hand on its payload in pieces as it comes.

Loaded with the first such message, and kept.
"""

from ..core.route import HOLD, nearest
from ..load import load
from ..port import const
from ..topic import is_name
from .several import several

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..client import Client

_NO_NAME = const(18)
_QOS_3 = const(20)
_ID_0 = const(22)
_LENGTH = const(23)
_TOO_LARGE = const(32)
_LONG_NAME = const(33)


def begin(c: "Client", first: int, at: int, t: int, have: int, end: int) -> int:
    """Begin with a packet larger than the buffer.

    It is in the receive buffer at `at`, its body at `t`, and the bytes up to `have` have come.
    Returns where the payload begins, 0 if more of the header must come first, or the rule that
    the packet breaks as a negative number.
    """
    rx = c.rx
    if first & 0xF0 != 0x30:
        if c.five:
            return c.five.large(c, first, t, have, end)
        return -_TOO_LARGE if first == 0x90 else -_LENGTH
    e = t + 2
    if e > have:
        return 0
    e += rx[t] << 8 | rx[t + 1]
    n = e + 2 if first & 6 else e
    if n > have:
        return 0 if n - at <= len(rx) // 2 - 1 else -_LONG_NAME
    if not is_name(rx, t + 2, e):
        return -_NO_NAME
    if first & 6 == 6:
        return -_QOS_3
    if first & 6 and not (rx[e] or rx[e + 1]):
        return -_ID_0
    if not c.pieces:
        c.pieces = Pieces(c)
    if c.five:
        return c.five.begin(c, first, at, t, have, end, n)
    c.pieces.take(first, t, n, n, end)
    return n


class Pieces:
    """A large message for the handlers of a `client` that take pieces."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.new = True  # the message was not received before
        self.taken = False  # a handler takes it
        self.blind = False  # it is only skipped

    def take(self, first: int, t: int, e: int, n: int, end: int) -> None:
        """Begin with a message, whose header to be kept ends at `e`, and its payload begins at `n`."""
        c = self.client
        m = c.message
        m.first = first
        m.pid = t + 2 + (c.rx[t] << 8 | c.rx[t + 1])
        m.pid = c.rx[m.pid] << 8 | c.rx[m.pid + 1]
        m.offset = 0
        m.size = end - n
        self.blind = False
        # Nothing is read into the start of the buffer: there the header lasts until the last piece.
        m.t = 0
        while t < e:
            m.buf[m.t] = m.buf[t]
            m.t += 1
            t += 1
        m.t = 0
        if first & 4 and c.two is None:
            c.two = load("qos2")
        self.new = first & 6 != 4 or c.two.is_new(c, m.pid)

    def piece(self, at: int, end: int, again: int) -> "Any":
        """Handle the next bytes of the payload.

        `again` is how often this piece has raised. Returns HOLD to get it again.
        """
        c = self.client
        m = c.message
        m.at = at
        m.end = end
        last = m.offset + end - at == m.size
        if last and m.first & 6 and len(c.acks) > c.space:
            return HOLD
        if again and again == c.give_up:
            load("strays").give_up(c, m)
            self.new = False
        if self.new and self._call() is HOLD:
            return HOLD
        m.offset += end - at
        if last:
            m.offset = m.size = 0
            c.tagged = False
            self._done(m)
        return None

    def _call(self):
        c = self.client
        m = c.message
        self.taken = False  # a handler may have ended its subscription since the last piece
        if self.blind:
            return None
        if c.limit or nearest(c, 0, 0, 2 + (m.buf[0] << 8 | m.buf[1]), True) >= 0:
            self.taken = True
            return several(m, True)
        if c.on_message is not None and c.pieces_too:
            self.taken = True
            return c.on_message(m)
        return None

    def _done(self, m):
        """Acknowledge and count a message whose last piece has been handled."""
        c = self.client
        if m.first & 6:
            c.ack[0] = 0x40
            if m.first & 4:
                c.two.keep(c, m.pid)
                c.ack[0] = 0x50
            c.ack[2] = m.pid >> 8
            c.ack[3] = m.pid & 255
            c.acks.extend(c.ack)
        if m.first & 14 == 8:
            c.stats.dup0 += 1
        if self.new and self.taken:
            c.stats.received += 1
        elif self.new:
            c.stats.skipped += 1
