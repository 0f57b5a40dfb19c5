"""SUBSCRIBE and UNSUBSCRIBE: what is asked for, the packets and the answers. Kept while online.

A subscription is never given up. If the broker closes the connection on it, it is tried again with
growing pauses, while everything else flows.
"""

from .. import port as clock
from ..port import const, load, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..client import Client
    from .message import Subscription

_ID_0 = const(22)
_LENGTH = const(23)
_CODES = const(27)
_PAUSE = const(1000)  # ms before a subscription is tried again: this,
_LONGEST = const(600000)  # doubled up to this
_TELL = const(3)  # closes on a subscription after which the application is informed


def send(c: "Client", r: "Subscription") -> None:
    """Queue a SUBSCRIBE or UNSUBSCRIBE (sections 3.8 and 3.10)."""
    r.id = c.last_id + 1 & 65535 or 1
    if r.id == c.stop:
        r.id = 0
        r.id = load("strays").next_id(c)
    c.last_id = r.id
    r.asked = r.filters
    block = c.five.block(c, r) if c.five else b""
    if block is None:
        return  # too large for the broker
    n = 2 + len(block)
    for f in r.filters:
        n += len(f) + (2 if r.handler is None else 3)
    data = bytearray((0xA2 if r.handler is None else 0x82,))
    while n > 127:
        data.append(n & 127 | 128)
        n >>= 7
    data.append(n)
    data.append(r.id >> 8)
    data.append(r.id & 255)
    data.extend(block)
    for f in r.filters:
        data.append(len(f) >> 8)
        data.append(len(f) & 255)
        data.extend(f)
        if r.handler is not None:
            data.append(r.qos)
    c.acks.extend(data)


def resume(c: "Client", same: bool, unsure: bool) -> int:
    """Resume after CONNACK. Returns what `late` returns.

    Unanswered requests are sent again before everything else; unless it is the `same` session
    as before, without `unsure`, all subscriptions are, too.
    """
    waiting = []
    for r in c.requests:
        r.id = 0
        if not r.filters or not (same or r.handler is not None):
            r.granted = b""  # nothing is left to ask for
        elif r.handler is None or (same and not unsure):
            waiting.append(r)
    if unsure or not same:
        waiting.extend(c.subscriptions)
    c.requests[:] = waiting
    for r in waiting:
        r.due = ticks_add(clock.ticks_ms(), r.pause)  # meanwhile everything else flows
    return late(c)


def late(c: "Client") -> int:
    """Send the requests that are due: see `lost`. Returns the milliseconds until others are."""
    least = c.tick
    i = len(c.requests)
    due = False
    while i:
        i -= 1
        if not c.requests[i].id:
            left = c.requests[i].pause and ticks_diff(c.requests[i].due, clock.ticks_ms())
            if left <= 0:
                due = True
            elif left < least:
                least = left
    if due:
        _send_due(c)
    return least


def _send_due(c):
    alone = not c.apart or not in_flight(c)
    held: list[bytes] = []  # filters whose later requests wait, too
    for r in c.requests:
        if r.id:
            continue
        left = ticks_diff(r.due, clock.ticks_ms()) if r.pause else 0
        if left > 0 or [f for f in r.filters if f in held]:
            held.extend(r.filters)
        elif alone:
            send(c, r)
            alone = not (c.apart and r.id)


def holds(c: "Client") -> bool:
    """Return whether messages have to wait: a request is alone in flight, and not for long."""
    if not c.apart or c.since is None or not in_flight(c):
        return False
    return ticks_diff(clock.ticks_ms(), c.since) < c.timeout_ms


def in_flight(c: "Client") -> int:
    """Return how many requests wait for an answer."""
    n = 0
    i = len(c.requests)
    while i:
        i -= 1
        n += c.requests[i].id > 0
    return n


def lost(c: "Client", closed: bool, flight: "int | None") -> None:
    """Handle the end of a connection: the peer may have `closed` it on a request.

    With one request and no message in flight, that request waits for a while before it is tried
    again. With more, requests are sent one at a time from now on, and messages wait for them.
    """
    n = in_flight(c)
    if not (closed and n):
        return
    if n > 1 or flight is not None:
        c.apart = True
        return
    for r in c.requests:
        if r.id:
            # The first time it may have been chance.
            r.pause = min(max(r.pause * 2, _PAUSE), _LONGEST) if r.pause else 1
            r.strikes += 1
            if r.strikes == _TELL and c.on_dropped is not None:
                for f in r.filters:
                    c.on_dropped(0, f, "the broker closed the connection on this topic filter")


def answered(c: "Client", first: int, t: int, end: int) -> "int | None":
    """Handle a SUBACK or UNSUBACK. Returns the rule that it breaks, None if it breaks none."""
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
    c.progress = True
    r.id = r.pause = r.strikes = 0
    r.granted = bytes([codes[i] for i, f in enumerate(r.asked) if codes and f in r.filters])
    c.requests.remove(r)
    if not c.requests:
        c.apart = False
    elif c.apart:
        late(c)
    return None
