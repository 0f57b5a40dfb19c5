"""CONNACK (MQTT 5 section 3.2). Kept for the next connection, unless the client has `release`."""

from ..port import const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# What the broker offers: see `v5.server`.
_MAX_QOS = const(1)
_RETAIN = const(2)
_MAXIMUM_PACKET_SIZE = const(3)
_CLIENT_ID = const(5)
_KEEP_ALIVE = const(6)
_REFERENCE = const(12)
_REASON = const(13)

_CONNACK = const(8)  # see walk.TABLE
# The rules that CONNACK breaks, with their texts in `reasons` and `v5.reasons`.
_LENGTH = const(23)
_SECOND = const(25)
_FLAGS = const(26)
_CODE = const(47)
_PRESENT = const(48)
_TOO_SMALL = const(49)
_REFUSED = const(256)

_OTHER_VERSION = const(0x84)
_NEVER = const(268435455)  # ms, 3 days


def accepted(c: "Client5", t: int, end: int) -> "Any":
    """Handle CONNACK (section 3.2). Returns the rule that it breaks, else None."""
    flags = c.rx[t]
    code = c.rx[t + 1]
    if c.connected:
        return _SECOND
    if end - t == 2 and code < 128 and c.unanswered is not None:
        c.unanswered = 2  # a CONNACK of 3.1.1, whatever it says
    if end - t < 2 or (end - t == 2 and not code):
        return _LENGTH
    what = c.five.properties(c, t + 2, end, _CONNACK)
    if what:
        return what
    if 0 < code < 128 and end - t > 2:
        return _CODE | code << 9
    if flags > 1:
        return _FLAGS
    if flags and (code or c.clean):
        return _PRESENT
    offers = c.offers
    said = c.five.view(c)
    offers[_REFERENCE] = said.get(0x1C)
    offers[_REASON] = said.get(0x1F)
    if code:
        if c.unanswered is not None and code == _OTHER_VERSION:
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
        drop("hello", "wire")
        if what:
            return what
    limits(offers, said.get)
    c.unanswered = None  # the broker speaks MQTT 5
    # With 0 the broker does not look for dead links; a client that does may send PINGREQ.
    n = offers[_KEEP_ALIVE] if offers[_KEEP_ALIVE] > 0 else c.keepalive
    c.interval = n * 750 or _NEVER
    c.tick = min(c.interval, c.ack_ms // 3 or _NEVER, 10000)
    c.strict = not offers[_RETAIN] or 0 < offers[_MAXIMUM_PACKET_SIZE] < c.room
    c.max_qos = min(c.own_qos, offers[_MAX_QOS])
    c.topic = c  # its QoS may be too high now
    c.owed[:] = []
    if c.pending and (c.strict or c.max_qos < 2 or c.aliases or c.large):
        load("flow", "v5.").admit(c, flags == 1 and c.trusted)
    c.aliases = 0  # they end with their connection
    load("dial", "").other(c, 0x20, t, t + 2)
    c.five.allot(c)
    if c.replies:  # the next poll computes when a request is due
        c.due = c.since  # type: ignore[assignment]
    return None


def limits(offers: "list[Any]", get: "Any") -> None:
    """Set the limits and features in CONNACK, or what applies without them.

    `get` takes the identifier of a property, and the value without it. The order is that of
    `v5.server`.
    """
    offers[:12] = (
        get(0x21, 65535),
        get(0x24, 2),
        get(0x25, 1),
        get(0x27, 0),
        get(0x22, 0),
        get(0x12, offers[_CLIENT_ID]),  # stays if there is none
        get(0x13, -1),
        get(0x11, -1),
        get(0x28, 1),
        get(0x29, 1),
        get(0x2A, 1),
        get(0x1A),
    )
