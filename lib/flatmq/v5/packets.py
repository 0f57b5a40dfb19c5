"""The packets of MQTT 5 other than PUBLISH, and the limits of the broker.

The core calls the functions of this module: it is `client.five`.
"""

from .. import port
from ..engine import NO_MEMORY
from ..port import const, drop, load, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# What the broker offers: see `v5.server`.
_RECEIVE_MAXIMUM = const(0)
_MAXIMUM_PACKET_SIZE = const(3)
_IDENTIFIERS = const(9)

_ANSWER = const(32)  # packets with properties: see walk.TABLE

# The rules that a packet breaks, with their texts in `reasons` and `v5.reasons`.
_ID_0 = const(22)
_LENGTH = const(23)
_TYPE = const(24)
_CODES = const(27)
_PROPERTIES = const(40)
_NOT_ASKED = const(51)

_TAKEN_OVER = const(0x8E)

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
        return greeted(c, t, end)
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
    if at >= end:
        if c.said:
            c.said.start = c.said.stop = 0
        return 0
    at = view(c).read(at, end, packet)
    if at < 0:
        return -at
    return _PROPERTIES if at < end else 0


def greeted(c: "Client5", t: int, end: int) -> "Any":
    """Handle CONNACK."""
    sure = c.rx[t] == 1 and c.trusted
    try:
        what = load("connack" if c.level > 4 else "fallback", "v5.").accepted(c, t, end)
    except MemoryError:  # the next connection tries it again
        if sure and not c.connected:
            c.trusted = 2
        return NO_MEMORY
    if c.release:
        drop("connack")
    return what


def view(c: "Client5") -> "Any":
    """Return what reads the properties of packets. It is loaded for the first ones, and kept."""
    if c.said is None:
        walk = load("walk", "v5.")
        walk.held = True
        c.said = walk.View(c.rx)
    return c.said


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
    at = view(c).read(t + 2, end, _ANSWER) if rx[t + 2] else t + 3
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


# The limits of the broker


def owe(c: "Client5", pid: int) -> None:
    """Note that a message in flight was dropped: it takes up a place until it is answered."""
    if c.connected and not c.alone:
        c.alone = c.flow = load("flow", "v5.").Flow(c)
    c.owed.append(pid)
    allot(c)


def allot(c: "Client5") -> None:
    """Set `inflight` to what is left of the broker's Receive Maximum (section 4.9)."""
    n = c.offers[_RECEIVE_MAXIMUM] - len(c.owed)
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
    data = r.head if r.handler is not None and c.offers[_IDENTIFIERS] else b"\0"
    if c.offers[_MAXIMUM_PACKET_SIZE] and load("flow", "v5.").puts_off(c, r, data):
        return None
    return data


def late(c: "Client5", ms: int) -> int:
    """Do what is due by the clock. Returns the milliseconds until something is, at most `ms`."""
    return c.replies.late(ms) if c.replies else ms


# The end of a connection


def close(c: "Client5", error: "Any", began: int) -> None:
    """Begin with the end of a connection: see `dial.lost`.

    If the broker broke a rule of MQTT 5, a DISCONNECT says which, unless a part of a packet has
    left.
    """
    c.greeting = c.greeting or c.state == "greeting"
    c.inflight = c.slots
    if c.alone is c.flow:
        c.alone = None
    c.flow = None
    if error.__class__ is int and error >> 8 != 1 and error & 255 > 15 and began & c.level & 1:
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
        load("fallback", "v5.").lost(c)
    c.greeting = False
