"""SUBSCRIBE and UNSUBSCRIBE: what is asked of the broker, and what it answers.

Loaded with the first call, and kept from the first connection with subscriptions on.
"""

# Imported, a builtin is found at once; else only after a miss in the module.
import gc
import sys
from builtins import len

from .port import MICROPYTHON, const, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Client
    from .message import Message
    from .router import Router, Subscription

_SOON = const(20)  # ms until a request is tried again that found no room


def subscribe(
    self: "Client",
    filters: "bytes | str | list[bytes] | list[str]",
    handler: "Callable[[Message], None]",
    qos: int = 0,
    chunks: bool = False,
) -> "Subscription":
    """Call `handler(message)` for messages that match a topic filter, or any of a list of them,
    at up to `qos`. Sent when online, and again when the broker has forgotten. With `chunks` the
    handler takes messages larger than `rx_size` too, in pieces: see `Message`.

    Returns a Subscription, whose `granted` is None until the broker has answered. ValueError or
    TypeError for a bad filter, handler or QoS, and for more than `subscriptions`.
    """
    filters = _check(filters, qos)
    if not callable(handler):
        raise TypeError(f"handler must be callable, not {handler!r}")
    router = self.load()
    new = _new(filters, handler, qos, chunks)
    kept = [s for s in router.subscriptions if s.filters != new.filters]
    most = self.options["subscriptions"]
    if len(kept) == most:
        raise ValueError(f"subscriptions must be at most {most}: no room for another")
    _ask(router, new)
    router.subscriptions[:] = kept
    router.subscriptions.append(new)
    router.forget()
    return new


def unsubscribe(
    self: "Client", filters: "bytes | str | list[bytes] | list[str]"
) -> "Subscription":
    """End the subscription to a topic filter, or to each of a list of them; one that an earlier
    run has made, too. Returns an object whose `granted` is None until UNSUBACK."""
    filters = _check(filters, 0)
    router = self.load()
    new = _new(filters, None, 0, False)
    _ask(router, new)
    router.subscriptions[:] = [s for s in router.subscriptions if _narrow(s, new.filters)]
    for r in router.requests:
        if not (r.id or r.filters):  # it has waited for room, and is taken back
            r.granted = b""
    router.requests[:] = [r for r in router.requests if r.id or r.filters]
    router.forget()
    return new


def _narrow(s, gone):
    """Have a subscription give up some filters. Returns whether there are any left."""
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


def _new(filters, handler, qos, chunks):
    from .router import Subscription

    new = Subscription(filters, handler, qos, chunks)
    new.names = [name(f) for f in filters]
    return new


def _check(filters, qos):
    """Return topic filters as bytes. TypeError or ValueError if one, or the QoS, is bad."""
    from .wire import field, is_filter, number

    number("qos", qos, 0, 2)
    if isinstance(filters, (bytes, str)):
        filters = [filters]
    if not isinstance(filters, (list, tuple)):
        kind = type(filters).__name__
        raise TypeError(f"topic filter must be bytes, str or a list of them, not {kind}")
    number("number of topic filters", len(filters), 1, 65535)
    filters = [field("topic filter", f, is_filter) for f in filters]
    for f in filters:
        if name(f) in (b"", f) and f.startswith(b"$share/"):
            raise ValueError(f"topic filter {f!r}: must be $share/GROUP/FILTER")
    if "flatmq.pieces" not in sys.modules:  # which holds it anyway
        unload("wire")
    if MICROPYTHON:
        gc.collect()  # what the router loads stays: see calls
    return filters


def name(f):
    """Return what topic names match: of $share/GROUP/FILTER the last."""
    return f[f.find(b"/", 7) + 1 :] if f.startswith(b"$share/") else f


def _ask(router, new):
    n = len(packet(new))
    if n > router.client.size:
        raise ValueError(f"packet must be at most tx_size, {router.client.size} bytes, not {n}")
    router.requests.append(new)
    send(router)


def packet(r):
    """Return the SUBSCRIBE or UNSUBSCRIBE (sections 3.8 and 3.10)."""
    r.asked = r.filters
    body = bytearray((r.id >> 8, r.id & 255))
    for f in r.filters:
        body.extend(bytes((len(f) >> 8, len(f) & 255)) + f)
        if r.handler is not None:
            body.append(r.qos)
    n = len(body)
    data = bytearray((0xA2 if r.handler is None else 0x82,))
    while n > 127:
        data.append(n & 127 | 128)
        n >>= 7
    data.append(n)
    data.extend(body)
    return data


def unload(module):
    """Have a board forget a module, and so let go of it."""
    if MICROPYTHON:
        sys.modules.pop("flatmq." + module, None)
        if hasattr(sys.modules["flatmq"], module):
            delattr(sys.modules["flatmq"], module)


def send(router: "Router") -> None:
    """Queue the requests that are not sent, in their order, as far as there is room."""
    s = router.client
    router.waiting = False
    for r in router.requests if s.open else ():  # else at CONNACK
        if not r.id:
            r.id = s.next_id()
            data = packet(r)
            n = len(data)
            if s.end + n > s.limit and not s.make_room(n - 2):
                r.id = 0
                router.waiting = True
                s.due = ticks_add(s.now, _SOON)
                break
            s.buf[s.end : s.end + n] = data
            s.end += n
            s.queued = True
            s.ids.append(r.id)
    if not s.open:
        unload("requests")  # until CONNACK, from when on it is kept: the next one may find no room


def resume(router: "Router", remembered: bool) -> None:
    """A connection is there. Requests that were not answered go again, before all else, and all
    subscriptions unless the broker has `remembered` them."""
    s = router.client
    router.waiting = False
    for r in router.requests:
        if r.id:
            s.ids.remove(r.id)
            r.id = 0
        if not r.filters or not (remembered or r.handler is not None):
            r.granted = b""  # there is nothing left to ask for
    if remembered:
        router.requests[:] = [r for r in router.requests if r.filters]
    else:
        router.requests[:] = router.subscriptions
    for r in router.requests:
        r.id = s.next_id()
        s.ids.append(r.id)
        s.urgent.append(packet(r))
    s.queued = True


def answered(router: "Router", first: int, data: bytes) -> "bool | str":
    """Handle a SUBACK or UNSUBACK that begins with `first`, `data` behind its fixed header.
    Returns whether it was waited for, or the rule that it breaks."""
    pid = data[0] << 8 | data[1]
    codes = data[2:]
    if first == 0x90 and (not codes or any(c > 2 and c != 128 for c in codes)):
        return "return codes"
    for r in router.requests:
        if r.id == pid:
            if (first == 0x90) != (r.handler is not None):
                return False
            if codes and len(codes) != len(r.asked):
                return "return codes"  # and the request is still to be answered
            router.client.ids.remove(pid)
            r.id = 0
            r.granted = bytes(
                [codes[i] for i, f in enumerate(r.asked) if codes and f in r.filters]
            )
            router.requests.remove(r)
            return True
    return False
