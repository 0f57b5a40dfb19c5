"""The packets of MQTT 5 other than PUBLISH, and the limits of the broker. Kept while online.

The core calls the functions of this module: it is `client.five`.
"""

import errno
import sys

from .. import MQTTError, port
from ..engine import HOLD, end_of
from ..port import const, drop, load, ticks_add
from ..queue import find, release
from .walk import checked

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# Packets with properties: see walk.TABLE.
_CONNACK = const(8)
_ANSWER = const(32)
_DISCONNECT = const(64)
_AUTH = const(128)

# The rules that a packet breaks, with their texts in `reasons` and `reasons`, and for each
# from 16 on the last digits of the reason code with which DISCONNECT says so: 0x80 and these.
_ID_0 = const(22)
_LENGTH = const(23)
_TYPE = const(24)
_SECOND = const(25)
_FLAGS = const(26)
_CODES = const(27)
_PROPERTIES = const(40)
_CODE = const(47)
_PRESENT = const(48)
_TOO_SMALL = const(49)
_NOT_ASKED = const(51)
_AUTH_FIRST = const(52)
_CONNACK_FIRST = const(53)
_REFUSED = const(256)
_SAID = const(
    b"\1\2\0\1\1\1\2\1\1\2\1\2\0\0\0\0\x15\x15\0\0\0\0\0\0\1\1\2\1\2\1\x14\2\2\0\2\2\2\2\2"
)

_TAKEN_OVER = const(0x8E)
_OTHER_VERSION = const(0x84)
# Reason codes of DISCONNECT with which a broker may refuse a message or a topic filter.
_ACCUSING = const(b"\x80\x81\x82\x83\x87\x8f\x90\x95\x97\x99\x9a\x9b\x9e\xa1\xa2")
_NEVER = const(268435455)  # ms, 3 days


def route(c: "Client5", e: int, end: int, i: int) -> int:
    """Handle the properties of a PUBLISH: see `carry`, which is loaded with the first ones."""
    sys.modules[__name__].route = load("carry", "v5.").route  # type: ignore[attr-defined]
    return c.five.route(c, e, end, i)  # loading it again would allocate


def Pieces(c: "Client5") -> "Any":
    """Return what takes packets larger than the buffer."""
    return load("pieces", "v5.").Pieces(c)


def other(c: "Client5", first: int, t: int, end: int) -> "Any":
    """Handle a packet other than PUBLISH, PINGRESP or a PUBACK of four bytes.

    Returns the rule that it breaks, HOLD if there is no room to answer, else True if it
    acknowledges something, or None.
    """
    if first == 0x40 or first == 0x50 or first == 0x62 or first == 0x70:
        return ack(c, first, t, end)
    if first == 0x20:
        return connect(c, t, end)
    if first == 0x90 or first == 0xB0:
        return granted(c, first, t, end)
    if first == 0xE0:
        return stop(c, t, end)
    if first != 0xF0:
        return _TYPE
    if not c.auth:
        return _NOT_ASKED
    if not c.connected:
        if c.acks:
            return HOLD  # the last answer has not left
        if c.began:
            return _AUTH_FIRST
    first = 0 if t == end else c.rx[t]
    if c.connected and not first and end - t < 2:
        return None  # success, in the short form
    return properties(c, t + 1, end, _AUTH) or load("auth", "v5.").auth(c, first)


def stop(c, t, end):
    """Handle DISCONNECT (section 3.14). Returns why the connection ends."""
    code = 0 if t == end else c.rx[t]
    what = properties(c, t + 1, end, _DISCONNECT)
    if what:
        return what
    c.server.note(c.said)
    error = MQTTError("closed", load("reasons", "v5.").text("DISCONNECT", code, c), code)
    if code in _ACCUSING:  # as if the peer had closed: what was sent last may be the cause
        error.errno = errno.ECONNRESET  # type: ignore[attr-defined]
    return error


def properties(c, at, end, packet):
    """Check properties, and let `said` have them.

    Their length is at `at`; there are none if that is not before `end`. Returns the rule that
    they break, else 0.
    """
    c.said.start = c.said.stop = 0
    if at >= end:
        return 0
    n = checked(c.rx, at, end, packet)
    if n != end:
        return -n if n < 0 else _PROPERTIES
    c.said.start = at + 1 if c.rx[at] < 128 else at + 2 if c.rx[at + 1] < 128 else at + 3
    c.said.stop = end
    return 0


# Acknowledgements


def ack(c, first, t, end):
    if end - t < 2:
        return _LENGTH
    if end - t > 3:
        end = properties(c, t + 3, end, _ANSWER)
        if end:
            return end
        end = t + 4
    return acknowledge(c, first, t, c.rx[t + 2] if end - t > 2 else 0)


def acknowledge(c: "Client5", first: int, t: int, code: int) -> "Any":
    """Handle an acknowledgement whose packet identifier is at `t` in the buffer."""
    if not (c.rx[t] or c.rx[t + 1]):
        return _ID_0
    if code > 127:
        if first != 0x62:  # else the broker has forgotten the identifier: there is nothing to keep
            return refused(c, first, c.rx[t] << 8 | c.rx[t + 1], code)
    elif code and (code != 0x10 or first > 0x50):
        return _CODE | code << 9
    if first == 0x40:
        return done(c, c.rx[t] << 8 | c.rx[t + 1])
    if c.two is None:
        c.two = load("qos2")
    code = c.two.other(c, first, t, t + 2)
    if first == 0x70:
        settle(c, c.rx[t] << 8 | c.rx[t + 1])
    return code


def refused(c, first, pid, code):
    taken = load("reasons", "v5.").refused(c, first, pid, code)
    drop("reasons", "strays")
    settle(c, pid)
    return taken


def done(c, pid):
    """Handle a PUBACK that reports success."""
    p = find(c, pid)
    if p < 0 or end_of(c.q, p) > c.sent or c.q[p] & 6 == 6:
        if not (c.large and c.large.settle(pid)):
            c.stats.strays += 1
            settle(c, pid)
        return None
    c.stats.downgraded += c.q[p] >> 2 & 1
    release(c, p)
    return True


def settle(c: "Client5", pid: int) -> None:
    """Note that the broker has answered a message that is no longer in the queue."""
    if pid in c.owed:
        c.owed.remove(pid)
    allot(c)


def granted(c, first, t, end):
    """Handle a SUBACK or UNSUBACK."""
    rx = c.rx
    if end - t < 3:
        return _LENGTH
    if not rx[t] and not rx[t + 1]:
        return _ID_0
    at = checked(rx, t + 2, end, _ANSWER)
    if at < 0:
        return -at
    if at == end:
        return _CODES
    for n in rx[at:end]:
        if n < 128 and n > 2 if first == 0x90 else n < 128 and n != 0 and n != 0x11:
            return _CODES
    rx[at - 1] = rx[t + 1]  # as in 3.1.1, where no properties lie between
    rx[at - 2] = rx[t]
    return (c.subs or load("subs", "")).other(c, first, at - 2, end)


# CONNACK and the limits in it


def connect(c, t, end):
    """Handle CONNACK (section 3.2). Returns the rule that it breaks, else None."""
    flags = c.rx[t]
    code = c.rx[t + 1]
    if c.connected:
        return _SECOND
    if end - t < 2 or (end - t == 2 and not code):
        return _LENGTH
    # A broker that speaks only 3.1.1 answers with a 3.1.1 CONNACK, of two bytes.
    what = properties(c, t + 2, end, _CONNACK)
    if what:
        return what
    if 0 < code < 128 and end - t > 2:
        return _CODE | code << 9
    if flags > 1:
        return _FLAGS
    if flags and (code or c.clean):
        return _PRESENT
    server = c.server
    said = c.said
    if code:
        server.note(said)
        if code == _OTHER_VERSION or code == 1:
            c.unanswered = 2
        return _REFUSED | code
    if said.get(0x27, 4) < 4:
        return _TOO_SMALL  # for PUBACK
    if c.auth:
        if c.acks:
            return HOLD
        if c.began:  # its limits would come too late for the rest of that packet
            return _CONNACK_FIRST
        what = load("auth", "v5.").auth(c, -1)
        if what:
            return what
    if said.find(0x12):
        what = load("hello", "v5.").rename(c, said.get(0x12))
        if what:
            return what
    server.read(said)
    c.falls_back = False
    n = server.keep_alive if server.keep_alive >= 0 else c.keepalive
    c.interval = n * 750 or _NEVER
    c.tick = min(c.interval, c.ack_ms // 3 or _NEVER, 10000)
    c.strict = not server.retain or 0 < server.maximum_packet_size < c.room
    c.max_qos = min(c.own_qos, server.max_qos)
    c.topic = c  # its QoS may be too high now
    c.owed[:] = []
    for r in c.requests:
        if not r.strikes:
            r.pause = 0  # the broker may take it now: see `flow`
    if c.pending and (c.strict or c.max_qos < 2 or c.aliases or c.large):
        load("flow", "v5.").admit(c, flags == 1 and c.trusted)
    c.aliases = 0  # they end with their connection
    load("dial", "").other(c, 0x20, t, t + 2)
    allot(c)
    return None


def owe(c: "Client5", pid: int) -> None:
    """Note that a message in flight was dropped: it takes up a place until it is answered."""
    c.owed.append(pid)
    if c.connected and not c.alone:
        c.alone = c.flow = load("flow", "v5.").Flow(c)
    allot(c)


def allot(c: "Client5") -> None:
    """Set `inflight` to what is left of the broker's Receive Maximum (section 4.9)."""
    n = c.server.receive_maximum - len(c.owed)
    if c.large and c.large.waits and c.large.pid:
        n -= 1
    if c.state == "online":
        c.inflight = min(c.slots, n)
        if c.kept > c.inflight and not c.alone:
            c.alone = c.flow = load("flow", "v5.").Flow(c)


def block(c: "Client5", r: "Any") -> "bytes | None":
    """Return the properties of a request; None if it is too large for the broker.

    It has an identifier if the broker supports any.
    """
    data = r.head if r.handler is not None and c.server.identifiers else b"\0"
    if c.server.maximum_packet_size and load("flow", "v5.").puts_off(c, r, data):
        return None
    return data


def late(c: "Client5", ms: int) -> int:
    """Do what is due by the clock. Returns the milliseconds until something is, at most `ms`."""
    return c.replies.late(ms) if c.replies else ms


# The end of a connection


def close(c: "Client5", error: "Any", began: int) -> None:
    """Begin with the end of a connection: see `dial.lost`.

    If the broker broke a rule, a DISCONNECT says which, unless a part of a packet has left.
    """
    c.greeting = c.state == "greeting"
    c.tagged = False
    c.inflight = c.slots
    if c.alone is c.flow:
        c.alone = None
    c.flow = None
    if error.__class__ is int and error >> 8 != 1 and error & 255 > 15 and began & 1:
        code = _SAID[(error & 255) - 16]
        if code:
            try:
                packet = bytes((0xE0, 1, 0x80 + code))
                c.stream.write(packet, 0, len(packet))
            except Exception:
                pass


def lost(c: "Client5", error: "Any") -> None:
    """Finish with the end of a connection."""
    if c.aliases:
        try:
            load("flow", "v5.").without_aliases(c)
            c.aliases = 0
        except MemoryError:  # CONNACK does it
            pass
    if getattr(error, "code", 0) == _TAKEN_OVER and error.kind == "closed":
        # Two clients with the same identifier would otherwise keep ending each other.
        c.due = ticks_add(port.ticks_ms(), c.retry_max_ms)
    if c.replies:
        c.replies.late(0)
    if c.falls_back:
        # Ctrl-C and a failed TLS handshake say nothing about the broker's version.
        if c.greeting and c.error and c.error.kind == "closed":
            c.unanswered += 1
        elif c.unanswered < 2:
            c.unanswered = 0
        if c.unanswered == 2:
            load("fallback", "v5.").fall_back(c)
    else:
        c.unanswered = 0
