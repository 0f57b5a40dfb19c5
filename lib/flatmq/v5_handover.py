"""What a module that keeps messages itself needs from an MQTT 5 client: see `rare.handover`."""

from .port import const
from .resend import assume_sent

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .v5 import Client5

_OWN = const(32767)
_PUBCOMP = const(0x70)  # see Session.waits
_HEAD = const(5)  # bytes of topic length, packet identifier and property length


def handover(self: "Client5") -> "Handover":
    """Return the Handover of a client that has not been started."""
    return Handover(self)


class Handover:
    """Hands messages to a `client`: see `rare.handover.Handover`."""

    clean: bool
    inflight: int
    most: int

    def __init__(self, client: "Client5") -> None:
        self._client = client
        self.clean = client.options["clean_session"]
        self.inflight = client.slots
        self.most = client.size - 2 - _HEAD
        for n in (129, 16386, 2097155):
            if client.size > n:
                self.most -= 1
        client.own = _OWN

    def check(self, topic: "bytes | str") -> None:
        """Raise ValueError or TypeError if this is not a valid topic name."""
        if topic is not self._client.topic:
            self._client.check(topic)

    def put(self, packet_id: int, first: int, topic, payload) -> bool:
        """Accept a message at QoS 1 or 2."""
        c = self._client
        n = len(topic) + len(payload) + _HEAD
        if n - _HEAD > self.most:
            c.make_room(n)  # raises ValueError
        if (c.strict or not c.max_qos) and not self._is_taken(first, n):
            self._set_aside(packet_id, first, topic, n)
            return True
        # The buffer is not the client's. A copy lets it remember the name, if it has room.
        if topic in c.names:
            topic = c.names[c.names.index(topic)]
        elif not c.fields[c.oldest]:
            topic = bytes(topic)
        n = c.last_id
        c.last_id = packet_id - 1
        topic = c.publish(topic, payload, 2 if first & 4 else 1, first & 1)
        c.last_id = n
        if topic is None:
            return False
        if first & 6 == 6:
            c.waits[c.ids.index(packet_id)] = _PUBCOMP
        if first & 8:
            assume_sent(c)
        return True

    def _is_taken(self, first, n):
        """Return whether the broker's limits allow a message."""
        try:
            self._allow(first, n)
        except ValueError:  # naming the exception would put the frame on the heap
            return False
        return True

    def _allow(self, first, n):
        """Raise ValueError if the broker does not take a message."""
        if not self._client.max_qos:
            raise ValueError("the broker takes no QoS above 0")
        self._client.allow(n, first & 1)

    def _set_aside(self, packet_id, first, topic, n):
        c = self._client
        c.stats.dropped += 1
        try:
            self._allow(first, n)
        except ValueError as e:
            if c.on_dropped:
                c.on_dropped(packet_id, bytes(topic), str(e))

    def awaits(self, packet_id: int) -> bool:
        """Return whether a message with this packet identifier is not settled yet."""
        return packet_id in self._client.ids

    def released(self, into: "list[int]") -> int:
        """Put the packet identifiers of messages past PUBREC into a list, from its start."""
        c = self._client
        i = n = 0
        while i < c.slots:
            if c.waits[i] == _PUBCOMP:
                into[n] = c.ids[i]
                n += 1
            i += 1
        return n

    def restore(self, received: "list[int]") -> "list[int]":
        """Give the client the packet identifiers of QoS 2 messages received but not released."""
        c = self._client
        c.received = received + [0] * (c.options["incoming"] - len(received))
        return c.received
