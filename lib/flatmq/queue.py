"""Find a message in the queue, and cut it out. Loaded for what is not settled by a PUBACK."""

from .engine import end_of, id_of
from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client


def find(c: "Client", pid: int) -> int:
    """Return where the message with this packet identifier begins; -1 if there is none."""
    q = c.q
    p = 0
    while p < c.end:
        if q[p] & 6 and id_of(q, p) == pid:
            return p
        p = end_of(q, p)
    return -1


def release(c: "Client", p: int) -> None:
    """Cut the message at `p` out of the queue."""
    e = end_of(c.q, p)
    if c.q[p] & 6 and not (p or c.alone or c.large or c.own < 65535):
        c.stop = id_of(c.q, p)  # those before it are free
    if not (c.gone and c.q[p] & 6 and id_of(c.q, p) in c.gone):  # else it was counted by `drop`
        c.kept -= c.q[p] & 6 > 0
        c.pending -= 1
    if p < c.sent:
        c.sent -= e - p
    c.end -= e - p
    c.q[p:e] = b""
