"""Receiving from the scripted peer, with handlers that look at what they get."""

import packets
from scripted_link import online, subscribe

TOPIC = b"home/kitchen/lamp"
OTHER = b"home/cellar/lamp"


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
        ):
            self.count += 1

    def took(self, count):
        """Whether just so many messages came, as they were sent, since this was last asked."""
        n = self.count
        value = self.value
        self.count = 0
        self.value = None
        return n == count and value == -1500


def _receiving(filters, topic=TOPIC, qos=0, **options):
    """A link and a client that is subscribed, its handler, and what the peer sends at QoS 0."""
    link, client = online(**options)
    reader = Reader(topic)
    subscribe(client, link, filters, reader.take, qos)
    return link, client, reader, packets.publish(topic, b"-1500")


def qos0(proof):
    link, client, reader, packet = _receiving(TOPIC)
    while True:
        link.feed(packet)
        yield client.poll() and reader.took(1)


def qos1_and_its_puback(proof):
    link, client, reader, _ = _receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32)
    puback = packets.puback()
    identifier = 1
    while True:
        identifier += 1
        link.feed(packet.with_id(identifier))
        client.poll()
        yield reader.took(1) and link.took(puback.with_id(identifier))


def qos2_and_its_pubrel(proof):
    link, client, reader, _ = _receiving(TOPIC, qos=2)
    packet = packets.numbered(TOPIC, b"-1500", 0x34)
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    pubcomp = packets.pubcomp()
    identifier = 40000
    while True:
        identifier += 1
        link.feed(packet.with_id(identifier))
        client.poll()
        taken = reader.took(1) and link.took(pubrec.with_id(identifier))
        link.feed(pubrel.with_id(identifier))
        client.poll()
        yield taken and link.took(pubcomp.with_id(identifier))


def qos2_sent_again_before_its_pubrel(proof):
    link, client, reader, _ = _receiving(TOPIC, qos=2)
    packet = packets.numbered(TOPIC, b"-1500", 0x34)
    again = packets.numbered(TOPIC, b"-1500", 0x3C)
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    while True:
        link.feed(packet.with_id(7))
        client.poll()
        taken = link.took(pubrec.with_id(7))
        link.feed(again.with_id(7))
        client.poll()
        taken = taken and link.took(pubrec.with_id(7)) and reader.took(1)
        link.feed(pubrel.with_id(7))
        client.poll()
        yield taken and link.took_any()


def retained_and_not(proof):
    link, client, reader, packet = _receiving(TOPIC)
    packet = packet + packets.publish(TOPIC, b"-1500", 0x31)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2)


def several_in_one_read(proof):
    link, client, reader, packet = _receiving(TOPIC)
    packet = packet * 4
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(4)


def with_a_plus_filter(proof):
    link, client, reader, packet = _receiving(b"home/+/lamp")
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_a_hash_filter(proof):
    link, client, reader, packet = _receiving(b"home/#")
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_topics_that_alternate(proof):
    """No topic is the one before, so that the filters are gone through for each message."""
    link, client, reader, packet = _receiving(b"home/+/lamp")
    other = Reader(OTHER)
    subscribe(client, link, OTHER, other.take)
    reader.topic = TOPIC
    packet += packets.publish(OTHER, b"-1500") + packet
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2) and other.took(1)


def topic_of_more_than_64_bytes(proof):
    link, client, reader, packet = _receiving(b"home/+/#", b"home/kitchen/" + b"lamp/" * 20)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_two_handlers(proof):
    link, client, reader, packet = _receiving(TOPIC)
    other = Reader()
    subscribe(client, link, b"home/#", other.take)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1) and other.took(1)


def with_no_handler(proof):
    link, client, reader, packet = _receiving(b"garden/#")
    while True:
        before = client.stats.unrouted
        link.feed(packet)
        client.poll()
        yield client.stats.unrouted == before + 1 and reader.count == 0


def with_on_message(proof):
    reader = Reader()
    link, client = online(on_message=reader.take)
    packet = packets.publish(TOPIC, b"-1500")
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def topic_that_is_not_ascii(proof):
    topic = "haus/küche/温度/🌡".encode()
    link, client, reader, packet = _receiving(b"haus/#", topic)
    packet += packets.publish(b"haus", b"") + packet  # in between, that it is looked at again
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2)


def cut_in_two_at_each_byte(proof):
    link, client, reader, packet = _receiving(TOPIC)
    while True:
        for at in range(1, len(packet)):
            link.feed(packet, 0, at)
            client.poll()
            link.feed(packet, at)
            client.poll()
        yield reader.took(len(packet) - 1)


def qos1_cut_in_two_at_each_byte(proof):
    link, client, reader, _ = _receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32).with_id(513)
    puback = packets.puback().with_id(513)
    while True:
        taken = True
        for at in range(1, len(packet)):
            link.feed(packet, 0, at)
            client.poll()
            taken = taken and reader.count == 0
            link.feed(packet, at)
            client.poll()
            taken = taken and reader.took(1) and link.took(puback)
        yield taken


def length_of_two_bytes_cut_at_each(proof):
    """A payload of 200 bytes, of which the first bytes come one by one."""
    link, client = online()
    seen = bytearray(200)

    def take(message):
        message.copy(seen)

    subscribe(client, link, TOPIC, take)
    packet = packets.publish(TOPIC, bytes(range(200)))
    while True:
        seen[199] = 0
        for at in range(30):
            link.feed(packet, at, at + 1)
            client.poll()
        link.feed(packet, 30)
        while client.poll():
            pass
        yield seen[199] == 199


def larger_than_rx_size(proof):
    """It is skipped; the one after it is not."""
    link, client, reader, packet = _receiving(TOPIC)
    packet = packets.publish(TOPIC, b"-" * 300) + packet
    while True:
        before = client.stats.skipped
        link.feed(packet)
        while client.poll():
            pass
        yield client.stats.skipped == before + 1 and reader.took(1)


def larger_than_rx_size_at_qos1(proof):
    """It is acknowledged all the same."""
    link, client, reader, _ = _receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-" * 300, 0x32)
    puback = packets.puback()
    while True:
        before = client.stats.skipped
        link.feed(packet.with_id(99))
        while client.poll():
            pass
        taken = client.stats.skipped == before + 1 and reader.count == 0
        yield taken and link.took(puback.with_id(99))


def handler_publishes(proof):
    link, client = online()
    wanted = packets.publish(OTHER, b"on")

    def answer(message):
        client.publish(OTHER, b"on")

    subscribe(client, link, TOPIC, answer)
    packet = packets.publish(TOPIC, b"-1500")
    while True:
        link.feed(packet)
        client.poll()
        yield link.took(wanted)
