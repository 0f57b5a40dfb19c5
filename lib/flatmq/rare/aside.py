"""Find the message on which a broker closes the connection, and keep it from stopping the others.

Loaded when a peer has closed a connection while messages were in flight.
"""

from ..core.queue import end_of, find, id_at
from ..load import load
from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..client import Client

_BEHIND = const(2)  # closes in a row after which a message goes behind the others


class Aside:
    """Messages of a `client` that leave one at a time, once the broker has answered a PINGREQ.

    So a message on which the broker closes the connection is the only one in flight when it does.
    After two such closes in a row it goes behind the others: at QoS 1 as a new message, at QoS 2
    with its own identifier, so that it cannot arrive twice. After `give_up` closes it is set
    aside, but only once the broker has taken another message meanwhile: a broker that is ill
    closes on every message. While nothing else waits, it is tried for ever, with growing pauses.

    This ends when all messages that were there when it began have left.
    """

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.left = 0  # messages that leave one at a time
        self.suspect = -1  # the identifier of the message alone in flight at the last close
        self.strikes = 0  # and how many times in a row it was
        self.proof = False  # the broker has taken another one since
        self.asked = 0  # PINGREQ on this connection: 1 once it is queued, 2 once it is answered
        self.alone = -1  # the identifier of the message in flight
        self.begun = 0  # bytes of it

    def begin(self) -> None:
        """Begin after CONNACK."""
        self.asked = 0
        self.alone = -1

    def answered(self) -> None:
        """Note a PINGRESP."""
        if self.asked:
            self.asked = 2

    def span(self, sent: int) -> int:
        """Return how many bytes of the queue, from `sent` on, may leave now."""
        c = self.client
        q = c.q
        if self.alone > 0:
            if find(c, self.alone) >= 0:
                return 0
            self._taken(self.alone)
        if self.left <= 0:
            c.alone = None
            return c.end - sent
        if c.large and c.large.waits:
            return 0
        if self.asked < 2:
            if not self.asked:
                self.asked = 1
                c.acks.extend(b"\xc0\0")
            return 0
        if c.requests and load("subs").holds(c):
            return 0
        n = end_of(q, sent)
        self.alone = 0
        if q[sent] & 6:
            i = id_at(q, sent)
            self.alone = q[i] << 8 | q[i + 1]
        self.left -= 1
        return n - sent

    def _taken(self, pid):
        """Note that the broker has taken the message that was alone in flight."""
        if pid == self.suspect:
            self.suspect = -1
            self.strikes = 0
        else:
            self.proof = True
        self.alone = -1

    def lost(self, closed: bool, flight: "int | None") -> None:
        """Handle the end of a connection, `closed` by the peer or not.

        `flight`: see `dial.mark`.
        """
        c = self.client
        self.left = c.pending
        if not closed:
            self.alone = self.suspect = -1  # the network failed, and accuses nothing
            self.strikes = 0
            return
        if self.alone > 0 and find(c, self.alone) < 0:
            self._taken(self.alone)
        alone = -1
        if flight is not None and (flight == self.alone or self.alone < 0 < flight):
            alone = flight
        if c.requests and load("subs").in_flight(c):
            alone = -1
        self.alone = -1
        if alone < 0:
            return
        if alone != self.suspect:
            self.suspect = alone
            self.strikes = 0
            self.proof = False
        self.strikes += 1
        if c.give_up and self.strikes >= c.give_up and self.proof:
            self.strikes = 0
            self.suspect = -1
            load("strays").set_aside(c, alone, "the broker closed the connection on it")
        elif self.strikes >= _BEHIND:
            self._behind(alone)

    def _behind(self, pid):
        """Put a message behind all others."""
        c = self.client
        q = c.q
        p = find(c, pid) if pid else 0
        e = end_of(q, p)
        if e == c.end:
            return
        data = q[p:e]
        q[p:e] = b""
        if data[0] & 6 == 2 and pid <= c.own:  # the one of a Handover stays
            if c.last_id == c.stop:
                c.last_id = c.next_id()
            c.last_id = self.suspect = c.last_id + 1 & 65535 or 1
            i = id_at(data, 0)
            data[i] = c.last_id >> 8
            data[i + 1] = c.last_id & 255
            data[0] &= 0xF7
        q.extend(data)
