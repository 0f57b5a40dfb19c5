"""The interface of a client for a module that keeps messages itself, such as the spool.

Loaded by `Client.handover`, and kept by what calls it.
"""

from ..engine import end_of, id_of
from ..port import const, load
from ..queue import find

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .. import Client

# Counters: see `stats`.
_DROPPED = const(8)

_OWN = const(32767)


def handover(self: "Client") -> "Handover":
    """Return the Handover of a client that has not been started."""
    return Handover(self)


class Handover:
    """Hands messages to a `client`, with packet identifiers above 32,767.

    The client's own identifiers stay below from now on. It calls its `on_dropped` for these
    messages, too.
    """

    clean: bool  # the client asks for a clean session
    inflight: int  # messages that may wait for an acknowledgement at most
    most: int  # bytes that topic name and payload of one may have together

    def __init__(self, client: "Client") -> None:
        self._client: Any = client
        self._reason = ""
        self.clean = client.clean
        self.inflight = client.inflight + 1  # see `put`
        self.most = client.room - (7 if client.five else 6)
        for n in (129, 16386, 2097155):  # above these, Remaining Length has another byte
            if client.room > n:
                self.most -= 1
        client.own = _OWN
        client.stop = _OWN + 1  # all of them are free

    def check(self, topic: "bytes | str") -> None:
        """Raise ValueError or TypeError if this is not a valid topic name."""
        self._client.address(topic, min(1, self._client.max_qos))

    def put(self, packet_id: int, first: int, topic, payload) -> bool:
        """Accept a message at QoS 1 or 2. Its buffers may be reused afterwards.

        `first` is the first byte of its packet. It may have DUP, because the message was sent
        before a reboot; and before `start` 3 as its QoS, if PUBREC has come, too.

        Returns False if there is no room now; ValueError if there never will be. A message that
        the broker does not take is set aside at once.
        """
        c = self._client
        n = len(topic) + len(payload) + (5 if c.five else 4)
        if len(topic) + len(payload) > self.most:
            c.no_room(n, 1)  # raises ValueError
        if c.five and self._refuses(first, n):
            self._report(packet_id, topic)
            return True
        # If those in flight may all be ones that the broker does not take, one more can show it.
        if c.kept >= (self.inflight if c.alone else c.inflight) or (
            c.end + n + 5 - (n < 128) - (n < 16384) - (n < 2097152) > c.room
        ):
            c.full = True
            return False
        if c.renamed:
            c.renamed.pop(packet_id, None)  # it was an older one
        c.q[c.end :] = b"\0\0"
        c.q.append(len(topic) >> 8)
        c.q.append(len(topic) & 255)
        c.q.extend(topic)
        c.q.append(packet_id >> 8)
        c.q.append(packet_id & 255)
        if c.five:
            c.q.append(0)
        c.q.extend(payload)
        c.widen(n)
        if first & 6 == 6:
            c.two = c.two or load("qos2")
        c.q[c.end] = first  # last, as in `publish`
        c.kept += 1
        c.pending += 1
        c.end = len(c.q)
        return True

    def _refuses(self, first, n):
        """Return why the broker at MQTT 5 does not take a message, "" if it does."""
        c = self._client
        if first & 6 == 6:
            first &= 0xFD  # at QoS 2, and past PUBREC
        if not c.strict and first >> 1 & 3 <= c.max_qos:
            return ""
        n += 2 if n < 128 else 3 if n < 16384 else 4
        self._reason = load("flow", "v5.").refused(c, first, n)
        return self._reason

    def _report(self, packet_id, topic):
        """Report a message that the broker does not take."""
        c = self._client
        c.counts[_DROPPED] += 1
        if c.on_dropped:
            c.on_dropped(packet_id, bytes(topic), self._reason)

    def awaits(self, packet_id: int) -> bool:
        """Return whether a message with this packet identifier is not settled yet."""
        c = self._client
        if c.renamed:
            packet_id = c.renamed.get(packet_id, packet_id)
        return find(c, packet_id) >= 0

    def released(self, into: "list[int]") -> int:
        """Put the packet identifiers of messages past PUBREC into a list, from its start.

        Returns how many there are.
        """
        c = self._client
        p = n = 0
        while p < c.end and n < len(into):
            if c.q[p] & 6 == 6:
                into[n] = id_of(c.q, p)
                n += 1
            p = end_of(c.q, p)
        return n

    def restore(self, received: "list[int]") -> "list[int]":
        """Give the client the packet identifiers of QoS 2 messages received but not released.

        Returns the list in which it keeps them from now on; 0 is a free place.
        """
        c = self._client
        c.two = c.two or load("qos2")
        c.received = received + [0] * (c.incoming - len(received))
        return c.received
