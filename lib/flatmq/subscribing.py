"""subscribe and unsubscribe. Loaded for each call."""

from . import message, port
from .message import NEVER, Message, Subscription
from .port import const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from . import Client


def subscribe(
    self: "Client",
    filters: "bytes | str | list[bytes] | list[str]",
    handler: "Callable[[Message], None]",
    qos: int = 0,
    chunks: bool = False,
) -> Subscription:
    """Call `handler(message)` for messages that match a topic filter, or any of a list.

    They come at up to `qos`. The request is sent once online, and again whenever the broker
    has lost the session. With `chunks` the handler also takes messages larger than `rx_size`,
    in pieces: see `Message`.

    Returns a Subscription, whose `granted` is None until the broker has answered. ValueError or
    TypeError for a bad filter, handler or QoS, and for more than `subscriptions` calls.
    """
    checked, names = encode(filters, qos, self.max_qos, chunks)
    kept = replace(self, checked, handler)
    self.subs = load("subs", "")
    made = new(checked, names, handler, qos, chunks)
    extend(self, len(kept) + 1)
    return add(self, kept, made)


def unsubscribe(self: "Client", filters: "bytes | str | list[bytes] | list[str]") -> Subscription:
    """End the subscription to a topic filter, or to each of a list of them.

    It may have been made before a reboot. Returns a Subscription whose `granted` is None until
    UNSUBACK.
    """
    checked, names = encode(filters, 0, 0)
    self.subs = load("subs", "")
    made = new(checked, names, None, 0, False)
    return update(self, self.subscriptions, checked, None, made)


def withdraw(self: "Client", subscription: Subscription) -> None:
    """End a subscription on this side alone: the broker is not asked, and may still have it."""
    kept = [s for s in self.subscriptions if s is not subscription]
    requests = [r for r in self.requests if r is not subscription]
    keep(self, kept)
    self.requests = requests


# These change a client once there was memory for all of it: a call that raises changes nothing.


def add(c: "Client", kept: "list[Any]", new: Subscription) -> Subscription:
    """Add a subscription to those in `kept`, and send it."""
    kept.append(new)
    for r in c.requests:  # what was refused is tried now, and does not hold this one up
        for f in new.filters:
            if f in r.asked and not (r.id or r.strikes):
                r.due = port.ticks_ms()
    # An UNSUBSCRIBE that is sent again after a loss must not end it.
    return update(c, [r for r in c.requests if r.handler is None], new.filters, kept, new)


def update(
    c: "Client", known: "list[Any]", gone: "list[bytes]", kept: "Any", new: Subscription
) -> Subscription:
    """Send a request, once the filters in `gone` are taken from those in `known`.

    Only the subscriptions in `kept` stay; None: those in `known` that have filters left.
    """
    parts = [difference(s, gone) for s in known]
    left = [s for i, s in enumerate(known) if parts[i][0]]
    kept = left if kept is None else kept
    # What is not sent yet is withdrawn without its last filter, or if another one replaces it.
    others = [r for r in c.requests if r.handler is None and r not in known]
    requests = [r for r in c.requests if r.id or r in left or r in kept or r in others]
    requests.append(new)
    keep(c, kept)
    for s in known:
        s.filters, s.names, s.granted = parts.pop(0)
        if not (s.id and c.connected):  # else they are those of the packet that is on its way
            s.asked = [f for f in s.asked if f in s.filters] or s.filters
        if not (s.id or s.filters):
            s.granted = b""
    return send(c, requests)


def new(
    filters: "list[bytes]", names: "list[bytes]", handler, qos: int, chunks: bool
) -> Subscription:
    """Return a new subscription, or a request to end one."""
    s = Subscription()
    s.filters = s.asked = filters
    s.names = filters if names == filters else names
    s.handler = handler
    s.qos = qos
    s.chunks = chunks
    s.granted = None
    s.id = s.strikes = s.pause = s.due = 0
    for f in names:
        if b"+" in f or b"#" in f:
            message.matches = load("wild").matches
    return s


def replace(c: "Client", filters: "list[bytes]", handler: "Any") -> "list[Any]":
    """Return the subscriptions that a new one to these filters does not replace.

    TypeError or ValueError if its handler is none, or if there is no room for it or its SUBACK.
    """
    if not callable(handler):
        raise TypeError(f"handler must be callable, not {handler!r}")
    most = len(c.rx) // 2 - 7
    if len(filters) > most:
        n = len(filters)
        raise ValueError(f"number of topic filters must be at most {most}, not {n}: see rx_size")
    kept = [s for s in c.subscriptions if s.filters != filters]
    if len(kept) == c.most:
        raise ValueError(f"subscriptions must be at most {c.most}: no room for another")
    return kept


def keep(c: "Client", kept: "list[Any]") -> None:
    """Keep only the subscriptions in `kept`.

    Adjusts `done` and `limit`, which count subscriptions for the message being delivered.
    """
    for i in range(len(c.subscriptions), 0, -1):
        if c.subscriptions[i - 1] not in kept:
            c.done -= i <= c.done
            c.limit -= i <= c.limit
    c.subscriptions = kept
    for i in range(c.learned):  # the handlers of the last topic names
        c.names[i][0:] = NEVER


def extend(c: "Client", subscriptions: int) -> None:
    """Claim memory to remember topic names: two for a subscription, eight for many."""
    if c.message is None:
        Message(c.rx, c)
    n = c.learned
    more = max(n, 2 if subscriptions < 2 else 4 if subscriptions < 3 else 8)
    new = [bytearray(48) for _ in range(n, more)]  # before anything changes: memory may be short
    for i in range(n, more):
        c.names[i] = new[i - n]
        c.names[i][0:] = NEVER
    for i in range(more, 8):
        c.names[i] = c.names[i - more]
    c.learned = more
    c.index = 0


def encode(
    filters: "Any", qos: int, most: int, chunks: bool = False
) -> "tuple[list[bytes], list[bytes]]":
    """Return topic filters as bytes, and the filters that topic names must match (section 4.7).

    TypeError or ValueError for a bad filter or `chunks`, or for a QoS above `most`.
    """
    from .wire import field, is_filter, number

    if qos.__class__ is not int or qos < 0 or qos > most:
        load("checks").qos(qos, most)
    if chunks not in (False, True):
        load("checks").bool("chunks", chunks)
    if isinstance(filters, (bytes, str)):
        filters = [filters]
    if not isinstance(filters, (list, tuple)):
        kind = type(filters).__name__
        raise TypeError(f"topic filter must be bytes, str or a list of them, not {kind}")
    number("number of topic filters", len(filters), 1, 65535)
    filters = [field("topic filter", f, is_filter) for f in filters]
    for f in filters:
        if f.startswith(b"$share/") and (_name(f) in (b"", f) or f[7:8] in b"/+#"):
            raise ValueError(f"topic filter {f!r}: must be $share/GROUP/FILTER")
    drop("wire")  # before more is loaded: there is room for that then
    return filters, [_name(f) for f in filters]


def _name(f):
    """Return the filter that topic names must match: FILTER in $share/GROUP/FILTER."""
    return f[f.find(b"/", 7) + 1 :] if f.startswith(b"$share/") else f


def difference(s: Subscription, gone: "list[bytes]") -> "tuple[Any, Any, Any]":
    """Return `filters`, `names` and `granted` of a subscription without the filters in `gone`."""
    at = [i for i, f in enumerate(s.filters) if f not in gone]
    granted = s.granted and bytes([s.granted[i] for i in at])
    return [s.filters[i] for i in at], [s.names[i] for i in at], granted


def send(c: "Client", requests: "list[Subscription]") -> Subscription:
    """Send the last one of `requests`, or leave it to the next CONNACK. Returns it."""
    c.requests = requests
    if c.connected and c.leaving is None:  # nothing may follow DISCONNECT
        try:  # noqa: SIM105 (there is no contextlib on a board)
            c.subs.late(c)  # after what waits for the same topic filters
        except MemoryError:  # the engine sends it a little later
            pass
    return requests[-1]
