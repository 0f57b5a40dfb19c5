"""Receiving with what only MQTT 5 has, from the scripted peer."""

import packets
from reader import TOPIC, Reader, receiving, skipping, taking
from scripted_link import online, subscribe

WILD = b"home/#"
LONG = b"\x9d\1\x26\0\4long\0\x94" + bytes(range(32, 90)) + b"-" * 90  # of 157 bytes
EXPIRY = 0x02
CONTENT_TYPE = 0x03


def _with(properties):
    return packets.publish(TOPIC, b"-1500", properties=properties)


def _tag(*identifiers):
    """A block with these Subscription Identifiers."""
    return bytes((2 * len(identifiers),)) + b"".join(bytes((0x0B, i)) for i in identifiers)


def properties_that_nobody_reads(proof):
    link, _, reader, _ = receiving(TOPIC)
    return taking(link, reader, _with(packets.SOME))


def properties_of_more_than_127_bytes(proof):
    link, _, reader, _ = receiving(TOPIC)
    return taking(link, reader, _with(LONG))


def no_properties_to_read(proof):
    link, client = online()
    found = [0]

    def take(message):
        if not message.properties.find(CONTENT_TYPE) and message.properties.get(EXPIRY, 7) == 7:
            found[0] += 1

    subscribe(client, link, TOPIC, take)
    packet = _with(packets.NONE)
    while True:
        found[0] = 0
        link.give(packet)
        yield found[0] == 1


def _overlapping(count, qos=0):
    """A link, a client with so many subscriptions that all match TOPIC, and what they have."""
    link, client = online(subscriptions=count)
    filters = (TOPIC, WILD, b"home/+/lamp", b"#", b"+/kitchen/#")[:count]
    readers = [Reader() for _ in filters]
    made = [
        subscribe(client, link, f, r.take, qos).identifier
        for f, r in zip(filters, readers)  # noqa: B905 - as MicroPython has it
    ]
    return link, readers, made


def _two(properties_of):
    """Two handlers, each of which gets one message of what is made for their identifiers."""
    link, (one, two), made = _overlapping(2)
    packet = properties_of(*made)
    while True:
        link.give(packet)
        yield one.took(1) and two.took(1)


def one_subscription_identifier(proof):
    link, [reader], made = _overlapping(1)
    return taking(link, reader, _with(_tag(*made)))


def one_subscription_identifier_at_qos1(proof):
    link, [reader], made = _overlapping(1, 1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32, _tag(*made)).with_id(99)
    while True:
        link.give(packet)
        yield reader.took(1) and link.took(packets.PUBACK.with_id(99))


def an_identifier_among_other_properties(proof):
    link, [reader], made = _overlapping(1)
    some = packets.SOME
    return taking(link, reader, _with(bytes((some[0] + 2,)) + some[1:] + _tag(*made)[1:]))


def two_identifiers_in_one_message(proof):
    """Each handler gets it once."""
    return _two(lambda one, two: _with(_tag(one, two)))


def a_copy_for_each_of_two_identifiers(proof):
    """Overlapping filters: each copy goes to its own handler alone."""
    return _two(lambda one, two: _with(_tag(one)) + _with(_tag(two)))


def overlapping_filters_without_identifiers(proof):
    return _two(lambda one, two: _with(packets.NONE))


def five_identifiers_of_which_three_are_named(proof):
    link, readers, made = _overlapping(5)
    packet = _with(_tag(made[4], made[0], made[2]))
    while True:
        link.give(packet)
        done = True
        for i in range(5):
            done = (readers[i].took(1) if i in (0, 2, 4) else readers[i].count == 0) and done
        yield done


def an_identifier_that_nobody_has(proof):
    """The message goes by its topic name then."""
    link, _, reader, _ = receiving(TOPIC)
    return taking(link, reader, _with(_tag(77)) + _with(b"\4\x0b\xff\xff\x03"), 2)  # 65,535


def properties_larger_than_rx_size(proof):
    return skipping(TOPIC, b"-1500", b"\xa5\3\x26\0\4long\1\x9c" + b"-" * 412)


def a_property_that_is_left_out(proof):
    """Payload Format Indicator 2, or an empty Response Topic."""
    link, client = online()
    found = [0]

    def take(message):
        if not message.properties.find(1) and message.properties.get(8) is None:
            found[0] += 1

    subscribe(client, link, TOPIC, take)
    both = _with(b"\2\1\2"), _with(b"\3\x08\0\0")
    while True:
        before = client.stats.strays
        found[0] = 0
        for packet in both:
            link.give(packet)
        yield found[0] == 2 and client.stats.strays == before + 2
