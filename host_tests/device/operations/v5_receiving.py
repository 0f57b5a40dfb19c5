"""Receiving with what MQTT 5 has besides, from the scripted peer."""

import io

import packets
from reader import TOPIC, Reader, receiving
from scripted_link import online, subscribe

WILD = b"home/#"
# Content Type, Message Expiry Interval, and two User Properties, with their length before them.
SOME = b"\x26\x03\0\x0atext/plain\x02\0\1\0\0\x26\0\3one\0\1a\x26\0\3two\0\3bcd"
LONG = b"\x9d\1\x26\0\4long\0\x94" + bytes(range(32, 90)) + b"-" * 90  # of 157 bytes
EXPIRY = 0x02
CONTENT_TYPE = 0x03
USER = 0x26


def _with(properties, first=0x30, payload=b"-1500"):
    if first == 0x30:
        return packets.publish(TOPIC, payload, first, properties)
    return packets.numbered(TOPIC, payload, first, properties)


def _tag(*identifiers):
    """A block with these Subscription Identifiers."""
    return bytes((2 * len(identifiers),)) + b"".join(bytes((0x0B, i)) for i in identifiers)


def qos0_with_properties(proof):
    link, client, reader, _ = receiving(TOPIC)
    packet = _with(SOME)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def qos1_with_properties_and_its_puback(proof):
    link, client, reader, _ = receiving(TOPIC, qos=1)
    packet = _with(SOME, 0x32)
    puback = packets.puback()
    identifier = 1
    while True:
        identifier += 1
        link.feed(packet.with_id(identifier))
        client.poll()
        yield reader.took(1) and link.took(puback.with_id(identifier))


def qos2_with_properties_and_its_pubrel(proof):
    link, client, reader, _ = receiving(TOPIC, qos=2)
    packet = _with(SOME, 0x34)
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


def properties_of_more_than_127_bytes(proof):
    link, client, reader, _ = receiving(TOPIC)
    packet = _with(LONG)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def properties_cut_in_two_at_each_byte(proof):
    link, client, reader, _ = receiving(TOPIC)
    packet = _with(SOME)
    while True:
        for at in range(1, len(packet)):
            link.feed(packet, 0, at)
            client.poll()
            link.feed(packet, at)
            client.poll()
        yield reader.took(len(packet) - 1)


class _Looking:
    """A handler that looks at properties in every way that allocates nothing."""

    def __init__(self):
        self.count = 0

    def take(self, message):
        p = message.properties
        if (
            p.get(EXPIRY) == 65536
            and p.get(CONTENT_TYPE - 2) is None
            and p.is_value(CONTENT_TYPE, b"text/plain")
            and not p.is_value(CONTENT_TYPE, b"text/html")
            and p.is_user(b"two", b"bcd")
            and not p.is_user(b"one", b"bcd")
            and p.user(b"three") is None
            and self.pairs(p) == 2
            and message.is_payload(b"-1500")
        ):
            self.count += 1

    def pairs(self, p):
        """Return the number of User Properties."""
        n = 0
        at = 0
        while p.find(USER, at):
            n += 1
            at = p.end
        return n

    def took(self, count):
        n = self.count
        self.count = 0
        return n == count


def properties_that_are_read(proof):
    looking = _Looking()
    link, client = online()
    subscribe(client, link, TOPIC, looking.take)
    packet = _with(SOME)
    while True:
        link.feed(packet)
        client.poll()
        yield looking.took(1)


def properties_that_are_read_at_qos1(proof):
    looking = _Looking()
    link, client = online()
    subscribe(client, link, TOPIC, looking.take, 1)
    packet = _with(SOME, 0x32).with_id(99)
    puback = packets.puback().with_id(99)
    while True:
        link.feed(packet)
        client.poll()
        yield looking.took(1) and link.took(puback)


def properties_that_on_message_reads(proof):
    looking = _Looking()
    link, client = online(on_message=looking.take)
    packet = _with(SOME)
    while True:
        link.feed(packet)
        client.poll()
        yield looking.took(1)


def no_properties_to_read(proof):
    link, client = online()
    found = [0]

    def take(message):
        if not message.properties.find(CONTENT_TYPE) and message.properties.get(EXPIRY, 7) == 7:
            found[0] += 1

    subscribe(client, link, TOPIC, take)
    packet = _with(b"")
    while True:
        found[0] = 0
        link.feed(packet)
        client.poll()
        yield found[0] == 1


def one_subscription_identifier(proof):
    reader = Reader()
    link, client = online()
    s = subscribe(client, link, TOPIC, reader.take)
    packet = _with(_tag(s.identifier))
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def one_subscription_identifier_at_qos1(proof):
    reader = Reader()
    link, client = online()
    s = subscribe(client, link, TOPIC, reader.take, 1)
    packet = _with(_tag(s.identifier), 0x32).with_id(99)
    puback = packets.puback().with_id(99)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1) and link.took(puback)


def an_identifier_among_other_properties(proof):
    reader = Reader()
    link, client = online()
    s = subscribe(client, link, TOPIC, reader.take)
    packet = _with(bytes((SOME[0] + 2,)) + SOME[1:] + _tag(s.identifier)[1:])
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def _overlapping(count):
    """A link, a client with so many subscriptions that all match TOPIC, and what they have."""
    link, client = online(subscriptions=count)
    filters = (TOPIC, WILD, b"home/+/lamp", b"#", b"+/kitchen/#")[:count]
    readers = [Reader() for _ in filters]
    made = [
        subscribe(client, link, f, r.take).identifier
        for f, r in zip(filters, readers)  # noqa: B905 - as MicroPython has it
    ]
    return link, client, readers, made


def two_identifiers_in_one_message(proof):
    """Each handler gets it once."""
    link, client, (one, two), made = _overlapping(2)
    packet = _with(_tag(*made))
    while True:
        link.feed(packet)
        client.poll()
        yield one.took(1) and two.took(1)


def a_copy_for_each_of_two_identifiers(proof):
    """Overlapping filters: each copy goes to its own handler alone."""
    link, client, (one, two), made = _overlapping(2)
    packet = _with(_tag(made[0])) + _with(_tag(made[1]))
    while True:
        link.feed(packet)
        client.poll()
        yield one.took(1) and two.took(1)


def five_identifiers_of_which_three_are_named(proof):
    link, client, readers, made = _overlapping(5)
    packet = _with(_tag(made[4], made[0], made[2]))
    while True:
        link.feed(packet)
        client.poll()
        done = True
        for i in range(5):
            done = readers[i].took(1) if i in (0, 2, 4) else readers[i].count == 0 and done
        yield done


def an_identifier_that_nobody_has(proof):
    """The message goes by its topic name then."""
    link, client, reader, _ = receiving(TOPIC)
    packet = _with(_tag(77)) + _with(b"\4\x0b\xff\xff\x03")  # 65,535
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2)


def overlapping_filters_without_identifiers(proof):
    link, client, (one, two), _ = _overlapping(2)
    packet = _with(b"")
    while True:
        link.feed(packet)
        client.poll()
        yield one.took(1) and two.took(1)


def chunks_of_a_larger_one_with_properties(proof):
    """Each piece reaches the handler, which sees the properties."""
    link, client = online()
    sink = io.BytesIO(1024)
    seen = [0]

    def take(message):
        if not message.offset:
            sink.seek(0)
        message.write_to(sink)
        if message.properties.is_user(b"two", b"bcd") and message.properties.get(EXPIRY) == 65536:
            seen[0] += 1

    subscribe(client, link, TOPIC, take, 1, True)
    packet = _with(SOME, 0x32, b"-" * 700)
    puback = packets.puback()
    while True:
        seen[0] = 0
        sink.seek(0)
        link.feed(packet.with_id(99))
        while client.poll():
            pass
        yield sink.seek(0, 1) == 700 and link.took(puback.with_id(99)) and seen[0] > 2


def larger_than_rx_size_with_properties(proof):
    """It is skipped and acknowledged; the one after it is not skipped."""
    link, client, reader, after = receiving(TOPIC, qos=1)
    packet = _with(SOME, 0x32, b"-" * 300).with_id(99) + after
    puback = packets.puback().with_id(99)
    while True:
        before = client.stats.skipped
        link.feed(packet)
        while client.poll():
            pass
        yield client.stats.skipped == before + 1 and reader.took(1) and link.took(puback)


def properties_larger_than_rx_size(proof):
    link, client, reader, after = receiving(TOPIC, qos=1)
    packet = _with(b"\xa5\3\x26\0\4long\1\x9c" + b"-" * 412, 0x32).with_id(99) + after
    puback = packets.puback().with_id(99)
    while True:
        before = client.stats.skipped
        link.feed(packet)
        while client.poll():
            pass
        yield client.stats.skipped == before + 1 and reader.took(1) and link.took(puback)
