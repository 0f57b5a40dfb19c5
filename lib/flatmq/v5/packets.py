"""The packets of MQTT 5 other than PUBLISH, and the limits of the broker. Kept while online.

The core calls the functions of this module: it is `client.five`.
"""

from .. import port
from ..port import const, load, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# Packets with properties: see walk.TABLE.
_CONNACK = const(8)
_ANSWER = const(32)

# The rules that a packet breaks, with their texts in `reasons` and `v5.reasons`.
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
_REFUSED = const(256)

_TAKEN_OVER = const(0x8E)
_OTHER_VERSION = const(0x84)
_NEVER = const(268435455)  # ms, 3 days

acks: "Any" = None  # the module, once it has been needed


def route(c: "Client5", e: int, end: int, i: int) -> int:
    """Handle the properties of a PUBLISH: see `carry`, which is loaded with the first ones."""
    # Loading it again would allocate.
    globals()["route"] = load("carry", "v5.").route
    return c.five.route(c, e, end, i)


def Pieces(c: "Client5") -> "Any":
    """Return what takes packets larger than the buffer."""
    return load("pieces", "v5.").Pieces(c)


def other(c: "Client5", first: int, t: int, end: int) -> "Any":
    """Handle a packet other than PUBLISH, PINGRESP or a PUBACK of four bytes.

    Returns the rule that it breaks, HOLD if there is no room to answer, else True if it
    acknowledges something, or None.
    """
    global acks
    if first == 0x40 or first == 0x50 or first == 0x62 or first == 0x70:
        if acks is None:
            acks = load("acks", "v5.")
        return acks.other(c, first, t, end)
    if first == 0x20:
        return connect(c, t, end)
    if first == 0x90 or first == 0xB0:
        return granted(c, first, t, end)
    if first == 0xE0:
        return load("reasons", "v5.").other(c, t, end)
    if first != 0xF0:
        return _TYPE
    return load("auth", "v5.").other(c, t, end) if c.auth else _NOT_ASKED


def properties(c: "Client5", at: int, end: int, packet: int) -> int:
    """Check properties, and let `said` have them.

    Their length is at `at`; there are none if that is not before `end`. `packet` is its bit in
    walk.TABLE. Returns the rule that they break, else 0.
    """
    c.said.start = c.said.stop = 0
    if at >= end:
        return 0
    at = c.said.read(at, end, packet)
    if at < 0:
        return -at
    return _PROPERTIES if at < end else 0


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
    at = c.said.read(t + 2, end, _ANSWER)
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
    server.reference = said.get(0x1C)
    server.reason = said.get(0x1F)
    if code:
        if c.unanswered is not None and (code == _OTHER_VERSION or code == 1):
            c.unanswered = 2
        return _REFUSED | code
    if said.get(0x27, 4) < 4:
        return _TOO_SMALL  # for PUBACK
    if c.auth:
        what = load("auth", "v5.").accepted(c)
        if what:
            return what
    if said.find(0x12):
        what = load("hello", "v5.").rename(c, said.get(0x12))
        if what:
            return what
    limits(c)
    c.unanswered = None  # the broker speaks MQTT 5
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


def limits(c: "Client5") -> None:
    """Let `server` have the limits and features in CONNACK, or what applies without them."""
    server = c.server
    get = c.said.get
    server.receive_maximum = get(0x21, 65535)
    server.max_qos = get(0x24, 2)
    server.retain = get(0x25, 1)
    server.maximum_packet_size = get(0x27, 0)
    server.topic_alias_maximum = get(0x22, 0)
    server.client_id = get(0x12, server.client_id)  # stays if there is none
    server.keep_alive = get(0x13, -1)
    server.session_expiry = get(0x11, -1)
    server.wildcards = get(0x28, 1)
    server.identifiers = get(0x29, 1)
    server.shared = get(0x2A, 1)
    server.response_information = get(0x1A)


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
    c.inflight = c.slots
    if c.alone is c.flow:
        c.alone = None
    c.flow = None
    if error.__class__ is int and error >> 8 != 1 and error & 255 > 15 and began & 1:
        try:  # noqa: SIM105 (there is no contextlib on a board)
            load("reasons", "v5.").send(c, error & 255)
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
    if c.unanswered is not None:
        # Ctrl-C and a failed TLS handshake say nothing about the broker's version.
        if c.greeting and c.error and c.error.kind == "closed":
            c.unanswered += 1
        elif c.unanswered < 2:
            c.unanswered = 0
        if c.unanswered == 2:
            load("fallback", "v5.").fall_back(c)
