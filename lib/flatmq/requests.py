"""SUBSCRIBE and UNSUBSCRIBE: build the packets, send them, and handle the answers.

Loaded with the first call, and kept after the first connection that has subscriptions.
"""

# An imported builtin is found without a miss in the module.
from builtins import len

from .port import const, ticks_add

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .router import Router

_SOON = const(20)  # ms until a request that found no room is tried again


def packet(r):
    """Return the SUBSCRIBE or UNSUBSCRIBE packet of a request (sections 3.8 and 3.10)."""
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
    """Queue the requests that have not been sent, in their order, while there is room."""
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
    """Resume after CONNACK.

    Unanswered requests are sent again before everything else; unless it is the `same` session
    as before, all subscriptions are, too.
    """
    s = router.client
    router.waiting = False
    for r in router.requests:
        if r.id:
            s.ids.remove(r.id)
            r.id = 0
        if not r.filters or not (same or r.handler is not None):
            r.granted = b""  # nothing is left to ask for
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
    """Handle a SUBACK or UNSUBACK.

    `first` is its first byte, `data` the rest after the fixed header. Returns whether a
    request waited for it, or the rule that it breaks.
    """
    pid = data[0] << 8 | data[1]
    codes = data[2:]
    if first == 0x90 and not codes:
        return "return codes"
    # The codes of MQTT 5 have been checked already.
    if router.client.options["version"] in (3, 4) and any(c > 2 and c != 128 for c in codes):
        return "return codes"
    for r in router.requests:
        if r.id == pid:
            if (first == 0x90) != (r.handler is not None):
                return False
            if codes and len(codes) != len(r.asked):
                return "return codes"  # the request stays unanswered
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
