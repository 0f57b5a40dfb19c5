"""Receive a message larger than the buffer, and hand on its payload in pieces as it comes.

Loaded with the first such message, and kept.
"""

from .. import is_name
from ..engine import HOLD, NO_MEMORY
from ..message import Message, search
from ..port import const, load
from .several import several

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .. import Client

_SHORT = const(19)
_QOS_3 = const(20)
_ID_0 = const(22)
_LENGTH = const(23)
_TOO_LARGE = const(32)


class Pieces:
    """A large message for the handlers of a `client` that take pieces."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        if client.message is None:
            Message(client.rx, client)
        self.message = client.message
        self.new = True  # the message was not received before
        self.taken = False  # a handler takes it
        self.blind = False  # no handler may get it
        self.long = False  # its topic name is larger than the buffer, and part of what passes
        self.search = search  # finds those that may
        client.pieces = self  # once there was memory for it

    def start(self, at: int, have: int, t: int, end: int) -> int:
        """Begin with a packet that is larger than the buffer, which has it from `at` to `have`.

        Its fixed header ends at `t`, all of it at `end`. Returns where the payload begins, 0 if
        more of the header must come first, or the negative number of the rule that it breaks.
        """
        m = self.message
        m.first = m.buf[at]
        m.t = t
        m.end = end
        return self.begin(at, have)

    def begin(self, at: int, have: int) -> int:
        """Begin with what follows the fixed header: see `start`, which returns the same."""
        n = self.check(at, have)
        if n > 0:
            self.keep(n)
        return n

    def check(self, at: int, have: int) -> int:
        """Check a packet up to the payload of 3.1.1: see `start`, which returns the same."""
        m = self.message
        e = m.t + 2
        if m.first & 0xF0 != 0x30:
            return -_TOO_LARGE if m.first == 0x90 else -_LENGTH
        if e > have:
            return 0
        if m.first & 6 == 6:
            return -_QOS_3
        e += m.buf[m.t] << 8 | m.buf[m.t + 1]
        m.at = e + 2 if m.first & 6 else e
        self.long = m.at - at > len(m.buf) // 2 - 1
        if self.long:
            self.blind = True
            m.pid = 0
            return m.t + 2 if m.at <= m.end else -_SHORT
        if m.at > have:
            return 0
        self.blind = not is_name(m.buf, m.t + 2, e)
        m.pid = m.buf[e] << 8 | m.buf[e + 1] if m.first & 6 else 0
        if m.first & 6 and not m.pid:
            return -_ID_0
        return m.at

    def keep(self, n: int) -> None:
        """Keep the header of a message, whose payload begins at `n`."""
        m = self.message
        m.offset = 0
        m.size = m.end - n
        # Nothing is read into the start of the buffer: there it lasts until the last piece.
        at = 0
        while m.t < n:
            m.buf[at] = m.buf[m.t]
            m.t += 1
            at += 1
        m.t = 0
        c = self.client
        if m.first & 4 and c.two is None:
            c.two = load("qos2")
        self.new = self.long or m.first & 6 != 4 or c.two.is_new(c, m.pid)

    def step(self, at: int, end: int, again: int) -> "Any":
        """Handle the next bytes of the payload.

        `again` is how often this piece has raised. Returns HOLD to get it again, the rule that it
        breaks, why the connection must end, or None.
        """
        c = self.client
        m = c.message
        m.at = at
        m.end = end
        last = m.offset + end - at == m.size
        if last and m.first & 6 and len(c.acks) > c.space:
            return HOLD
        if self.long and m.first & 6 and not self.identify() and last:
            return _ID_0
        if again and again == c.give_up and not self.give_up():
            return NO_MEMORY
        if self.new:
            if self.call() is HOLD:
                return HOLD
            if last and not self.taken:
                self.skip(m)
        m.offset += end - at
        if last:
            m.offset = m.size = 0
            self.done(m)
        return None

    def give_up(self) -> bool:
        """Report that handlers have raised too often. Returns False if there is no memory."""
        try:
            load("strays").give_up(self.client, self.message)
        except MemoryError:  # or it would count as an exception of the handler
            return False
        self.new = False
        return True

    def skip(self, m: "Message") -> None:
        """Report and count a message that no handler has taken."""
        c = self.client
        topic = b""
        if c.on_dropped is not None and not self.long:
            topic = bytes(m.buf[2 : 2 + (m.buf[0] << 8 | m.buf[1])])
        self.new = False  # once there was memory for the topic name
        c.stats.skipped += 1
        if c.on_dropped is not None:
            c.on_dropped(0, topic, "it is larger than rx_size, and no handler takes pieces")

    def identify(self) -> int:
        """Take what a piece has of the packet identifier, which follows the topic name.

        Returns what is known of it.
        """
        m = self.message
        n = (m.buf[0] << 8 | m.buf[1]) - m.offset + m.at
        if m.at <= n < m.end:
            m.pid |= m.buf[n] << 8
        n += 1
        if m.at <= n < m.end:
            m.pid |= m.buf[n]
            self.new = not m.first & 4 or self.client.two.is_new(self.client, m.pid)
        return m.pid

    def call(self) -> "object":
        """Call the handlers with a piece."""
        c = self.client
        m = c.message
        self.taken = False  # a handler may have ended its subscription since the last piece
        if self.blind:
            return None
        if c.limit or self.search(c, 0, 2 + (m.buf[0] << 8 | m.buf[1]), True) >= 0:
            self.taken = True
            return several(m, True, self.search)
        if c.on_message is not None and c.chunks:
            self.taken = True
            return c.on_message(m)
        return None

    def done(self, m: "Message") -> None:
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
        if self.new:
            c.stats.received += 1
