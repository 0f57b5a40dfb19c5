"""Receive a message larger than the buffer, and hand on its payload in pieces as it comes.

Loaded with the first such message.
"""

from .reader import LATER
from .router import Router


class Chunks:
    """Large messages for the handlers of a `router` that take pieces."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.new = True  # the message was not received before
        self.taken = False  # a handler takes it

    def begin(self, t: int, have: int) -> "int | str":
        """Begin with a message: see `Router.begin`. Its payload then goes to `piece`."""
        m = self.router.message
        if m.first & 0xF0 != 0x30:
            return "larger than rx_size" if m.first == 0x90 else "length"
        n = t + 2
        if n > have:
            return 0
        n += m.buf[t] << 8 | m.buf[t + 1]
        if m.qos:
            n += 2
        if n > have:
            if n - m.at <= len(m.buf) // 2 - 1:
                return 0
            return "topic name > rx_size"
        m.size = m.end - n
        m.end = n
        return self.take(t)

    def take(self, at: int) -> "int | str":
        """Begin with a message in the receive buffer.

        The length of its topic name is at `at`, and its payload begins at `message.end`.
        Returns that position, or the rule that the message breaks.
        """
        r = self.router
        m = r.message
        m.at = at + 2 + (m.buf[at] << 8 | m.buf[at + 1])
        if r.find(at, m.at, True) < 0:
            return "not a topic name"
        what = self.number()
        if what is not None:
            return what
        self.new = m.qos < 2 or m.id not in r.client.received
        m.offset = 0
        # Nothing is read into the start of the buffer: there the name lasts until the last piece.
        at = 0
        while m.topic_at < m.topic_end:
            m.buf[at] = m.buf[m.topic_at]
            at += 1
            m.topic_at += 1
        m.topic_at = 0
        m.topic_end = at
        return m.end

    def number(self) -> "str | None":
        """Read the packet identifier of the message. Returns the rule that it breaks, or None."""
        what = self.router.number()
        return None if what is LATER else what  # the answer comes with the last piece

    def piece(self, at: int, end: int) -> "str | None":
        """Handle the next bytes of the payload. Returns None, or LATER."""
        r = self.router
        m = r.message
        m.at = at
        m.end = end
        last = m.last
        if last and m.qos and r.client.answers > r.client.room:
            return LATER
        if self.new:
            self.taken = r.call(True)
        m.offset += end - at
        if last:
            m.offset = m.size = 0
            if m.qos:
                r.answer()
            if m.first & 14 == 8:
                r.client.stats.dup0 += 1
            if self.new and self.taken:
                r.client.stats.received += 1
            elif self.new:
                r.client.stats.skipped += 1
        return None
