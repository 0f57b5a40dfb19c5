"""A session from one connection to the next: what begins with CONNACK, and what ends.

Loaded with the connection, or by whoever drives a session alone.
"""

from .session import Session


def resume(s: Session, same: bool) -> None:
    """CONNACK: what is queued may go. `same`: the broker has kept the session."""
    if s.open:  # memory was short when the last connection ended
        lost(s)
    s.same = same
    if not same:
        for i in range(len(s.received)):
            s.received[i] = 0
        if s.past:
            s.past.forget()
    if s.gate is not None:
        s.gate(same)
    s.open = True


def lost(s: Session, closed: bool = False) -> None:
    """The connection is over; `closed`: by the peer. What had begun to leave goes again from
    its beginning. After a MemoryError nothing of this is done, and `resume` does it."""
    s.answers = 0
    s.blocked = s.held = s.plain = False
    empty = s.pending == (1 if s.large and s.large.waits else 0)
    if s.open and not (empty or s.past):
        from .resend import Resend

        s.past = Resend(s)
    was_open = s.open
    s.open = False
    doomed = -1
    if empty:
        # The ring is empty, but for requests, which are made again.
        s.tail = s.at = s.part = s.end = s.top = 0
        s.limit = s.size
        s.past = None
    elif s.past and not was_open:
        s.past.outage()
    elif was_open:
        doomed = s.past.lost(closed)
        s.at = s.tail
        s.part = 0
        s.queued = True
    s.urgent.clear()
    if s.large:
        s.large.lost(closed and was_open and s.at == s.tail)
    if doomed >= 0:
        from .resend import set_aside

        set_aside(s, doomed, "the broker closed the connection on it")
