"""SUBSCRIBE and UNSUBSCRIBE: their packets, when they are sent, and what the broker answers.

Loaded with the first call, and kept from the first connection with subscriptions on.
"""

# Imported, a builtin is found at once; else only after a miss in the module.
from builtins import len

from .port import const, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .router import Router

_SOON = const(20)  # ms until a request is tried again that found no room


def packet(r):
    """Return the SUBSCRIBE or UNSUBSCRIBE (sections 3.8 and 3.10)."""
    r.asked = r.filters
    body = bytearray((r.id >> 8, r.id & 255))
    body.extend(r.head)
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


def send(router: "Router") -> None:
    """Queue the requests that are not sent, in their order, as far as there is room."""
    s = router.client
    router.waiting = False
    if router.past:
        router.past.send()
        return
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


def resume(router: "Router", same: bool) -> None:
    """A connection is there. Requests that were not answered go again, before all else, and all
    subscriptions unless it is the `same` session as before."""
    s = router.client
    router.waiting = False
    for r in router.requests:
        if r.id:
            s.ids.remove(r.id)
            r.id = 0
        if not r.filters or not (same or r.handler is not None):
            r.granted = b""  # there is nothing left to ask for
    if same:
        router.requests[:] = [r for r in router.requests if r.filters]
    else:
        router.requests[:] = router.subscriptions
    if router.past:
        router.past.resume()
        return
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
    if first == 0x90 and not codes:
        return "return codes"
    # Those of MQTT 5 have been checked.
    if router.client.options["version"] in (3, 4) and any(c > 2 and c != 128 for c in codes):
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
            if router.past:
                router.past.answered()
            return True
    return False
