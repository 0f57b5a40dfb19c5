"""QoS 2, both ways (section 4.3.3). Loaded with the first message of it, and kept.

A PUBLISH whose PUBREC has come stays in the queue: if the broker forgets the session, it is sent
again. Received identifiers are kept until PUBREL (method B).
"""

from ..engine import HOLD, end_of, id_of
from ..port import const
from ..queue import find, release

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .. import Client

_ID_0 = const(22)
_LENGTH = const(23)
_TYPE = const(24)


def resume(c: "Client", trusted: bool) -> int:
    """Prepare messages past PUBREC for a new connection.

    In a `trusted` session PUBRELs are sent for them, and they go in front of the others. Returns
    how many bytes they have there. Otherwise they are sent as messages again.
    """
    q = c.q
    p = ready = 0
    while p < c.end:
        e = end_of(q, p)
        if q[p] & 6 == 6 and trusted:
            if not c.alone:  # else they leave one at a time
                i = id_of(q, p)
                c.acks.extend(bytes((0x62, 2, i >> 8, i & 255)))
            if p > ready:
                data = q[p:e]
                q[p:e] = b""
                q[ready:ready] = data
            ready += e - p
        elif q[p] & 6 == 6:
            # Back to the wait for PUBREC, and to its place behind those that are older.
            q[p] &= 0xFD
            i = n = e
            while i < c.end and (q[i] & 6 in (0, 6) or id_of(q, i) - id_of(q, p) & 0x8000):
                older = q[i] & 6 not in (0, 6)
                i = end_of(q, i)
                if older:
                    n = i
            if n > e:
                data = q[p:e]
                q[p:e] = b""
                n -= e - p
                q[n:n] = data
                continue
        p = e
    return ready


def clear(c: "Client") -> None:
    """Forget what was received: it is of another session."""
    for i in range(len(c.received)):
        c.received[i] = 0


def is_new(c: "Client", pid: int) -> bool:
    """Return whether a message has not been received before.

    A session in doubt sends again first what it has: a message without DUP, as the first one, says
    that this is nothing. A new session cannot have DUP: it had no subscriptions until now.
    """
    if not c.received:
        c.received = [0] * c.incoming
    if c.unsure and not c.message.first & 8:
        clear(c)
    c.unsure = 0
    make_room(c)  # now: once the handler has run, the identifier must not be lost
    return pid not in c.received


def make_room(c: "Client") -> None:
    """Have a free place for an identifier: the broker may have more in flight than foreseen."""
    if 0 not in c.received:
        c.received.append(0)


def keep(c: "Client", pid: int) -> None:
    """Remember a packet identifier until it is released."""
    if pid not in c.received:
        make_room(c)  # in bulk `is_new` is called for several first
        c.received[c.received.index(0)] = pid


def other(c: "Client", first: int, t: int, end: int) -> "Any":
    """Handle PUBREC, PUBREL or PUBCOMP, or a packet that no broker sends.

    Returns the rule that it breaks, HOLD if there is no room to answer, else whether it
    acknowledges something, or None.
    """
    pid = c.rx[t] << 8 | c.rx[t + 1]
    if first != 0x50 and first != 0x62 and first != 0x70 and (first != 0x6A or c.version != 3):
        return _TYPE
    if end - t != 2:
        return _LENGTH
    if not pid:
        return _ID_0
    if first == 0x70:
        p = find(c, pid)
        if 0 <= p < c.sent and c.q[p] & 6 == 6:
            release(c, p)
            if not c.kept:
                c.renamed = None
            return True
        c.stats.strays += 1
        return None
    if len(c.acks) > c.space:
        return HOLD
    end = False  # whether it acknowledges something: one more local would be one too many
    if first == 0x50:
        p = find(c, pid)
        # Of a message that has left in part the broker has nothing yet.
        if 0 <= p < c.sent and c.q[p] & 4 and end_of(c.q, p) <= c.sent:
            c.q[p] |= 2
            end = True
        else:
            c.stats.strays += 1
        first = 0x62
    else:
        if pid in c.received:
            c.received[c.received.index(pid)] = 0
            c.unsure = 0  # only the session of its PUBREC releases it
        first = 0x70
    c.ack[0] = first
    c.ack[2] = pid >> 8
    c.ack[3] = pid & 255
    c.acks.extend(c.ack)
    return end
