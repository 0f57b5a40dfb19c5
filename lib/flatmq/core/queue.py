"""The packets of the queue `q`, which are all PUBLISH: where they end, and whose they are."""

from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..client import Client


def end_of(q: "bytearray", p: int) -> int:
    """Return where the packet at `p` ends."""
    n = i = 0
    p += 1
    while q[p] > 127:
        n |= (q[p] & 127) << i
        i += 7
        p += 1
    return p + 1 + (n | q[p] << i)


def id_at(q: "bytearray", p: int) -> int:
    """Return where the packet identifier of the packet at `p` is."""
    p += 1
    while q[p] > 127:
        p += 1
    return p + 3 + (q[p + 1] << 8 | q[p + 2])


def find(c: "Client", pid: int) -> int:
    """Return where the message with this packet identifier begins; -1 if there is none."""
    q = c.q
    p = 0
    while p < c.end:
        if q[p] & 6:
            i = id_at(q, p)
            if q[i + 1] == pid & 255 and q[i] == pid >> 8:
                return p
        p = end_of(q, p)
    return -1


def tidy(c: "Client", sent: int) -> int:
    """Cut out what is not needed: what was written at QoS 0, and the messages in `gone`.

    Returns what is left of `sent`.
    """
    q = c.q
    p = c.kept = 0
    while p < c.end:
        e = end_of(q, p)
        if q[p] & 6:
            i = id_at(q, p)
            gone = c.gone and (q[i] << 8 | q[i + 1]) in c.gone
            c.kept += not gone
        else:
            gone = e <= sent
        if gone:
            q[p:e] = b""
            c.end -= e - p
            if p < sent:
                sent -= e - p
        else:
            p = e
    c.gone = None
    c.full = False
    count(c, sent)
    return sent


def count(c: "Client", sent: int) -> None:
    """Count the pending messages: a QoS 0 message is one until all of it is written."""
    p = 0
    c.pending = c.kept
    if c.large:
        c.pending += c.large.waits
    while p < c.end:
        e = end_of(c.q, p)
        if e > sent and not c.q[p] & 14:
            c.pending += 1
        p = e
