"""Connect, greet, and handle the end of a connection. Loaded for that, and kept unless `release`.

This allocates memory: for the lookup, the socket, and errors.
"""

import errno
import random

from . import port
from .engine import NO_MEMORY, end_of, id_of, strip
from .port import const, drop, load, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client

_EPIPE = const(32)  # a name that boards lack
_AHEAD = const(24)  # bits that a time still to come is ahead at most; `engine` has a mask
_DOUBLED = const(28)  # times that the delay may be doubled
_LOOK_UP = const(4)  # failed tries after which the name is looked up again
_END = const(1)
_NOT_CONNECTED = const(2)
_LEFT = const(7)
_LENGTH = const(23)
_SECOND = const(25)
_FLAGS = const(26)
_REFUSED = const(256)


def step(c: "Client") -> "Any":
    """Do the next step of connecting. Returns the stream once there is one."""
    link = c.link
    try:
        if c.state == "waiting" and link.address is None:
            c.state = "resolving"
            return None  # the next step may block
        if c.state != "connecting":
            if link.address is None:
                link.resolve()
            c.state = "connecting"
            c.due = ticks_add(port.ticks_ms(), c.timeout_ms)
            link.connect()
        stream = link.stream()
        if stream:
            if c.password:
                load("hello", "").update(c)
            drop("hello", "wire")
            c.stream = stream
            c.state = "greeting"
            c.due = ticks_add(port.ticks_ms(), c.timeout_ms)
    except Exception as e:
        lost(c, e, "connect")
        return None
    if not stream and c.due - port.ticks_ms() - 1 >> _AHEAD & 63:
        lost(c, _NOT_CONNECTED, "connecting")
    return stream


def other(c: "Client", first: int, t: int, end: int) -> "int | None":
    """Handle CONNACK (section 3.2). Returns the rule that it breaks, else None."""
    flags = c.rx[t] if c.version != 3 else 0  # reserved in MQTT 3.1
    code = c.rx[t + 1]
    if end - t != 2:
        return _LENGTH
    if c.connected:
        return _SECOND
    if flags > 1 or (flags and (c.clean or code)):
        return _FLAGS
    if code:
        return _REFUSED | code
    c.session_present = flags == 1
    same = flags == 1 or (c.version == 3 and not c.clean)
    # A session whose CONNACK was lost may be a new one, even if the broker has it now.
    sure = same and c.trusted > 0
    c.trusted += sure  # even if memory is too short for the rest
    if c.two and (not same or c.unsure == 2):
        c.two.clear(c)
    # In doubt the identifiers are kept until the broker shows whose they are, with a message
    # (see `qos2.is_new`) or a PINGRESP, for which SUBSCRIBE waits (see `subs.flush`).
    c.unsure = same and (c.unsure == 1 or not sure) and any(c.received)
    if c.gate is not None:
        c.gate(sure)  # if it raises, the next poll handles this CONNACK again
    if c.large:
        c.large.trusted = same
    c.sent = c.two.resume(c, sure) if c.two else 0
    c.since = port.ticks_ms()
    if c.unsure:
        c.asked = c.since or -1
        c.acks.extend(b"\xc0\0")
    p = 0
    while p < c.end:
        if c.q[p] & 8:
            c.stats.resent += 1
            if not same:
                c.stats.renewed += 1
                c.q[p] &= 0xF7
        p = end_of(c.q, p)
    getattr(c.link, "accepted", bool)()  # bool does nothing
    c.stats.connects += 1
    c.error = None
    c.state = "online"
    i = c.tick
    if c.alone:
        c.alone.start()
    if c.subscriptions or c.requests:
        # MQTT 3.1 does not say whether the broker has the session.
        c.subs = load("subs", "")
        i = c.subs.resume(c, same, not sure or c.version == 3)
    c.due = ticks_add(c.since, i)
    c.trusted = 1
    c.connected = True
    return None


def lost(c: "Client", error: "Any", step: "Any") -> None:
    """Handle a connection that ended or could not be made: try again later.

    `error` is a number of `reasons`, or an exception. `step` says what was being done, or
    which packet broke a rule. Without memory for all of it, it is called again, and comes to the
    same result.
    """
    greeted = c.began
    if c.five:
        c.five.close(c, error, greeted)
    if c.leaving is not None:
        error = _LEFT
        c.tries = 0
    if greeted == 3 and c.leaving:
        try:  # noqa: SIM105 (there is no contextlib on a board)
            c.stream.write(c.leaving, 0, len(c.leaving))
        except Exception:
            pass
    c.stream = None
    if c.state != "offline":
        c.state = "waiting"
    try:  # noqa: SIM105 (there is no contextlib on a board)
        c.link.close()
    except Exception:
        pass
    closed = greeted > 1 and (
        error is _END
        or getattr(error, "errno", 0) in (errno.ECONNRESET, errno.ECONNABORTED, _EPIPE)
    )
    flight = mark(c)
    if closed and (c.kept or flight is not None) and not c.alone:
        c.alone = load("alone", "").Alone(c)
    if c.alone:
        c.alone.lost(closed, flight)
    if greeted > 1 and c.requests:
        load("strays").lost(c, error, step, flight, closed)
    if c.large:
        c.large.lost(closed, flight)
    c.error = None
    if error is not _LEFT:
        try:
            c.error = load("reasons", "").reason(c, error, step, greeted > 1)
        except Exception:
            c.error = NO_MEMORY
        drop("reasons", "strays", "show")
    if c.message is not None:
        c.limit = c.done = c.message.offset = c.message.size = 0
    c.asked = 0
    delay = min(c.retry_ms << min(c.tries, _DOUBLED), c.retry_max_ms)
    # From one half of the delay to the whole
    delay *= 256 + random.getrandbits(8)
    c.due = ticks_add(port.ticks_ms(), delay >> 9)
    if c.five:
        c.five.lost(c, error)
    # There was memory for everything: what must happen only once comes here.
    if greeted == 1 and not (error.__class__ is int and error >> 8 == 1) and not c.clean:
        c.trusted = c.trusted > 1
    if error is _LEFT:
        if c.leaving.__class__ is not bytearray:
            c.state = "offline"
        c.leaving = None
    else:
        c.stats.losses += 1
    c.tries += 1
    if not c.tries % _LOOK_UP:
        c.link.address = None
    c.began = c.sent = 0


def mark(c: "Client") -> "int | None":
    """Mark what was written, and cut out what need not be kept.

    Returns the packet identifier of the only message in flight, or 0 for one at QoS 0 that was
    written in part; None if there is none, -1 if there are several. Messages past PUBREC do not
    count. `sent` stays for another call, which returns the same.
    """
    q = c.q
    if c.gone:
        c.sent = strip(c, c.sent)
    p = 0
    sent = c.sent
    flight = None
    while p < len(q) and q[p]:  # a packet that Ctrl-C cut has no first byte
        e = end_of(q, p)
        if e > len(q):
            break
        if p < sent and q[p] & 6 != 6 and (q[p] & 6 or e > sent):
            i = id_of(q, p) if q[p] & 6 else 0
            flight = i if flight is None else -1
        if p < sent and (q[p] & 6 or e <= sent):
            q[p] |= 8
        p = e
    q[p:] = b""
    c.end = p
    c.acks[0:] = b""
    c.sent = strip(c, sent)
    return flight
