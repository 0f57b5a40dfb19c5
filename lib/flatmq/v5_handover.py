"""The interface of an MQTT 5 client for a module that keeps messages: see `rare.handover`."""

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


def _publish(c, first, topic, payload):
    # The buffer is not the client's. A copy lets it remember the name, if it has room.
    if topic in c.names:
        topic = c.names[c.names.index(topic)]
    elif not c.fields[c.oldest]:
        topic = bytes(topic)
    return c.publish(topic, payload, 2 if first & 4 else 1, first & 1)


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
        n = len(topic) + len(payload) + _HEAD
        if n - _HEAD > self.most:
            self._client.make_room(n)  # raises ValueError
        if self._client.strict or not self._client.max_qos:
            n = self._refusal(first, n)
            if n:
                self._set_aside(packet_id, topic, n)
                return True
        n = self._client.last_id
        self._client.last_id = packet_id - 1
        topic = _publish(self._client, first, topic, payload)
        self._client.last_id = n
        if topic is None:
            return False
        if first & 6 == 6:
            self._client.waits[self._client.ids.index(packet_id)] = _PUBCOMP
        if first & 8:
            assume_sent(self._client)
        return True

    def _refusal(self, first, n):
        """Return why the broker does not take a message, None if it does."""
        c = self._client
        n += 2 if n < 128 else 3 if n < 16384 else 4 if n < 2097152 else 5
        if not c.max_qos:
            return "the broker takes no QoS above 0"
        if first & 1 and not c.server.retain:
            return "the broker takes no retained messages"
        if 0 < c.server.maximum_packet_size < n:
            return f"the broker takes packets of at most {c.server.maximum_packet_size} bytes"
        return None

    def _set_aside(self, packet_id, topic, reason):
        self._client.stats.dropped += 1
        if self._client.on_dropped:
            self._client.on_dropped(packet_id, bytes(topic), reason)

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
