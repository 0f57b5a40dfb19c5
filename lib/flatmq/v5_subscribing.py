"""subscribe() and unsubscribe() for MQTT 5, with subscription options and the broker's limits.

Loaded with each call, and not kept.
"""

from .port import const
from .router import Subscription
from .subscribing import ask, check, keep, name
from .unload import unload

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .message import Message
    from .v5 import Client5


def bound(client: "Client5", name: str) -> "Callable":
    """Return one of the functions below as a method of `client`."""
    function = subscribe if name == "subscribe" else unsubscribe

    def call(*args, **options):
        try:
            return function(client, *args, **options)
        finally:
            unload("v5_subscribing", "subscribing")

    return call


def subscribe(
    self: "Client5",
    filters: "bytes | str | list[bytes] | list[str]",
    handler: "Callable[[Message], None]",
    qos: int = 0,
    chunks: bool = False,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
) -> "Subscription":
    """Call `handler(message)` for messages that match a topic filter: see `Client.subscribe`.

    no_local             the broker does not send back messages published by this client
    retain_as_published  `message.retain` is as published
    retain_handling      retained messages come with every subscription (0), only with a new one
                         (1), or never (2)

    After falling back to 3.1.1 these three are ignored.
    """
    from .wire import number

    number("retain_handling", retain_handling, 0, 2)
    checked = check(filters, qos, self.options["max_qos"])  # the broker may grant less
    if no_local and any(f.startswith(b"$share/") for f in checked):
        raise ValueError("no_local must be False with $share")
    if not callable(handler):
        raise TypeError(f"handler must be callable, not {handler!r}")
    router: Any = self.load()
    new = Subscription(checked, handler, qos, chunks)
    new.identifier = 0
    new.names = [name(f) for f in checked]
    kept = []
    for s in router.subscriptions:
        if s.filters != new.filters:
            kept.append(s)
        else:  # messages with the old identifier may be on their way
            new.identifier = s.identifier
    most = self.options["subscriptions"]
    if len(kept) == most:
        raise ValueError(f"subscriptions must be at most {most}: no room for another")
    if self.level == 5:
        new.qos |= no_local << 2 | retain_as_published << 3 | retain_handling << 4
        router.mark(new, self.server.identifiers)
        allow(self, new)
    ask(router, new)
    keep(router, kept)
    router.subscriptions.append(new)
    router.forget()
    return new


def allow(c: "Client5", new: "Subscription") -> None:
    """Raise ValueError if a request is larger than the broker takes."""
    from .requests import packet

    n = len(packet(new))
    most = c.server.maximum_packet_size
    if 0 < most < n:
        raise ValueError(f"packet must be at most {most} bytes for this broker, not {n}")


def unsubscribe(
    self: "Client5", filters: "bytes | str | list[bytes] | list[str]"
) -> "Subscription":
    """End the subscription to one or more topic filters: see `Client.unsubscribe`.

    After UNSUBACK `granted` has a reason code for each.
    """
    from .subscribing import end

    if self.level == 5:
        new = Subscription(check(filters, 0, 0), None, 0, False)
        new.head = b"\0"
        allow(self, new)
    return end(self, filters, b"\0" if self.level == 5 else b"")
