"""subscribe() and unsubscribe(): check the arguments, and update the client's subscriptions.

Loaded with each call, and not kept.
"""

from .port import collect, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .message import Message
    from .router import Subscription
    from .v5_client import Client


def subscribe(
    self: "Client",
    filters: "bytes | str | list[bytes] | list[str]",
    handler: "Callable[[Message], None]",
    qos: int = 0,
    chunks: bool = False,
) -> "Subscription":
    """Call `handler(message)` for messages that match a topic filter, or any of a list.

    They come at up to `qos`. The request is sent once online, and again whenever the broker
    has lost the session. With `chunks` the handler also takes messages larger than `rx_size`,
    in pieces: see `Message`.

    Returns a Subscription, whose `granted` is None until the broker has answered. ValueError or
    TypeError for a bad filter, handler or QoS, and for more than `subscriptions` calls.
    """
    checked = check(filters, qos, self.max_qos)
    if not callable(handler):
        raise TypeError(f"handler must be callable, not {handler!r}")
    router = self.load()
    from .router import Subscription

    new = Subscription(checked, handler, qos, chunks)
    new.names = [name(f) for f in checked]
    kept = [s for s in router.subscriptions if s.filters != new.filters]
    most = self.options["subscriptions"]
    if len(kept) == most:
        raise ValueError(f"subscriptions must be at most {most}: no room for another")
    ask(router, new)
    keep(router, kept)
    router.subscriptions.append(new)
    return new


def unsubscribe(
    self: "Client", filters: "bytes | str | list[bytes] | list[str]"
) -> "Subscription":
    """End the subscription to a topic filter, or to each of a list of them.

    It may have been made before a reboot. Returns a Subscription whose `granted` is None until
    UNSUBACK.
    """
    return end(self, filters, b"")


def end(self: "Client", filters: "Any", head: bytes) -> "Subscription":
    """Unsubscribe with a packet that has `head` before its filters."""
    checked = check(filters, 0, 0)
    router = self.load()
    from .router import Subscription

    new = Subscription(checked, None, 0, False)
    new.head = head
    ask(router, new)
    keep(router, [s for s in router.subscriptions if _narrow(s, new.filters)])
    for r in router.requests:
        if not (r.id or r.filters):  # it was still waiting for room, and is withdrawn
            r.granted = b""
    router.requests[:] = [r for r in router.requests if r.id or r.filters]
    return new


def keep(router, kept):
    """Keep only the subscriptions in `kept`.

    Adjusts `done` and `limit`, which count subscriptions for the message being delivered.
    """
    for i in range(len(router.subscriptions), 0, -1):
        if router.subscriptions[i - 1] not in kept:
            router.done -= i <= router.done
            router.limit -= i <= router.limit
    router.subscriptions[:] = kept
    router.forget()


def _narrow(s, gone):
    """Remove the filters in `gone` from a subscription. Returns whether any are left."""
    left = [i for i, f in enumerate(s.filters) if f not in gone]
    if s.granted:
        s.granted = bytes([s.granted[i] for i in left])
    s.filters = [s.filters[i] for i in left]
    s.names = [s.names[i] for i in left]
    return bool(left)


def bound(client: "Client", name: str) -> "Callable":
    """Return one of the functions above as a method of `client`."""
    return lambda *a, **options: (subscribe if name == "subscribe" else unsubscribe)(
        client, *a, **options
    )


def check(filters: "Any", qos: int, most: int) -> "Any":
    """Return topic filters as bytes.

    TypeError or ValueError for a bad filter, or for a QoS above `most`.
    """
    from .wire import field, is_filter, number

    number("qos", qos, 0, most)
    if isinstance(filters, (bytes, str)):
        filters = [filters]
    if not isinstance(filters, (list, tuple)):
        kind = type(filters).__name__
        raise TypeError(f"topic filter must be bytes, str or a list of them, not {kind}")
    number("number of topic filters", len(filters), 1, 65535)
    filters = [field("topic filter", f, is_filter) for f in filters]
    for f in filters:
        if f.startswith(b"$share/") and (name(f) in (b"", f) or f[7:8] in b"/+#"):
            raise ValueError(f"topic filter {f!r}: must be $share/GROUP/FILTER")
    unload("wire")
    return filters


def name(f):
    """Return the filter that topic names must match: FILTER in $share/GROUP/FILTER."""
    return f[f.find(b"/", 7) + 1 :] if f.startswith(b"$share/") else f


def unload(name):
    # Loaded each time: if it stayed, it would be in the way of the code loaded next.
    from .unload import unload

    unload(name)


def ask(router, new):
    collect()
    from .requests import packet, send

    n = len(packet(new))
    if n > router.client.size:
        raise ValueError(f"packet must be at most tx_size, {router.client.size} bytes, not {n}")
    router.requests.append(new)
    send(router)
    if not router.client.open:
        # It is loaded again at CONNACK, and kept: a later CONNACK may find no room for it.
        unload("requests")
    unload("subscribing")
