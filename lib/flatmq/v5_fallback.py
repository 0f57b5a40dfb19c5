"""Fall back to MQTT 3.1.1 with a broker that does not speak MQTT 5.

Loaded when that happens.
"""

from .connection import Connection
from .port import const
from .resend import assume_sent, stop_of

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .v5 import Client5

_VOID = const(0x36)  # see resend


def fall_back(c: "Client5") -> None:
    """Switch a client that has never been online to 3.1.1, from its next connection on.

    Waiting messages lose their properties.
    """
    from .setup import hello_of
    from .unload import unload

    o = dict(c.options)
    o["version"] = 4
    o["falls_back"] = False
    if o["will"]:
        o["will"] = o["will"][:4]
    o["session_expiry"] = None
    if o["password"] is not None and o["user"] is None:
        o["user"] = b""
    c.hello = hello_of(o)
    c.options = o
    c.level = 4
    c.error = None  # the broker may well speak 3.1.1
    c.quota = c.slots
    c.strict = False
    c.empty = c.block = b""
    c.topic = c
    c.names[:] = [object()] * len(c.names)
    _rewrite(c)
    old = c.connection
    due = c.due
    c.connection = Connection(c)
    c.connection.start()
    c.due = due
    if c.router:
        _route(c)
    if old.replies:
        old.replies.end()
    unload("setup", "wire", "topic", "properties")
    # 3.1.1 does not need these. Objects that still use one keep it until they are collected.
    unload("v5_connection", "v5_router", "v5_walk", "v5_resend", "v5_fallback")


def _rewrite(c):
    """Remove the properties from the packets in the ring, and move the packets to its start."""
    packets = []
    sent = bool(c.past and c.past.sent >= 0)
    at = c.tail
    while at != c.end:
        if at == c.top and at:
            at = 0
            continue
        stop = stop_of(c.buf, at)
        i = c.offs.index(at) if at in c.offs else -1
        if i >= 0 or (c.buf[at] != _VOID and not c.buf[at] & 6):
            packets.append((i, _without(bytes(c.buf[at:stop]))))
        at = stop
    c.tail = c.at = c.part = c.end = c.top = 0
    c.limit = c.size
    c.past = None
    for i, packet in packets:
        if i >= 0:
            c.offs[i] = c.end
        c.buf[c.end : c.end + len(packet)] = packet
        c.end += len(packet)
    if sent:
        assume_sent(c)
    large = c.large
    if large and large.waits:
        large.head = bytearray(_without(large.head, large.size))


def _without(packet, more=0):
    """Return an MQTT 5 PUBLISH as a 3.1.1 PUBLISH.

    `more`: bytes of its payload that are not in `packet`.
    """
    from .wire import get_length, put_length

    at = 1
    while packet[at] > 127:
        at += 1
    begin = at + 1
    at = begin + 2 + (packet[begin] << 8 | packet[begin + 1])
    if packet[0] & 6:
        at += 2
    n = get_length(packet, at, len(packet))
    body = packet[begin:at] + packet[at + 1 + (n & 3) + (n >> 2) :]
    head = bytearray(5)
    head[0] = packet[0]
    return bytes(head[: put_length(head, 1, len(body) + more)]) + body


def _route(c):
    """Move the subscriptions to a router for 3.1.1."""
    old = c.router
    c.router = None
    new = c.load()
    new.subscriptions = old.subscriptions
    new.requests = old.requests
    for s in new.subscriptions + new.requests:
        s.head = b""
        s.qos &= 3
    new.forget()
