"""Receive MQTT 5 packets that are larger than the buffer. Loaded with the first such packet.

A message whose properties are larger than the buffer is acknowledged and counted in `skipped`, but
not delivered.
"""

from ..core.message import HOLD
from ..port import const
from ..rare import pieces
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


class Pieces(pieces.Pieces):
    """A large message for the handlers that take pieces, or another large packet."""

    client: "Client5"

    def begin(self, at: int, have: int) -> "Any":
        """Begin with a packet larger than the buffer: see `rare.pieces.Pieces.begin`."""
        self.blind = False  # it is only skipped
        if self.message.first & 0xF0 != 0x30:
            return self._other(have)
        n = self.check(at, have)
        return n if n <= 0 else self._carried(at, n, have)

    def _carried(self, at, n, have):
        """Begin with a message whose properties begin at `n`."""
        c = self.client
        m = c.message
        most = len(m.buf) // 2 - 1
        if n + 4 - at > most:
            return -_LONG_NAME
        size = number(m.buf, n, have)
        if size < 0:
            return -_PROPERTIES if n + 4 <= have else 0
        e = n + 1 + (size & 3)
        size >>= 2
        if e + size > m.end:
            return -_PROPERTIES
        if e + size - at > most:  # even if all have come: there is no room to keep them
            self.blind = True
            self.keep(e)
            return e
        e += size
        if e > have:
            return 0
        n = checked(m.buf, n, m.end, _PUBLISH)
        self.keep(e)
        m.at = m.end = e
        if n > 0 and m.properties.find(0x23):
            n = -_NO_ALIAS
        if n > 0:
            c.tagged = choose(c, 0, m.properties.stop) is not False
            return e
        if c.refuse is None or not c.refuse(m, -n):
            m.size = 0
            return n
        self.blind = True
        return e

    def _other(self, have):
        """Begin with a packet that is not PUBLISH.

        What follows the reason code of an acknowledgement is skipped.
        """
        c = self.client
        m = c.message
        if m.first not in _ANSWERS:
            return -_TOO_LARGE if m.first in b"\x20\x90\xb0\xe0\xf0" else -_LENGTH
        at = m.t
        if at + 3 > have:
            return 0
        if m.first & 0x30 and m.first != 0x70 and len(c.acks) > c.space:
            return HOLD
        what = c.five.acknowledge(c, m.first, at, c.rx[at + 2])
        if what is not None:
            return what if what is HOLD else -what
        m.first = 0x30  # like a message at QoS 0 that nobody gets
        m.offset = 0
        m.size = m.end - at - 3
        self.blind = True
        self.new = False
        return at + 3

    def piece(self, at: int, end: int, again: int) -> "Any":
        """Handle the next bytes of the payload: see `rare.pieces.Pieces.piece`."""
        at = pieces.Pieces.piece(self, at, end, again)
        if not self.message.size:
            self.client.tagged = False
        return at

    def call(self) -> "object":
        """Call the handlers with a piece."""
        self.taken = False
        return None if self.blind else pieces.Pieces.call(self)
