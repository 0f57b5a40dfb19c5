"""Receiving from the scripted peer what comes in pieces, at once, or is too large."""

import io

import packets
from reader import TOPIC, looked, receiving, skipping, taking
from scripted_link import online, subscribe


def several_in_one_read(proof):
    link, _, reader, packet = receiving(TOPIC)
    return taking(link, reader, packet * 4, 4)


def cut_in_two_at_each_byte(proof):
    link, _, reader, packet = receiving(TOPIC)
    while True:
        for at in range(1, len(packet)):
            link.give(packet, 0, at)
            link.give(packet, at)
        yield reader.took(len(packet) - 1)


def qos1_cut_in_two_at_each_byte(proof):
    link, _, reader, _ = receiving(TOPIC, qos=1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32).with_id(513)
    puback = packets.PUBACK.with_id(513)
    while True:
        taken = True
        for at in range(1, len(packet)):
            link.give(packet, 0, at)
            taken = taken and reader.count == 0
            link.give(packet, at)
            taken = taken and reader.took(1) and link.took(puback)
        yield taken


def length_of_two_bytes_cut_at_each(proof):
    """A payload of 180 bytes, of which the first bytes come one by one."""
    link, client = online()
    seen = bytearray(180)

    def take(message):
        message.copy(seen)

    subscribe(client, link, TOPIC, take)
    packet = packets.publish(TOPIC, bytes(range(180)))
    while True:
        seen[179] = 0
        for at in range(30):
            link.give(packet, at, at + 1)
        link.feed(packet, 30)
        while client.poll():
            pass
        yield seen[179] == 179


def larger_than_rx_size(proof):
    """It is skipped; the one after it is not."""
    link, client, reader, packet = receiving(TOPIC)
    packet = packets.publish(TOPIC, b"-" * 300) + packet
    while True:
        before = client.stats.skipped
        link.feed(packet)
        while client.poll():
            pass
        yield client.stats.skipped == before + 1 and reader.took(1)


def larger_than_rx_size_at_qos1(proof):
    return skipping(TOPIC, b"-" * 300)


def topic_name_that_is_not_valid(proof):
    return skipping(b"home/+", b"-" * 300)


def qos1_while_the_network_takes_no_puback(proof):
    """More messages than there is room for acknowledgements: the last of them have to wait."""
    link, client, reader, _ = receiving(TOPIC, qos=1)
    packet = bytes(packets.numbered(TOPIC, b"-1500", 0x32).with_id(258)) * 20
    pubacks = bytes(packets.PUBACK.with_id(258)) * 20
    while True:
        link.room = 0
        link.feed(packet)
        for _ in range(20):
            client.poll()
        waited = 0 < reader.count < 20
        link.room = len(pubacks)
        for _ in range(20):
            client.poll()
        yield waited and reader.took(20) and link.took(pubacks)


def chunks_of_a_larger_one(proof):
    """Each piece reaches the handler, which writes it to a stream, with the properties."""
    link, client = online()
    sink = io.BytesIO(1024)
    bad = [0]

    def take(message):
        if not message.offset:
            sink.seek(0)
        message.write_to(sink)
        if packets.properties and not looked(message.properties):
            bad[0] += 1

    subscribe(client, link, TOPIC, take, 1, True)
    packet = packets.numbered(TOPIC, b"-" * 700, 0x32).with_id(99)
    while True:
        sink.seek(0)
        link.feed(packet)
        while client.poll():
            pass
        whole = sink.seek(0, 1) == 700 and not bad[0]
        yield whole and link.took(packets.PUBACK.with_id(99))
