"""SUBSCRIBE and UNSUBSCRIBE: what is asked for, the packets and the answers. Kept while online.

A subscription is never given up. If the broker refuses it, closes the connection on it, or breaks
a rule in its answer, it is tried again with growing pauses, while everything else flows: see
`strays.other` and `strays.lost`.
"""

from . import port
from .port import const, load, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client
    from .message import Subscription

_ID_0 = const(22)
_LENGTH = const(23)
_CODES = const(27)


def send(c: "Client", r: "Subscription") -> None:
    """Queue a SUBSCRIBE or UNSUBSCRIBE (sections 3.8 and 3.10)."""
    pid = c.last_id + 1 & 65535 or 1
    if pid == c.stop:
        pid = load("strays").next_id(c)
    c.last_id = pid
    r.due = ticks_add(port.ticks_ms(), c.ack_ms)
    body = bytearray((pid >> 8, pid & 255))
    if c.five:
        block = c.five.block(c, r)
        if block is None:
            return  # too large for the broker
        body.extend(block)
    for f in r.asked:
        body.extend(bytes((len(f) >> 8, len(f) & 255)) + f)
        if r.handler is not None:
            body.append(r.qos)
    data = bytearray((0xA2 if r.handler is None else 0x82,))
    n = len(body)
    while n > 127:
        data.append(n & 127 | 128)
        n >>= 7
    data.append(n)
    data.extend(body)
    c.acks.extend(data)
    r.id = pid  # once there was memory for all of it


def resume(c: "Client", kept: bool, unsure: bool) -> int:
    """Resume after CONNACK. Returns what `late` returns.

    Unanswered requests are sent again before everything else. If the session was not `kept`, or if
    that is `unsure`, all subscriptions are, too.
    """
    waiting = []
    for r in c.requests:
        r.id = 0
        if not r.filters or not (kept or r.handler is not None):
            r.granted = b""  # nothing is left to ask for
        elif r.handler is None or (not unsure and r in c.subscriptions):  # else it was replaced
            waiting.append(r)
    if unsure:
        waiting.extend(c.subscriptions)
    c.requests[:] = waiting
    for r in waiting:
        if unsure:
            r.asked = r.filters
        r.due = ticks_add(port.ticks_ms(), r.pause)  # meanwhile everything else flows
    return late(c)


def late(c: "Client") -> int:
    """Send the requests that are due. Returns the milliseconds until others are.

    -1: one was not answered in time.
    """
    least = c.tick
    due = False
    i = len(c.requests)
    while i:
        i -= 1
        r = c.requests[i]
        left = (r.id or r.pause) and ticks_diff(r.due, port.ticks_ms())
        if r.id and not c.ack_ms:
            continue
        if left > 0:
            least = min(least, left)
        elif r.id:
            return -1
        else:
            due = True
    if due:
        flush(c)
    return least


def flush(c: "Client") -> None:
    """Send the requests that are due, all or one at a time.

    If it is not known whose the received identifiers are, a new session, which sends nothing
    before SUBSCRIBE, must not get one until PINGRESP: an old one sends before it what it has.
    """
    if c.unsure == 1:
        return
    alone = not (c.apart and count(c))
    held: list[bytes] = []  # filters whose later requests wait, too
    for r in c.requests:
        if not r.id:
            left = ticks_diff(r.due, port.ticks_ms()) if r.pause else 0
            for f in r.asked:
                if f in held:
                    left = 1
            if left > 0:
                held.extend(r.asked)
            elif alone:
                send(c, r)
                alone = not (c.apart and r.id)


def count(c: "Client") -> int:
    """Return how many requests wait for an answer."""
    n = 0
    i = len(c.requests)
    while i:
        i -= 1
        n += c.requests[i].id > 0
    return n


def other(c: "Client", first: int, t: int, end: int) -> "int | None":
    """Handle a SUBACK or UNSUBACK.

    Returns the rule that it breaks, True if it answers a request, else None.
    """
    rx = c.rx
    pid = rx[t] << 8 | rx[t + 1]
    codes = bytes(rx[t + 2 : end])
    if not c.five:  # which has looked at it
        if end - t < 2 or (end - t > 2 and first != 0x90):
            return _LENGTH
        if not pid:
            return _ID_0
        if first == 0x90 and (not codes or codes.strip(b"\0\1\2\x80")):
            return _CODES
    for r in c.requests:
        if r.id == pid and (first == 0x90) == (r.handler is not None):
            break
    else:
        c.stats.strays += 1
        return None
    if codes and len(codes) != len(r.asked):
        return _CODES  # the request stays unanswered
    usual = not codes or (r.asked == r.filters and max(codes) < 128)
    if usual:
        r.granted = codes
    if usual or not load("strays").other(c, r, codes):
        r.id = r.pause = r.strikes = 0
        c.requests.remove(r)
    if not c.requests:
        c.apart = False
    elif c.apart:
        late(c)
    return True
