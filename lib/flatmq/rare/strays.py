"""Handle what is rare: a message refused or dropped, odd identifiers. Loaded for one call."""

from ..port import const
from .dial import end_of
from .queue import find, mark_gone, release

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..client import Client
    from .message import Message


def nearest(c: "Client", pid: int, least: int) -> int:
    """Return the distance from `pid` to the next identifier in use; at most `least`.

    Those in the queue have been compared.
    """
    if c.renamed:
        c.renamed = {old: new for old, new in c.renamed.items() if find(c, new) >= 0}
    used = list(c.renamed or ()) + [r.id for r in c.requests]
    if c.large and c.large.waits:
        used.append(c.large.pid)
    for i in used:
        if i and i != pid:
            least = min(least, i - pid & 65535)
    return least


def drop(self: "Client", packet_id: int) -> bool:
    """Set a pending message aside. It may still reach the broker if a part of it has left.
    Returns False if no pending message has this packet identifier."""
    reason = "dropped by the application"
    if self.large and self.large.waits and self.large.pid == packet_id > 0:
        self.large.set_aside(reason)
        return True
    if self.renamed:
        packet_id = self.renamed.get(packet_id, packet_id)
    p = find(self, packet_id)
    if p < 0 or packet_id < 1 or (self.gone and packet_id in self.gone):
        return False
    mark_gone(self, packet_id)
    if self.alone:
        self.alone.clear(packet_id)
    packet = bytes(self.q[p : end_of(self.q, p)])
    self.flush()
    report(self, packet, packet_id, reason)
    return True


def report(c: "Client", packet: bytes, pid: int, reason: str) -> None:
    """Report that a PUBLISH is dropped."""
    if packet[0] & 6 == 6:  # the broker has the message but never sends PUBCOMP
        return
    i = 1
    while packet[i] > 127:
        i += 1
    c.stats.dropped += 1
    for first in c.renamed or ():
        if c.renamed[first] == pid:
            pid = first  # which the application knows
            break
    if c.on_dropped is not None:
        topic = packet[i + 3 : i + 3 + (packet[i + 1] << 8 | packet[i + 2])]
        c.on_dropped(pid, topic, reason)


def place(c: "Client", pid: int) -> int:
    """Return where a message that is there begins: with 0 the first one at QoS 0."""
    p = 0
    if pid:
        return find(c, pid)
    while c.q[p] & 6:
        p = end_of(c.q, p)
    return p


def set_aside(c: "Client", pid: int, reason: str) -> None:
    """Give up the message with this identifier, or with 0 the first one at QoS 0."""
    p = place(c, pid)
    packet = bytes(c.q[p : end_of(c.q, p)])
    release(c, p)
    report(c, packet, pid, reason)


def give_up(c: "Client", m: "Message") -> None:
    """Report a message whose handlers have raised too often."""
    c.stats.dropped += 1
    c.done = c.limit = 0
    if c.on_dropped is not None:
        c.on_dropped(m.id, m.topic, "its handler raised an exception each time")
