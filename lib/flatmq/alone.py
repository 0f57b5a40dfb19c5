"""Find the message on which a broker closes the connection, and keep it from stopping the others.

Loaded when a peer has closed a connection while messages were in flight.
"""

import sys

from . import port
from .engine import end_of, id_of
from .port import MICROPYTHON, const, load, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client

_BEHIND = const(2)  # closes in a row after which a message goes behind the others


class Alone:
    """Messages of a `client` that leave one at a time, once the broker has answered a PINGREQ.

    So a message on which the broker closes the connection is the only one in flight when it does.
    After two such closes in a row it goes behind the others: at QoS 1 as a new message, at QoS 2
    with its own identifier, so that it cannot arrive twice. After `give_up` closes it is set
    aside, but only once the broker has taken another message meanwhile: a broker that is ill
    closes on every message. If it takes one on which it had closed, the counts begin again: what
    closes then is not the message. While nothing else waits, it is tried for ever, with growing
    pauses.

    This ends when all messages that were there at the last close have left.
    """

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.left = 0  # messages that leave one at a time
        # Messages that were alone in flight when the peer closed: the packet identifier, how often
        # that was, and whether the broker has acknowledged another message since.
        self.suspects: list[list[Any]] = []
        self.asked = 0  # PINGREQ on this connection: 1 once it is queued, 2 once it is answered
        self.alone = -1  # the identifier of the message in flight

    def start(self) -> None:
        """Begin after CONNACK."""
        self.asked = 0
        self.alone = -1

    def behind(self) -> int:
        """Return how many messages have gone behind the others."""
        return len([x for x in self.suspects if x[1] >= _BEHIND])

    def clear(self, pid: int) -> None:
        """Accuse a message no longer: the broker has taken it, or the application dropped it."""
        self.suspects = [x for x in self.suspects if x[0] != pid]

    def update(self) -> None:
        """Note a PINGRESP."""
        if self.asked:
            self.asked = 2

    def next(self, sent: int) -> int:
        """Return how many bytes of the queue, from `sent` on, may leave now."""
        c = self.client
        q = c.q
        if self.alone > 0 and find(c, self.alone) >= 0:
            return 0
        self._taken()
        if self.left <= 0 and not self.suspects:
            c.alone = None
            let_go()
            if c.five:
                c.five.allot(c)
            return c.alone.next(sent) if c.alone else c.end - sent
        if c.large and c.large.waits and not c.large.behind:
            return 0
        if self.asked < 2:
            if not self.asked:
                self.asked = 1
                c.since = port.ticks_ms()  # it is a steady connection only once it has answered
                c.acks.extend(b"\xc0\0")
            return 0
        if (
            c.requests
            and c.apart
            and c.since is not None
            and c.subs.count(c)
            and ticks_diff(port.ticks_ms(), c.since) < c.timeout_ms
        ):
            return 0  # a request is alone in flight, and not for long
        if self.release(sent):
            return 0
        # Dropped messages that are not answered yet may take up all places.
        if sent == c.end or (q[sent] & 6 and c.inflight < 1):
            return 0
        self.alone = 0
        if q[sent] & 6:
            self.alone = id_of(q, sent)
        self.left -= 1
        return end_of(q, sent) - sent

    def release(self, sent):
        """Queue the next PUBREL. Returns whether there was one to be sent now.

        One whose message has gone behind the others lets them pass.
        """
        c = self.client
        p = 0
        while p < sent:
            pid = id_of(c.q, p)
            if c.q[p] & 6 == 6 and not (c.end > sent and self.waits(pid)):
                self.alone = pid
                self.left -= 1
                c.acks.extend(b"\x62\2")
                c.acks.append(pid >> 8)
                c.acks.append(pid & 255)
                return True
            p = end_of(c.q, p)
        return False

    def waits(self, pid: int) -> bool:
        """Return whether a message has gone behind the others."""
        for x in self.suspects:
            if x[0] == pid and x[1] >= _BEHIND:
                return True
        return False

    def _taken(self):
        """Note that the broker has taken the message that was alone in flight."""
        if self.alone > 0:
            self.client.tries = 0  # the broker is well: the next pause is a short one
        if self.alone >= 0 and self.suspects:
            n = len(self.suspects)
            self.clear(self.alone)
            chance = len(self.suspects) < n  # that it closed on this one, and maybe on the others
            for x in self.suspects:
                if chance:
                    x[1] = min(x[1], _BEHIND)
                x[2] = not chance and (x[2] or self.alone > 0)
        self.alone = -1

    def lost(self, closed: bool, flight: "int | None") -> None:
        """Handle the end of a connection, `closed` by the peer or not.

        `flight`: see `dial.mark`.
        """
        c = self.client
        self.left = c.pending - c.large.waits if c.large else c.pending
        pid = self.alone
        if pid > 0 and find(c, pid) < 0:
            self._taken()
        if not closed:
            self.suspects = []  # the network failed, and accuses nothing
        elif pid >= 0 and not (c.requests and c.subs.count(c)):
            p = find(c, pid)  # of a message past PUBREC its PUBREL was in flight
            if flight == pid or (p >= 0 and c.q[p] & 6 == 6):
                self._accuse(pid)
        self.alone = -1  # now: without memory this is called again

    def _accuse(self, pid):
        """Count that the peer closed the connection on a message."""
        c = self.client
        for x in self.suspects:
            if x[0] == pid:
                break
        else:
            x = [pid, 0, False]
            self.suspects.append(x)
        n = x[1] + 1
        if c.give_up and n >= c.give_up and x[2]:
            load("strays").set_aside(c, pid, "the broker closed the connection on it")
            self.suspects.remove(x)
        elif n >= _BEHIND:
            x[0] = self._behind(pid)
        x[1] = n

    def _behind(self, pid):
        """Put a message behind all others. Returns its packet identifier, maybe a new one."""
        c = self.client
        q = c.q
        p = load("strays").place(c, pid)
        e = end_of(q, p)
        if e == c.end:
            return pid
        data = q[p:e]
        # What may fail, or looks at the queue, comes before the message is cut out of it.
        if data[0] & 6 == 2:
            new = c.last_id + 1 & 65535 or 1
            if new == c.stop:
                new = load("strays").next_id(c)
            c.last_id = new
            rename(c, pid, new)
            pid = new
            i = 1
            while data[i] > 127:
                i += 1
            i += 3 + (data[i + 1] << 8 | data[i + 2])
            data[i] = pid >> 8
            data[i + 1] = pid & 255
            data[0] &= 0xF7
        q[p:e] = b""
        q.extend(data)
        if p < c.sent:
            c.sent -= e - p
        return pid


def find(c: "Client", pid: int) -> int:
    """Return where a message begins: see `queue.find`, which would be one more module to load."""
    p = 0
    while p < c.end:
        if c.q[p] & 6 and id_of(c.q, p) == pid:
            return p
        p = end_of(c.q, p)
    return -1


def let_go() -> None:
    """Let go of this module. `port.drop` would allocate, and this may run at any time."""
    if MICROPYTHON and "flatmq.alone" in sys.modules:
        del sys.modules["flatmq.alone"]
        delattr(sys.modules["flatmq"], "alone")


def rename(c: "Client", pid: int, new: int) -> None:
    """Note that the message with the identifier `pid` has a new one.

    The application still calls it by the one that `publish` returned.
    """
    if c.renamed is None:
        c.renamed = {}
    for first in c.renamed:
        if c.renamed[first] == pid:
            pid = first
            break
    c.renamed[pid] = new
