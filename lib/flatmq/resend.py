"""Resend the packets left from an earlier connection, or set them aside.

Loaded when a connection first ends while something is in the ring.
"""

from .port import const
from .session import Session

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_PUBREC = const(0x50)
_PUBCOMP = const(0x70)
_DUP = const(8)
_VOID = const(0x36)  # the first byte of a packet that is never sent: a PUBLISH at QoS 3


def stop_of(buf: "memoryview", at: int) -> int:
    """Return where the packet at `at` ends."""
    n = shift = 0
    while True:
        at += 1
        n |= (buf[at] & 127) << shift
        if buf[at] < 128:
            return at + 1 + n
        shift += 7


def drop(self: Session, packet_id: int) -> bool:
    """Set a pending message aside. It may still reach the broker if a part of it has left.
    Returns False if no pending message has this packet identifier."""
    if packet_id < 1 or packet_id not in self.ids:
        return False
    reason = "dropped by the application"
    i = self.ids.index(packet_id)
    if i == self.slots:
        self.large.set_aside(reason)
        return True
    if i > self.slots:
        return False  # a request
    if not self.past:
        self.past = Resend(self)
        self.plain = False
    set_aside(self, self.offs[i], reason)
    return True


def set_aside(s: Session, at: int, reason: str) -> None:
    """Give up the message whose packet begins at `at`."""
    pid = 0
    if at in s.offs:
        i = s.offs.index(at)
        pid = s.ids[i]
        released = s.waits[i] == _PUBCOMP
        s.release(i)
        if released:  # the broker has the message but never sends PUBCOMP
            return
    else:
        s.pending -= 1
    first = at + 1
    while s.buf[first] > 127:
        first += 1
    n = s.buf[first + 1] << 8 | s.buf[first + 2]
    if not (s.open and s.blocked):  # else the network may have been offered these bytes already
        s.buf[at] = _VOID
    s.past.extend()
    s.stats.dropped += 1
    if s.on_dropped:
        s.on_dropped(pid, bytes(s.buf[first + 3 : first + 3 + n]), reason)


def forget(s: Session) -> None:
    """Forget every pending message.

    Only for a client without `on_dropped`, after its connection was closed and before
    `writer.lost`.
    """
    if s.large and s.large.waits:
        s.large.set_aside("")
    for i in range(s.slots):
        if s.ids[i]:
            s.release(i)
    s.pending = 0


def recount(s: Session) -> None:
    """Free the records of settled messages, and count the pending ones.

    Ctrl-C may have come between a step and its count. Works whether or not the connection has
    ended.
    """
    s.count = 0
    for i in range(s.slots):
        if s.ids[i] and s.offs[i] >= 0:
            s.count += 1
        else:
            s.ids[i] = s.waits[i] = 0
            s.offs[i] = -1
    s.pending = s.count
    if s.large and s.large.waits:
        s.pending += 1
    at = s.at
    if s.past:
        s.past.passed()
    sent = s.past.sent if s.past else at + s.part if s.part else -1
    while at != s.end:
        stop = stop_of(s.buf, at)
        if at <= sent < stop:
            sent = -1
        if sent < 0 and s.buf[at] & 0xF6 == 0x30:
            s.pending += 1
        at = 0 if stop == s.top else stop


def assume_sent(session: Session) -> None:
    """Treat everything in the ring as sent on an earlier connection.

    For code that puts messages from before a reboot into the ring of a client that has not
    started; set `waits` to 0x70 for those past PUBREC.
    """
    session.past = Resend(session)
    session.past.sent = session.end


class Resend:
    """The packets that were in a session's ring when a connection ended, up to `_mark`.

    `sent` is how far an earlier connection wrote, -1 if the cursor is past that. After a
    connection that the peer closed, packets are sent one at a time, and only once the broker has
    answered a PINGREQ. This finds a message that the broker does not accept: it is the only one
    in flight when the peer closes again. Any other failure resets the count.
    """

    def __init__(self, session: Session) -> None:
        self.session: Any = session  # or a client, which can ping
        self.sent = -1
        self._mark = session.end
        self._cut = False  # the packet now being written was cut by an earlier connection
        self._single = False
        # The packet identifier of the message that must be settled before the next one is sent.
        # Its position would not do: once it is settled, another message may take that.
        self._alone = -1
        self._suspect = -1  # where the message begins that was alone when the peer closed,
        self._strikes = 0  # and how many times in a row it was
        self._asked = 0  # PINGREQ on this connection: 1 once it is queued, 2 once it has left

    def wrapped(self) -> None:
        """Follow the end of the ring, which has moved to the start."""
        end = self.session.end
        if self.sent == end:
            self.sent = 0
        if self._mark == end:
            self._mark = 0

    def extend(self) -> None:
        """Check every packet up to the end: one that must not go may be behind the mark."""
        self._mark = self.session.end

    def forget(self) -> None:
        """Put messages past PUBREC back to before it: the broker has forgotten the session."""
        s = self.session
        for i in range(s.slots):
            s.waits[i] = min(s.waits[i], _PUBREC)

    def lost(self, closed: bool) -> int:
        """Handle the end of a connection, `closed` by the peer or not.

        Returns where the message to be set aside begins, -1 if there is none.
        """
        s = self.session
        written = s.at + s.part
        doomed = -1
        if closed:
            alone = -1
            if self._alone > 0 and not s.urgent:
                alone = self._in_flight(written)
            self._single = True
            if alone != self._suspect:
                self._suspect = alone
                self._strikes = 0
            if alone >= 0:
                self._strikes += 1
                if self._strikes == s.options.get("give_up", 0):
                    self._suspect = -1
                    doomed = alone
        else:
            self.outage()
        self.passed()
        if self.sent < 0:
            self.sent = written
        self._mark = s.end
        self._alone = -1
        self._cut = False
        self._asked = 0
        at = s.tail
        while at != s.end:  # void the requests: their owner queues them again
            if s.buf[at] & 0xF0 != 0x30:
                s.buf[at] = _VOID
            at = stop_of(s.buf, at)
            if at == s.top:
                at = 0
        return doomed

    def outage(self) -> None:
        """Reset the count: the connection failed for a reason unrelated to any message."""
        self._suspect = -1
        self._strikes = 0
        self._asked = 0

    def passed(self) -> None:
        """Forget where an earlier connection cut a packet if that packet has left by now."""
        s = self.session
        if self._cut and (s.at == s.end or not s.at < self.sent < stop_of(s.buf, s.at)):
            self._cut = False
            self.sent = -1

    def skip(self) -> None:
        """Move the cursor past packets that are not sent again, to make room."""
        s = self.session
        while s.at != self._mark and s.at not in s.offs:
            first = s.buf[s.at]
            # Online, a packet that the network did not take may be half sent: see `set_aside`.
            if first > 0x3F or (s.open and s.blocked and first != _VOID):
                break
            if self._cut or self.sent == s.at:
                self._cut = False
                self.sent = -1
            stop = stop_of(s.buf, s.at)
            cut = s.at < self.sent < stop
            if not first & 6 and (cut or self.sent < 0):
                break
            if cut:
                self.sent = -1
            s.at = 0 if stop == s.top else stop

    def _in_flight(self, written):
        """Return where the only message in flight begins; -1 if there is none, or more than one.

        It has left, at least in part, and is not settled.
        """
        s = self.session
        found = -1
        at = s.tail
        while at != written:
            stop = stop_of(s.buf, at)
            cut = at < written < stop
            if at in s.offs or (cut and not s.buf[at] & 6):
                if found >= 0:
                    return -1
                found = at
            if cut:
                break
            at = 0 if stop == s.top else stop
        return found

    def next(self) -> int:
        """Return the size of the packet at the cursor, which is sent next.

        0: none may go now, or none is left; then `session.past` becomes None.
        """
        s = self.session
        if s.answers or self._alone in s.ids:
            return 0
        if self._single:
            if s.large and s.large.waits:
                return 0
            router = getattr(s, "router", None)
            if router and router.past and router.past.holds():
                return 0
            if not self._is_asked():
                return 0
        self._alone = -1  # means none; 0 would not do, as `ids` has it for a free record
        if self._cut:
            self._cut = False
            self.sent = -1
        while s.at != self._mark:
            at = s.at
            stop = stop_of(s.buf, at)
            if self.sent == at:
                self.sent = -1
            cut = at < self.sent < stop
            goes = self.goes(at, cut)
            if goes:
                self._cut = cut
                return stop - at
            if goes is None:
                return 0
            if cut:
                self.sent = -1
            s.at = 0 if stop == s.top else stop
            if s.answers or self._alone > 0:  # PUBREL keeps the place of its message
                return 0
        s.past = None
        return 0

    def _is_asked(self):
        """Return whether the broker has answered a PINGREQ, or nothing is left to wait for it."""
        s = self.session
        self.skip()
        if s.at == self._mark:
            return True
        if self._asked == 1 and s.asked:
            self._asked = 2
        if self._asked < 2:
            # Whatever comes in before PINGREQ has left is not its answer; then another is sent.
            self._asked = 1
            s.connection.ping()
        return not s.asked

    def goes(self, at: int, cut: bool) -> "bool | None":
        """Return whether the packet at `at` is to be sent, and prepare it.

        None: it has to wait, and so do the packets behind it.
        """
        s = self.session
        first = s.buf[at]
        if at not in s.offs:  # a request, a QoS 0 message, or one that is settled
            return first != _VOID and (first > 0x3F or not first & 6) and (cut or self.sent < 0)
        i = s.offs.index(at)
        if self._single:
            self._alone = s.ids[i]
        if s.same and s.waits[i] == _PUBCOMP and self.sent >= 0:  # else PUBREC came early
            s.answer(0x62, s.ids[i])
            s.stats.resent += 1
            return False
        if self.sent >= 0:
            s.stats.resent += 1
            if not s.same:
                s.stats.renewed += 1
        s.buf[at] = first | _DUP if self.sent >= 0 and s.same else first & ~_DUP
        return True
