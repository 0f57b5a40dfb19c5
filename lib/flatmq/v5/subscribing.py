"""subscribe and unsubscribe with what MQTT 5 adds. Loaded for each call."""

from ..message import NEVER
from ..port import const, load
from ..subscribing import add, encode, extend, new, replace
from ..subscribing import unsubscribe as end
from ..wire import number, put_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..message import Message
    from . import Client5

# What the broker offers: see `v5.server`.
_MAXIMUM_PACKET_SIZE = const(3)
_IDENTIFIERS = const(9)

_IDENTIFIER = const(0x0B)


def subscribe(
    self: "Client5",
    filters: "bytes | str | list[bytes] | list[str]",
    handler: "Callable[[Message], None]",
    qos: int = 0,
    chunks: bool = False,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
) -> "Any":
    """Call `handler(message)` for messages that match a topic filter: see `Client.subscribe`.

    no_local             the broker does not send back messages published by this client
    retain_as_published  `message.retain` is as published
    retain_handling      retained messages come with every subscription (0), only with a new one
                         (1), or never (2)

    After falling back to 3.1.1 these three are ignored.
    """
    number("retain_handling", retain_handling, 0, 2)
    for name, value in (("no_local", no_local), ("retain_as_published", retain_as_published)):
        if value not in (False, True):
            load("checks").bool(name, value)
    # The broker may grant less than it is asked for.
    checked, names = encode(filters, qos, self.own_qos, chunks)
    if no_local and any(f.startswith(b"$share/") for f in checked):
        raise ValueError("no_local must be False with $share")
    kept = replace(self, checked, handler)
    self.subs = load("subs", "")
    made: Any = new(checked, names, handler, qos, chunks)
    made.identifier = 0
    made.head = b"\0"
    if self.five:
        made.qos |= no_local << 2 | retain_as_published << 3 | retain_handling << 4
        made.identifier = self.numbered + 1
        s: Any
        for s in self.subscriptions:
            if s.filters == checked:  # messages with the old identifier may be on their way
                made.identifier = s.identifier
        if self.bulk is None:  # else each message would carry it
            head = bytearray((0, _IDENTIFIER))
            put_length(head, made.identifier)
            head[0] = len(head) - 1
            made.head = bytes(head)
        _allow(self, made)
    blocks = self.blocks
    self.blocks = None  # if memory is short here, they are claimed again
    extend(self, len(kept) + 1)
    if blocks:
        more = self.learned - len(blocks)
        self.blocks = blocks + [bytearray(NEVER) for _ in range(more)]
    self.numbered = max(self.numbered, made.identifier)
    return add(self, kept, made)


def _allow(c, r):
    """Raise ValueError if a request is larger than the broker takes."""
    most = c.offers[_MAXIMUM_PACKET_SIZE]
    if most:
        block = r.head if r.handler is not None and c.offers[_IDENTIFIERS] else b"\0"
        n = load("flow", "v5.").size_of(r, block)
        if n > most:
            load("checks").packet(n, most, True)


def unsubscribe(self: "Client5", filters: "bytes | str | list[bytes] | list[str]") -> "Any":
    """End the subscription to one or more topic filters: see `Client.unsubscribe`.

    After UNSUBACK `granted` has a reason code for each.
    """
    if self.five:
        checked, names = encode(filters, 0, 0)
        _allow(self, new(checked, names, None, 0, False))
    return end(self, filters)
