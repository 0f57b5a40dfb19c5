"""Receive a message larger than the buffer: its payload is handed on in pieces, as it comes.

Loaded with the first such message.
"""

from .port import const
from .reader import LATER
from .router import Router

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .client import Client


def begin(s: "Client", first: int, at: int, t: int, have: int, end: int) -> "int | str":
    """Begin with a packet larger than the buffer of a client, from `at` to `end`, whose body
    begins at `t`; the bytes up to `have` are there. Returns where its payload begins, 0 if its
    header is cut, or the rule that it breaks."""
    if first & 0xF0 != 0x30:
        return "larger than rx_size" if first == 0x90 else "length"
    n = t + 2
    if n > have:
        return 0
    n += (s.rx[t] << 8 | s.rx[t + 1]) + (2 if first & 6 else 0)
    if n > have:
        return 0 if n - at <= s.rx_size else "topic name > rx_size"
    router = s.load()
    if not router.large:
        router.large = Chunks(router)
    return router.large.begin(first, t, n, end - n)


class Chunks:
    """Large messages for the handlers of a `router` that take pieces."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._new = True  # it was not received before
        self._taken = False  # somebody takes it

    def begin(self, first: int, at: int, end: int, size: int) -> "int | str":
        """Begin with a PUBLISH whose topic name and packet identifier lie from `at` to `end`;
        `size` bytes of payload follow, for `piece`. Returns `end`, or the rule that it breaks."""
        r = self._router
        m = r.message
        m.set_flags(first)
        m.end = end
        m.at = end - 2 if first & 6 else end
        if r.find(at, m.at, True) < 0:
            return "not a topic name"
        what = r.number()
        if what is not None and what is not LATER:  # the answer comes with the last piece
            return what
        self._new = m.qos < 2 or m.id not in r.client.received
        m.size = size
        m.offset = 0
        # The name moves to where nothing is read to, and lasts until the last piece is handled.
        at = 0
        while m.topic_at < m.topic_end:
            m.buf[at] = m.buf[m.topic_at]
            at += 1
            m.topic_at += 1
        m.topic_at = 0
        m.topic_end = at
        return end

    def piece(self, at: int, end: int) -> "str | None":
        """Handle the next bytes of the payload. Returns None, or LATER."""
        r = self._router
        m = r.message
        m.at = at
        m.end = end
        last = m.last
        if last and m.qos and r.client.answers > r.client.room:
            return LATER
        if self._new:
            self._taken = r.call(True)
        m.offset += end - at
        if last:
            m.offset = m.size = 0
            if m.qos:
                r.answer()
            if m.first & 14 == 8:
                r.client.stats.dup0 += 1
            if self._new and self._taken:
                r.client.stats.received += 1
            elif self._new:
                r.client.stats.skipped += 1
        return None
