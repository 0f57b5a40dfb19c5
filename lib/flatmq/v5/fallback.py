"""Try MQTT 5 and 3.1.1 in turn, until the broker accepts one. Loaded for that."""

from ..engine import end_of
from ..hello import parts_of
from ..message import NEVER
from ..port import const, drop, load
from ..wire import connect, get_length, put_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# The rules that CONNACK breaks: see `v5.connack`.
_LENGTH = const(23)
_REFUSED = const(256)

_VERSION = const(1)  # unacceptable protocol version
_OTHER_VERSION = const(0x84)


class _Old:
    """Stands in for a client in `connect`, and for a large message."""

    version = 4
    five = None
    head = None


def lost(c: "Any") -> None:
    """Choose the version of the next CONNECT after one that failed."""
    if c.greeting.__class__ is bytearray and c.hello.find(b"MQTT\4", 0, 12) > 0:
        c.hello = c.greeting  # else it was changed meanwhile
    kind = c.greeting and c.error and c.error.kind
    # Ctrl-C and a failed TLS handshake say nothing about the broker's version.
    if kind == "closed" or (c.level < 5 and (kind == "timeout" or kind == "protocol")):
        c.unanswered = c.unanswered + 1 & 3
    else:
        c.unanswered &= 2
    before = c.level
    c.level = 4 if c.unanswered > 1 else 5
    if c.level < before:
        c.error = None  # the broker may well speak 3.1.1
    drop("fallback", "reasons")


def update(c: "Client5", password: "Any") -> None:
    """Set a CONNECT of 3.1.1 for the next connection. `password` is False to keep it."""
    hello = _hello(c, password)
    c.greeting = c.hello
    c.hello = hello


def _hello(c, password=False):
    client_id, user, old, will = parts_of(c)
    if password is False:
        password = old
    if user is None and (password is not None or c.password not in (bool, None)):
        user = b""
    seen: Any = _Old()
    seen.clean = c.clean
    seen.keepalive = c.keepalive
    connect(seen, client_id, user, password, will)
    return seen.hello


def accepted(c: "Client5", t: int, end: int) -> "Any":
    """Handle the CONNACK for a CONNECT of 3.1.1. Returns the rule that it breaks, else None."""
    code = c.rx[t + 1] if end - t > 1 else 0
    if code == _VERSION or code == _OTHER_VERSION:
        c.unanswered = 0  # it may well speak MQTT 5
    if code:
        return _REFUSED | code
    if end - t != 2:
        return _LENGTH
    if c.five:  # else this CONNACK is handled again
        fall_back(c)
    if c.replies:
        c.replies.end()
    return load("dial", "").other(c, 0x20, t, end)


def fall_back(c: "Client5") -> None:
    """Switch a client to 3.1.1, at the first connection that a broker accepts.

    Waiting messages lose their properties.
    """
    # What may fail for lack of memory comes first.
    hello = _hello(c)
    asked = c.subscriptions + c.requests
    queue = b""
    p = 0
    while p < c.end:
        e = end_of(c.q, p)
        queue += _without(bytes(c.q[p:e]))
        p = e
    large: Any = c.large if c.large and c.large.waits else _Old()
    head = large.head
    if head:
        head = bytearray(_without(head, large.size))
    old = c.five, c.end, c.password, large.head
    try:
        c.hello = hello
        c.version = 4
        c.five = None
        if c.password is bool:
            c.password = None
        c.carry(None)
        for s in asked:
            s.qos &= 3
        for i in range(c.learned):
            c.names[i][0:] = NEVER
        large.head = head
        c.end = len(queue)
        c.q[0:] = queue  # last: what Ctrl-C has stopped before is done again
    except:
        c.version = 5
        c.five, c.end, c.password, large.head = old
        c.carry(None)
        raise
    drop("hello", "wire", "properties", "fallback", "packets", "reasons")


def _without(packet, more=0):
    """Return an MQTT 5 PUBLISH as a 3.1.1 PUBLISH.

    `more`: bytes of its payload that are not in `packet`.
    """
    at = 1
    while packet[at] > 127:
        at += 1
    begin = at + 1
    at = begin + 2 + (packet[begin] << 8 | packet[begin + 1])
    if packet[0] & 6:
        at += 2
    n = get_length(packet, at, len(packet))
    body = packet[begin:at] + packet[at + 1 + (n & 3) + (n >> 2) :]
    head = bytearray(packet[:1])
    put_length(head, len(body) + more)
    return bytes(head + body)
