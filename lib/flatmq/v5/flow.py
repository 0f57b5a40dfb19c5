"""Keep to the limits that the broker reports in CONNACK.

Loaded when messages or requests are outside them, and when a topic alias ends with its connection.
"""

from .. import port
from ..engine import end_of, id_of
from ..port import const, load, ticks_add
from ..queue import find

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..message import Subscription
    from . import Client5

# What the broker offers: see `v5.server`.
_RETAIN = const(2)
_MAXIMUM_PACKET_SIZE = const(3)

_LONGEST = const(600000)  # ms until a request that is too large is looked at again
_TOO_LARGE = const(b"\x95")


class Flow:
    """Holds back messages at QoS 1 and 2 beyond the Receive Maximum of the broker (section 4.9).

    They were accepted before it was known. Messages at QoS 0 overtake them.
    """

    asked = 0  # it waits for no PINGRESP,
    alone = -1  # and for no message alone

    def __init__(self, client: "Client5") -> None:
        self._client = client

    def behind(self) -> int:
        """Return 0: no message keeps others from being accepted."""
        return 0

    def update(self) -> None:
        """Ignore a PINGRESP."""

    def clear(self, pid: int) -> None:
        """Do nothing: no message is accused."""

    def next(self, sent: int) -> int:
        """Return how many bytes of the queue, from `sent` on, may leave now."""
        c = self._client
        if c.kept <= c.inflight:
            c.alone = None
            return c.end - sent
        return _within(c, sent) - sent or _overtaking(c, sent)


# Few locals, because every poll calls these while a message waits: see `Client.publish`.


def _within(c, sent):
    """Return where the messages end that are in flight or may leave now."""
    free = c.inflight
    p = 0
    while p < c.end:
        if c.q[p] & 6:
            if p >= sent and free <= 0:
                break
            free -= 1
        p = end_of(c.q, p)
    return p


def _overtaking(c, sent):
    """Put the next message at QoS 0 before those that wait. Returns its size, 0 for none."""
    p = sent
    while p < c.end:
        if not c.q[p] & 6:
            return _move(c.q, p, sent)
        p = end_of(c.q, p)
    return 0


def _move(q, p, to):
    e = end_of(q, p)
    data = q[p:e]
    q[p:e] = b""
    q[to:to] = data
    return e - p


def admit(c: "Client5", same: bool) -> None:
    """Set aside the messages that this broker never takes.

    In the `same` session, those past PUBREC are not sent again.
    """
    without_aliases(c)
    p = 0
    while p < c.end:
        e = end_of(c.q, p)
        reason = ""
        first = c.q[p]
        if not (same and first & 6 == 6):
            if first & 6 == 6:
                first &= 0xFD  # as `qos2.resume` will
            reason = refused(c, first, e - p)
        if reason:
            c.q[p] = first
            _set_aside(c, p, reason)
        else:
            p = e
    if c.alone:  # these block nobody any more
        c.alone.left = min(c.alone.left, c.pending)
        c.alone.suspects = [x for x in c.alone.suspects if find(c, x[0]) >= 0]
    if c.large and c.large.waits:
        reason = refused(c, c.large.head[0], len(c.large.head) + c.large.size)
        if reason:
            c.large.set_aside(reason)


def refused(c: "Client5", first: int, size: int) -> str:
    """Return why the broker does not take a PUBLISH with first byte `first`; "" if it does."""
    most = c.offers[_MAXIMUM_PACKET_SIZE]
    if first >> 1 & 3 > c.max_qos:
        return f"the broker takes no QoS above {c.max_qos}"
    if first & 1 and not c.offers[_RETAIN]:
        return "the broker takes no retained messages"
    if most and size > most:
        return f"the broker takes packets of at most {most} bytes"
    return ""


def _set_aside(c, p, reason):
    """Give up the message at `p` in the queue."""
    load("strays").remove(c, p, id_of(c.q, p) if c.q[p] & 6 else 0, reason)


def without_aliases(c: "Client5") -> None:
    """Set aside unsent messages whose topic alias ended with their connection."""
    q = c.q
    p = 0
    while c.aliases and p < c.end:
        i = p + 1
        while q[i] > 127:
            i += 1
        i += 3 + (q[i + 1] << 8 | q[i + 2])
        e = end_of(q, p)
        while q[i] > 127:
            i += 1
        # An Alias makes it the first property.
        if not q[p] & 6 and i + 1 < e and q[i] and q[i + 1] == 0x23:
            _set_aside(c, p, "its topic alias ended with the connection")
        else:
            p = e


def size_of(r: "Subscription", block: bytes) -> int:
    """Return the size of the packet for a request with these properties."""
    n = 2 + len(block)
    for f in r.asked:
        n += len(f) + (2 if r.handler is None else 3)
    return n + (2 if n < 128 else 3 if n < 16384 else 4)


def puts_off(c: "Client5", r: "Subscription", block: bytes) -> bool:
    """Return whether a request is larger than the broker takes. It is put off, and reported once.

    It waits for a CONNACK with a larger limit.
    """
    most = c.offers[_MAXIMUM_PACKET_SIZE]
    if size_of(r, block) <= most:
        return False
    r.pause = _LONGEST
    r.due = ticks_add(port.ticks_ms(), r.pause)
    refused = _TOO_LARGE * len(r.filters)
    if r.granted != refused:
        r.granted = refused
        c.stats.dropped += 1
        if c.on_dropped:
            for f in r.filters:
                c.on_dropped(0, f, f"the broker takes packets of at most {most} bytes")
    return True
