"""Receive MQTT 5 packets that are larger than the buffer.

Loaded with the first such packet.
"""

from .chunks import Chunks
from .port import const
from .reader import LATER
from .router import Router
from .v5_walk import number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .v5_router import Router5

_ANSWERS = b"\x40\x50\x62\x70"  # the first byte of PUBACK, PUBREC, PUBREL and PUBCOMP


class Chunks5(Chunks):
    """Large messages for the handlers that take pieces.

    A message whose properties are larger than the buffer is acknowledged and counted in
    `skipped`, but not delivered.
    """

    router: "Router5"

    def __init__(self, router: "Router5") -> None:
        Chunks.__init__(self, router)
        self.blind = False  # the packet is only skipped

    def begin(self, t: int, have: int) -> "int | str":
        """Begin with a packet: see `Router.begin`."""
        m = self.router.message
        if m.first & 0xF0 != 0x30:
            return self._other(t, have)
        n = t + 2
        if n > have:
            return 0
        n += m.buf[t] << 8 | m.buf[t + 1]
        if m.qos:
            n += 2
        if n + 4 - m.at > len(m.buf) // 2 - 1:
            return "topic name > rx_size"
        size = number(m.buf, n, have)
        if size < 0:
            return "property length" if n + 4 <= have else 0
        n += 1 + (size & 3)
        size >>= 2
        if n + size > m.end:
            return "property length"
        # Even if all of them have come: there is no room to keep them for the other pieces.
        self.blind = n + size - m.at > len(m.buf) // 2 - 1
        if self.blind:
            size = 0
        elif n + size > have:
            return 0
        m.size = m.end - n - size
        m.end = n + size
        return self.take(t)

    def take(self, at: int) -> "int | str":
        """Begin with the message whose topic name has its length at `at`."""
        p = self.router.properties
        p.start = p.stop = 0
        what = Chunks.take(self, at)
        # The name was moved; the properties follow it.
        n = at = self.router.message.topic_end
        while p.start < p.stop:
            p.buf[n] = p.buf[p.start]
            p.start += 1
            n += 1
        p.start = at
        p.stop = n
        return what

    def number(self) -> "str | None":
        """Read the packet identifier of the message, and its properties."""
        r = self.router
        what = Router.number(r)
        if what is LATER:  # the answer comes with the last piece
            r.message.at += 2
            what = None
        return what if what or self.blind else r.skip()

    def _other(self, t, have):
        """Begin with a packet that is not PUBLISH.

        What follows the reason code of an acknowledgement is skipped.
        """
        m = self.router.message
        if m.first not in _ANSWERS:
            return "larger than rx_size" if m.first in b"\x20\x90\xb0\xe0\xf0" else "length"
        if t + 3 > have:
            return 0
        what = self.router.client.connection.packet(m.first, t, t + 3)
        if what is not None:
            return what
        m.set_flags(0x30)
        self.blind = True
        self.new = False
        m.offset = 0
        m.size = m.end - t - 3
        m.end = t + 3
        return m.end
