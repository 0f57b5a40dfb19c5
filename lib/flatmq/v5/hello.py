"""Build CONNECT and handle CONNACK (MQTT 5 sections 3.1 and 3.2). Loaded for one call."""

from ..port import const, load
from ..wire import field, get_length, put_length

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
_NAMED = const(54)
_REFUSED = const(256)

_OTHER_VERSION = const(0x84)
_NEVER = const(268435455)  # ms, 3 days


def connect(
    c: "Client5",
    client_id: "Any",
    user: "Any",
    password: "Any",
    will: "Any" = None,
    auth_data: bytes = b"",
) -> None:
    """Set the CONNECT of a client.

    `will` is None, or topic, payload, QoS, retain and encoded properties. `auth_data` is a
    property for one connection.
    """
    flags = 2 if c.clean else 0
    body = bytearray((c.keepalive >> 8, c.keepalive & 255))
    block = c.asks
    if auth_data:
        n = get_length(block, 0, len(block)) & 3
        block = _block(block[n + 1 :] + auth_data)
    body.extend(block)
    _add(body, field("client_id", client_id))
    if will is not None:
        flags |= 4 | will[2] << 3 | (32 if will[3] else 0)
        body.extend(will[4])
        _add(body, will[0])
        _add(body, will[1])
    if user is not None:
        flags |= 128
        _add(body, field("user", user))
    if password is not None:
        flags |= 64
        _add(body, field("password", password, None))
    head = bytearray(5)
    head[0] = 0x10
    head = head[: put_length(head, 1, len(body) + 8)]
    head.extend(b"\0\4MQTT\5")
    head.append(flags)
    c.hello = head + body


def _block(data):
    length = bytearray(4)
    return bytes(length[: put_length(length, 0, len(data))] + data)


def _add(body, data):
    body.append(len(data) >> 8)
    body.append(len(data) & 255)
    body.extend(data)


def parts_of(c: "Client5") -> "tuple[Any, Any, Any, Any]":
    """Return what the CONNECT of a client says: client identifier, user, password and will."""
    hello = c.hello
    at = 12 + (get_length(hello, 1, len(hello)) & 3)
    flags = hello[at - 3]
    found: list[Any] = []
    at += _skip(hello, at)
    while at < len(hello):
        if len(found) == 1 and flags & 4:
            n = _skip(hello, at)
            found.append(bytes(hello[at : at + n]))
            at += n
        n = at + 2 + (hello[at] << 8 | hello[at + 1])
        found.append(bytes(hello[at + 2 : n]))
        at = n
    client_id = found.pop(0)
    will = None
    if flags & 4:
        block = found.pop(0)
        will = found.pop(0), found.pop(0), flags >> 3 & 3, flags & 32, block
    user = found.pop(0) if flags & 128 else None
    password = found.pop(0) if flags & 64 else None
    return client_id, user, password, will


def _skip(buf, at):
    """Return the size of the block of properties at `at`."""
    n = get_length(buf, at, len(buf))
    return 1 + (n & 3) + (n >> 2)


def update(c: "Client5", password: "bytes | str | None") -> bytearray:
    """Return the CONNECT of a client for its next connection.

    `password` is None to keep it. The function of `auth` gives the data.
    """
    data = b""
    if c.auth:
        data = load("hello").ask(c.auth[1], None)
        if data is None:
            data = b""
        else:
            data = field("auth_data", data, None)
            data = bytes((0x16, len(data) >> 8, len(data) & 255)) + data
    client_id, user, old, will = parts_of(c)
    connect(c, client_id, user, old if password is None else password, will, data)
    return c.hello


def rename(c: "Client5", name: bytes) -> int:
    """Use the client identifier that the broker has assigned to a client without one.

    Returns the rule that it breaks if the client has one, else 0.
    """
    client_id, user, password, will = parts_of(c)
    if not client_id:
        connect(c, name, user, password, will)
    return _NAMED if client_id else 0


def keep() -> None:
    """Return None: the password stays, and only the data of `auth` change."""
    return None


def accepted(c: "Client5", t: int, end: int) -> "Any":
    """Handle CONNACK (section 3.2). Returns the rule that it breaks, else None."""
    held = c.said  # None if no other packet had properties
    c.said = load("walk", "v5.").View(c.rx)
    try:
        return _accepted(c, t, end)
    finally:
        c.said = held


def _accepted(c, t, end):
    flags = c.rx[t]
    code = c.rx[t + 1]
    if c.connected:
        return _SECOND
    if end - t < 2 or (end - t == 2 and not code):
        return _LENGTH
    # A broker that speaks only 3.1.1 answers with a 3.1.1 CONNACK, of two bytes.
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
    said = c.said
    offers[_REFERENCE] = said.get(0x1C)
    offers[_REASON] = said.get(0x1F)
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
        what = rename(c, said.get(0x12))
        if what:
            return what
    limits(offers, said.get)
    c.unanswered = None  # the broker speaks MQTT 5
    n = offers[_KEEP_ALIVE] if offers[_KEEP_ALIVE] >= 0 else c.keepalive
    c.interval = n * 750 or _NEVER
    c.tick = min(c.interval, c.ack_ms // 3 or _NEVER, 10000)
    c.strict = not offers[_RETAIN] or 0 < offers[_MAXIMUM_PACKET_SIZE] < c.room
    c.max_qos = min(c.own_qos, offers[_MAX_QOS])
    c.topic = c  # its QoS may be too high now
    c.owed[:] = []
    for r in c.requests:
        if not r.strikes:
            r.pause = 0  # the broker may take it now: see `flow`
    if c.pending and (c.strict or c.max_qos < 2 or c.aliases or c.large):
        load("flow", "v5.").admit(c, flags == 1 and c.trusted)
    c.aliases = 0  # they end with their connection
    load("dial", "").other(c, 0x20, t, t + 2)
    c.five.allot(c)
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
