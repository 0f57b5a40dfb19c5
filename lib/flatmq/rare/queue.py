"""Change the queue in the middle. Loaded for what is not settled by a PUBACK."""

from ..port import const
from .dial import end_of, id_at

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..client import Client


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


def release(c: "Client", p: int) -> None:
    """Cut the message at `p` out of the queue."""
    e = end_of(c.q, p)
    if c.q[p] & 6:
        c.kept -= 1
    c.pending -= 1
    if p < c.sent:
        c.sent -= e - p
    c.end -= e - p
    c.q[p:e] = b""


def replace(c: "Client", p: int, e: int, packet: bytes) -> int:
    """Put another packet in the place of the one from `p` to `e`. Returns where it ends."""
    c.q[p:e] = packet
    c.end += len(packet) - (e - p)
    return p + len(packet)


def mark_gone(c: "Client", pid: int) -> None:
    """Have the engine cut a message out, once none of its bytes are on their way."""
    c.gone = list(c.gone or ()) + [pid]  # noqa: RUF005 - as MicroPython has it
    c.full = True
    c.kept -= 1
    c.pending -= 1


def clear(c: "Client") -> None:
    """Forget all messages."""
    c.q[0:] = b""
    c.end = c.kept = c.pending = 0
    c.gone = None
    c.full = False
