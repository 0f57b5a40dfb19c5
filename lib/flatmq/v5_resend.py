"""Resend messages left from an earlier MQTT 5 connection, within the broker's limits.

Loaded when a connection ends while something is in the ring, or when the ring holds messages that
the broker does not take.
"""

from .port import const
from .resend import Resend, set_aside, stop_of

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .v5 import Client5

_VOID = const(0x36)  # see resend
_PUBCOMP = const(0x70)


def admit(c: "Client5", same: int) -> None:
    """Apply the limits of a CONNACK to the pending messages.

    Sets aside messages that this broker never takes, and sends the others as its Receive
    Maximum allows (section 4.9). `same`: it has kept the session.
    """
    old = c.past
    if not isinstance(old, Resend5):
        c.past = Resend5(c)
        if old:  # messages from before a reboot, or disconnect() was called
            c.past.sent = old.sent
    if not same:  # messages past PUBREC are sent as new, so the limits apply to them, too
        c.past.forget()
    if c.count > c.quota:
        c.past.extend()  # messages accepted in the outage have to wait for their turn, too
    without_aliases(c)
    if c.strict or c.max_qos < 2:
        for at, stop in unsent(c):
            reason = _refused(c, c.buf[at], stop - at)
            if reason:
                set_aside(c, at, reason)
    large = c.large
    if large and large.waits:
        reason = _refused(c, large.head[0], len(large.head) + large.size)
        if reason:
            large.set_aside(reason)
            c.allot()


def _refused(c, first, size):
    """Return why the broker does not take a packet with first byte `first`; "" if it does."""
    most = c.server.maximum_packet_size
    if first < 0x40:
        if first >> 1 & 3 > c.max_qos:
            return f"the broker takes no QoS above {c.max_qos}"
        if first & 1 and not c.server.retain:
            return "the broker takes no retained messages"
        if most and size > most:
            return f"the broker takes packets of at most {most} bytes"
    return ""


def _goes_once(first):
    """Return whether a packet with this first byte is a request or a QoS 0 message."""
    return first != _VOID and (first > 0x3F or not first & 6)


def unsent(c: "Client5") -> "Iterator[tuple[int, int]]":
    """Iterate over the packets, from the cursor on, that are still to be sent.

    Yields where each begins and ends. At QoS 1 and 2 these are all messages waiting for PUBACK
    or PUBREC.
    """
    sent = c.past.sent
    at = c.at
    while at != c.end:
        if at == c.top and at:
            at = 0
            continue
        stop = stop_of(c.buf, at)
        if at <= sent < stop:
            sent = -1
        if at in c.offs:
            if c.waits[c.offs.index(at)] != _PUBCOMP:
                yield at, stop
        elif sent < 0 and _goes_once(c.buf[at]):
            yield at, stop
        at = stop


def is_in_flight(c: "Client5", packet_id: int) -> bool:
    """Return whether a message may have left on this connection, at least in part."""
    i = c.ids.index(packet_id) if packet_id > 0 else c.slots + 1
    if not c.connected or i > c.slots:
        return False
    if i == c.slots:
        return c.large.begun or not c.large.sending
    for at, _ in unsent(c):
        if at == c.offs[i]:
            return c.blocked
    return True


class Resend5(Resend):
    """The packets that were in a session's ring when a connection ended.

    At most the broker's Receive Maximum of QoS 1 and 2 messages are in flight; packets that do
    not count overtake those that wait.
    """

    session: "Client5"

    def goes(self, at: int, cut: bool) -> "bool | None":
        """Return whether the packet at `at` is to be sent; None: it has to wait."""
        s = self.session
        if at in s.offs and self._flying(at) >= s.quota:
            i = s.offs.index(at)
            if not (s.same and s.waits[i] == _PUBCOMP and self.sent >= 0):
                self._pass(stop_of(s.buf, at))
                return None
        return Resend.goes(self, at, cut)

    def _flying(self, at):
        """Return the number of unsettled messages before `at`."""
        s = self.session
        n = 0
        i = s.slots
        while i:
            i -= 1
            off = s.offs[i]
            if off >= 0 and (at > off if (at < s.tail) == (off < s.tail) else at < off):
                n += 1
        return n

    def _pass(self, at):
        """Send requests and QoS 0 messages from `at` on now.

        Every poll calls this while a message waits, so it uses no iterator, which would be
        on the heap.
        """
        s = self.session
        sent = self.sent
        while at != s.end:
            if at == s.top and at:
                at = 0
                continue
            stop = stop_of(s.buf, at)
            if at <= sent < stop:
                sent = -1
            if sent < 0 and _goes_once(s.buf[at]):
                self._ahead(at, stop)
            at = stop

    def _ahead(self, at, stop):
        """Send the packet from `at` to `stop` now."""
        s = self.session
        self.extend()
        s.urgent.append(bytes(s.buf[at:stop]))
        if s.buf[at] < 0x40:
            s.pending -= 1
        s.buf[at] = _VOID


def without_aliases(c: "Client5") -> None:
    """Set aside unsent messages whose topic alias ended with their connection."""
    for at, stop in unsent(c):
        if c.buf[at] < 0x40 and not c.buf[at] & 6 and _has_alias(c.buf, at, stop):
            set_aside(c, at, "its topic alias ended with the connection")


def _has_alias(buf, at, stop):
    """Return whether a QoS 0 PUBLISH has a topic alias. An Alias makes it the first property."""
    at += 1
    while buf[at] > 127:
        at += 1
    at += 3 + (buf[at + 1] << 8 | buf[at + 2])
    while buf[at] > 127:
        at += 1
    return at + 1 < stop and buf[at + 1] == 0x23
