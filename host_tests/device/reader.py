"""A handler that looks at what it gets, for a client of the scripted peer."""

from micropython import const

import packets
from scripted_link import online, subscribe

TOPIC = b"home/kitchen/lamp"
_EXPIRY = const(0x02)
_CONTENT_TYPE = const(0x03)
_USER = const(0x26)


def looked(p):
    """Return whether properties are packets.SOME, read in every way that allocates nothing."""
    n = at = 0
    while p.find(_USER, at):
        n += 1
        at = p.end
    return (
        n == 2
        and p.get(_EXPIRY) == 65536
        and p.get(_CONTENT_TYPE - 2) is None
        and p.is_value(_CONTENT_TYPE, b"text")
        and not p.is_value(_CONTENT_TYPE, b"html")
        and p.is_user(b"two", b"bcd")
        and not p.is_user(b"one", b"bcd")
        and p.user(b"three") is None
    )


class Reader:
    """A handler that reads its message in every way that allocates nothing."""

    def __init__(self, topic=TOPIC):
        self.topic = topic
        self.count = 0
        self.value = None
        self._into = bytearray(16)

    def take(self, message):
        self.value = message.number()
        n = message.copy(self._into)
        if (
            message.is_topic(self.topic)
            and message.is_payload(b"-1500")
            and not message.is_payload(b"1500")
            and len(message) == n == 5
            and message[0] == self._into[0] == 45
            and message[4] == self._into[4]
            and message.qos + message.retain + message.dup <= 4
            and (packets.properties is None or looked(message.properties))
        ):
            self.count += 1

    def took(self, count):
        """Return whether exactly `count` messages came unchanged since the last call."""
        n = self.count
        value = self.value
        self.count = 0
        self.value = None
        return n == count and value == -1500


def receiving(filters, topic=TOPIC, qos=0):
    """A link and a client that is subscribed, its handler, and what the peer sends at QoS 0."""
    link, client = online()
    reader = Reader(topic)
    subscribe(client, link, filters, reader.take, qos)
    return link, client, reader, packets.publish(topic, b"-1500")


def taking(link, reader, packet, count=1):
    """The operation that gives a client a packet with as many messages for its handler."""
    while True:
        link.give(packet)
        yield reader.took(count)


def skipping(topic, payload, properties=None):
    """The operation in which a message at QoS 1 is skipped and acknowledged.

    The one behind it is not skipped.
    """
    link, client, reader, after = receiving(TOPIC, qos=1)
    packet = packets.numbered(topic, payload, 0x32, properties).with_id(99) + after
    while True:
        before = client.stats.skipped
        link.feed(packet)
        while client.poll():
            pass
        skipped = client.stats.skipped == before + 1 and link.took(packets.PUBACK.with_id(99))
        yield skipped and reader.took(1)
