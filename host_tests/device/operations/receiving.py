"""Receiving from the scripted peer, one message after the other."""

import packets
from reader import TOPIC, Reader, receiving, skipping, taking
from scripted_link import online, subscribe

OTHER = b"home/cellar/lamp"


def _by(filters, topic=TOPIC):
    """A message whose topic name matches the filter."""
    link, _, reader, packet = receiving(filters, topic)
    return taking(link, reader, packet)


def qos0(proof):
    link, client, reader, packet = receiving(TOPIC)
    while True:
        link.feed(packet)
        yield client.poll() and reader.took(1)


def qos1_and_its_puback(proof):
    link, _, reader, _ = receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32)
    identifier = 1
    while True:
        identifier += 1
        link.give(packet.with_id(identifier))
        yield reader.took(1) and link.took(packets.PUBACK.with_id(identifier))


def qos2_and_its_pubrel(proof):
    link, _, reader, _ = receiving(TOPIC, qos=2)
    packet = packets.numbered(TOPIC, b"-1500", 0x34)
    identifier = 40000
    while True:
        identifier += 1
        link.give(packet.with_id(identifier))
        taken = reader.took(1) and link.took(packets.PUBREC.with_id(identifier))
        link.give(packets.PUBREL.with_id(identifier))
        yield taken and link.took(packets.PUBCOMP.with_id(identifier))


def qos2_sent_again_before_its_pubrel(proof):
    link, _, reader, _ = receiving(TOPIC, qos=2)
    packet = packets.numbered(TOPIC, b"-1500", 0x34).with_id(7)
    again = packets.numbered(TOPIC, b"-1500", 0x3C).with_id(7)
    pubrec = packets.PUBREC.with_id(7)
    while True:
        link.give(packet)
        taken = link.took(pubrec)
        link.give(again)
        taken = taken and link.took(pubrec) and reader.took(1)
        link.give(packets.PUBREL.with_id(7))
        yield taken and link.took_any()


def retained_and_not(proof):
    link, _, reader, packet = receiving(TOPIC)
    return taking(link, reader, packet + packets.publish(TOPIC, b"-1500", 0x31), 2)


def dup_at_qos0(proof):
    """Receive DUP at QoS 0, which nobody may send."""
    link, client, reader, _ = receiving(TOPIC)
    packet = packets.publish(TOPIC, b"-1500", 0x38)
    while True:
        before = client.stats.dup0
        link.give(packet)
        yield reader.took(1) and client.stats.dup0 == before + 1


def while_a_gate_holds_answers_back(proof):
    link, client, reader, _ = receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32).with_id(513)
    shut = [True]

    def gate(same):
        return not shut[0]

    client.gate = gate
    while True:
        shut[0] = True
        link.give(packet)
        client.poll()
        held = reader.took(1) and not link.took_any()
        shut[0] = False
        client.poll()
        yield held and link.took(packets.PUBACK.with_id(513))


def with_a_shared_subscription(proof):
    return _by(b"$share/group/home/+/lamp")


def with_a_plus_filter(proof):
    return _by(b"home/+/lamp")


def with_a_hash_filter(proof):
    return _by(b"home/#")


def topic_of_more_than_64_bytes(proof):
    return _by(b"home/+/#", b"home/kitchen/" + b"lamp/" * 20)


def with_topics_that_alternate(proof):
    """No topic is the one before, so that the filters are gone through for each message."""
    link, client, reader, packet = receiving(b"home/+/lamp")
    other = Reader(OTHER)
    subscribe(client, link, OTHER, other.take)
    packet += packets.publish(OTHER, b"-1500") + packet
    while True:
        link.give(packet)
        yield reader.took(2) and other.took(1)


def with_two_handlers(proof):
    link, client, reader, packet = receiving(TOPIC)
    other = Reader()
    subscribe(client, link, b"home/#", other.take)
    while True:
        link.give(packet)
        yield reader.took(1) and other.took(1)


def with_no_handler(proof):
    link, client, reader, packet = receiving(b"garden/#")
    while True:
        before = client.stats.unrouted
        link.give(packet)
        yield client.stats.unrouted == before + 1 and reader.count == 0


def topic_name_that_is_not_valid(proof):
    return skipping(b"home/+", b"-1500")


def with_on_message(proof):
    reader = Reader()
    link, _ = online(on_message=reader.take)
    return taking(link, reader, packets.publish(TOPIC, b"-1500"))


def topic_that_is_not_ascii(proof):
    topic = "haus/küche/温度/🌡".encode()
    link, _, reader, packet = receiving(b"haus/#", topic)
    packet += packets.publish(b"haus", b"") + packet  # in between, that it is looked at again
    return taking(link, reader, packet, 2)


def handler_publishes(proof):
    link, client = online()
    wanted = packets.publish(OTHER, b"on")

    def answer(message):
        link.publish(OTHER, b"on")

    subscribe(client, link, TOPIC, answer)
    packet = packets.publish(TOPIC, b"-1500")
    while True:
        link.give(packet)
        yield link.took(wanted)
