"""Fall back to MQTT 3.1.1 with a broker that does not speak MQTT 5. Loaded for that."""

from ..engine import end_of
from ..hello import parts_of
from ..message import NEVER
from ..port import const, drop, load
from ..wire import connect, get_length, put_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client5


def fall_back(c: "Client5") -> None:
    """Switch a client that has never been online to 3.1.1, from its next connection on.

    Waiting messages lose their properties.
    """
    c.level = 4
    if c.replies:
        c.replies.end()  # if a handler raises, this is called again
    client_id, user, password, will = parts_of(c)
    if c.auth and c.password is load("hello", "v5.").keep:
        c.password = None
    if user is None and (password is not None or c.password):
        user = b""
    # What may fail for lack of memory comes first.
    asked = c.subscriptions + c.requests
    queue = b""
    p = 0
    while p < c.end:
        e = end_of(c.q, p)
        queue += _without(bytes(c.q[p:e]))
        p = e
    large = c.large if c.large and c.large.waits else None
    head = large and bytearray(_without(large.head, large.size))
    five = c.five
    try:
        c.version = 4
        c.five = None
        connect(c, client_id, user, password, will)
        c.carry(None)
        for s in asked:
            s.qos &= 3
        for i in range(c.learned):
            c.names[i][0:] = NEVER
        c.q[0:] = queue  # last: what Ctrl-C has stopped before is done again
    except:
        c.version = 5
        c.five = five
        c.carry(None)
        raise
    if large and head:
        large.head = head
    c.end = len(queue)
    c.unanswered = None
    c.error = None  # the broker may well speak 3.1.1
    drop("hello", "wire", "properties", "fallback", "packets", "reasons")


def _without(packet, more=0):
    """Return an MQTT 5 PUBLISH as a 3.1.1 PUBLISH.

    `more`: bytes of its payload that are not in `packet`.
    """
    at = 1
    while packet[at] > 127:
        at += 1
    begin = at + 1
    at = begin + 2 + (packet[begin] << 8 | packet[begin + 1])
    if packet[0] & 6:
        at += 2
    n = get_length(packet, at, len(packet))
    body = packet[begin:at] + packet[at + 1 + (n & 3) + (n >> 2) :]
    head = bytearray(packet[:1])
    put_length(head, len(body) + more)
    return bytes(head + body)
