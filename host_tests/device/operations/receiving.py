"""Receiving from the scripted peer, one message after the other."""

import packets
from reader import TOPIC, Reader, receiving
from scripted_link import online, subscribe

OTHER = b"home/cellar/lamp"


def qos0(proof):
    link, client, reader, packet = receiving(TOPIC)
    while True:
        link.feed(packet)
        yield client.poll() and reader.took(1)


def qos1_and_its_puback(proof):
    link, client, reader, _ = receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32)
    puback = packets.puback()
    identifier = 1
    while True:
        identifier += 1
        link.feed(packet.with_id(identifier))
        client.poll()
        yield reader.took(1) and link.took(puback.with_id(identifier))


def qos2_and_its_pubrel(proof):
    link, client, reader, _ = receiving(TOPIC, qos=2)
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
    link, client, reader, _ = receiving(TOPIC, qos=2)
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
    link, client, reader, packet = receiving(TOPIC)
    packet = packet + packets.publish(TOPIC, b"-1500", 0x31)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2)


def dup_at_qos0(proof):
    """Receive DUP at QoS 0, which nobody may send."""
    link, client, reader, _ = receiving(TOPIC)
    packet = packets.publish(TOPIC, b"-1500", 0x38)
    while True:
        before = client.stats.dup0
        link.feed(packet)
        client.poll()
        yield reader.took(1) and client.stats.dup0 == before + 1


def while_a_gate_holds_answers_back(proof):
    link, client, reader, _ = receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32).with_id(513)
    puback = packets.puback().with_id(513)
    shut = [True]

    def gate(same):
        return not shut[0]

    client.gate = gate
    while True:
        shut[0] = True
        link.feed(packet)
        client.poll()
        client.poll()
        held = reader.took(1) and not link.took_any()
        shut[0] = False
        client.poll()
        yield held and link.took(puback)


def with_a_shared_subscription(proof):
    link, client, reader, packet = receiving(b"$share/group/home/+/lamp")
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_a_plus_filter(proof):
    link, client, reader, packet = receiving(b"home/+/lamp")
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_a_hash_filter(proof):
    link, client, reader, packet = receiving(b"home/#")
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_topics_that_alternate(proof):
    """No topic is the one before, so that the filters are gone through for each message."""
    link, client, reader, packet = receiving(b"home/+/lamp")
    other = Reader(OTHER)
    subscribe(client, link, OTHER, other.take)
    reader.topic = TOPIC
    packet += packets.publish(OTHER, b"-1500") + packet
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2) and other.took(1)


def topic_of_more_than_64_bytes(proof):
    link, client, reader, packet = receiving(b"home/+/#", b"home/kitchen/" + b"lamp/" * 20)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1)


def with_two_handlers(proof):
    link, client, reader, packet = receiving(TOPIC)
    other = Reader()
    subscribe(client, link, b"home/#", other.take)
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(1) and other.took(1)


def with_no_handler(proof):
    link, client, reader, packet = receiving(b"garden/#")
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
    link, client, reader, packet = receiving(b"haus/#", topic)
    packet += packets.publish(b"haus", b"") + packet  # in between, that it is looked at again
    while True:
        link.feed(packet)
        client.poll()
        yield reader.took(2)


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
