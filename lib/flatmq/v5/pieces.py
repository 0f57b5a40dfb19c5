"""Receive MQTT 5 packets that are larger than the buffer. Loaded with the first such packet.

A message whose properties are larger than the buffer is acknowledged and counted in `skipped`, but
not delivered. They are checked as they pass.
"""

from ..engine import HOLD
from ..message import search
from ..port import const, load
from ..rare.pieces import Pieces as Base
from .carry import begin, choose
from .carry import search as tagged
from .walk import number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..message import Message
    from . import Client5

_PUBLISH = const(16)  # see walk.TABLE
_LENGTH = const(23)
_TOO_LARGE = const(32)
_PROPERTIES = const(40)
_NO_ALIAS = const(0x23 << 9 | 46)
_ANSWERS = const(b"\x40\x50\x62\x70")  # the first byte of PUBACK, PUBREC, PUBREL and PUBCOMP


class Pieces(Base):
    """A large message for the handlers that take pieces, or another large packet."""

    client: "Client5"
    walk: "Any" = None  # passing.Walk, once there were such properties
    walks: bool  # they have not passed yet

    def begin(self, at: int, have: int) -> "Any":
        """Begin with a packet larger than the buffer: see `rare.pieces.Pieces.begin`."""
        if self.client.owners is None:
            begin(self.client)
        self.walks = False
        self.faulty = False  # it is delivered without one of its properties
        if self.message.first & 0xF0 != 0x30:
            return self._other(have)
        n = self.check(at, have)
        if n > 0 and not self.long:
            return self._carried(at, n, have)
        if n > 0:
            self.keep(n)
        return n

    def _carried(self, at, n, have):
        """Begin with a message whose properties begin at `n`."""
        at += len(self.message.buf) // 2 - 1  # where the buffer ends for it
        if n + 4 > at:
            self.blind = True
            self.keep(n)
            return n
        size = number(self.message.buf, n, have)
        if size < 0:
            return -_PROPERTIES if n + 4 <= have else 0
        size = n + 1 + (size & 3) + (size >> 2)
        if size > self.message.end:
            return -_PROPERTIES
        if size > at:  # even if all have come: there is no room to keep them
            n += 1 + (number(self.message.buf, n, have) & 3)
            if self.walk is None:
                self.walk = load("passing", "v5.").Walk()
            self.walk.begin(size - n)
            self.blind = self.walks = True
            self.keep(n)
            return n
        return self._whole(n, size) if size <= have else 0

    def _whole(self, n, e):
        """Begin with a message whose properties are from `n` to `e`."""
        c = self.client
        m = self.message
        self.search = search
        n = self._checked(n, m.end)
        if n > 0 and m.properties.find(0x23):
            n = -_NO_ALIAS
        if n > 0:  # else it says nothing, not even whose the received identifiers are
            n = e
            self.keep(e)
            m.at = m.end = e
            if choose(c, 0, m.properties.stop) is not False:
                self.search = tagged
        return n

    def done(self, m: "Message") -> None:
        """Handle the end of a message: see `rare.pieces.Pieces.done`."""
        Base.done(self, m)
        if self.faulty and self.new:
            self.client.stats.strays += 1

    def _checked(self, at, end):
        n = self.message.properties.read(at, end, _PUBLISH)
        if n < 0:
            n = load("faulty", "v5.").borne(self.client, at, end, n)
            self.faulty = n > 0
        return n

    def _other(self, have):
        """Begin with a packet that is not PUBLISH.

        What follows the reason code of an acknowledgement is skipped.
        """
        m = self.message
        if m.first not in _ANSWERS:
            return -_TOO_LARGE if m.first in b"\x20\x90\xb0\xe0\xf0" else -_LENGTH
        if m.t + 3 > have:
            return 0
        have = self._acknowledge(m)
        if have and have is not True:
            return have if have is HOLD else -have
        m.first = 0x30  # like a message at QoS 0 that nobody gets
        m.offset = 0
        m.size = m.end - m.t - 3
        self.blind = True
        self.new = False
        return m.t + 3

    def _acknowledge(self, m):
        c = self.client
        if m.first & 0x30 and m.first != 0x70 and len(c.acks) > c.space:
            return HOLD
        if c.five.acks is None:
            c.five.acks = load("acks", "v5.")
        return c.five.acks.acknowledge(c, m.first, m.t, m.buf[m.t + 2])

    def step(self, at: int, end: int, again: int) -> "Any":
        """Handle the next bytes of the payload: see `rare.pieces.Pieces.step`."""
        return (self.walks and self._walked(at, end)) or Base.step(self, at, end, again)

    def _walked(self, at, end):
        """Check what has come of the properties: see `step`, which returns the same."""
        c = self.client
        walk = self.walk
        if self.message.first & 6 and len(c.acks) > c.space:
            return HOLD
        walk.take(self.message.buf, at, end if end - at < walk.left else at + walk.left)
        self.walks = walk.left > 0
        return walk.rule
