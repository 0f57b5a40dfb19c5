"""Publishing to the scripted peer."""

import packets
from scripted_link import online

TOPIC = b"home/kitchen/temperature"
OTHER = b"home/kitchen/humidity"
PAYLOAD = b"21.5"


def qos0(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        accepted = client.publish(TOPIC, PAYLOAD)
        client.flush()
        yield accepted == 0 and link.took(wanted)


def qos0_by_poll(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        accepted = client.publish(TOPIC, PAYLOAD)
        client.poll()
        yield accepted == 0 and link.took(wanted)


def qos1_and_its_puback(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    puback = packets.puback()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = link.took(wanted.with_id(identifier)) and client.pending == 1
        link.feed(puback.with_id(identifier))
        client.poll()
        yield sent and client.pending == 0


def qos2_and_its_pubrec_pubrel_pubcomp(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x34)
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    pubcomp = packets.pubcomp()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 2)
        client.poll()
        sent = link.took(wanted.with_id(identifier))
        link.feed(pubrec.with_id(identifier))
        client.poll()
        sent = sent and link.took(pubrel.with_id(identifier)) and client.pending == 1
        link.feed(pubcomp.with_id(identifier))
        client.poll()
        yield sent and client.pending == 0


def qos2_and_its_puback(proof):
    """From a broker that does not have QoS 2."""
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x34)
    puback = packets.puback()
    while True:
        before = client.stats.downgraded
        identifier = client.publish(TOPIC, PAYLOAD, 2)
        client.poll()
        sent = link.took(wanted.with_id(identifier))
        link.feed(puback.with_id(identifier))
        client.poll()
        yield sent and client.pending == 0 and client.stats.downgraded == before + 1


def retained(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD, 0x31)
    while True:
        client.publish(TOPIC, PAYLOAD, retain=True)
        client.flush()
        yield link.took(wanted)


def retained_at_qos1(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x33)
    puback = packets.puback()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, qos=1, retain=True)
        client.flush()
        sent = link.took(wanted.with_id(identifier))
        link.feed(puback.with_id(identifier))
        client.poll()
        yield sent and client.pending == 0


def empty_payload(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, b"")
    while True:
        client.publish(TOPIC)
        client.flush()
        yield link.took(wanted)


def payload_of_more_than_127_bytes(proof):
    link, client = online()
    payload = bytes(range(200))
    wanted = packets.publish(TOPIC, payload)
    while True:
        client.publish(TOPIC, payload)
        client.flush()
        yield link.took(wanted)


def payload_in_a_bytearray(proof):
    link, client = online()
    payload = bytearray(PAYLOAD)
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        client.publish(TOPIC, payload)
        client.flush()
        yield link.took(wanted)


def payload_in_a_memoryview(proof):
    link, client = online()
    payload = memoryview(b"<21.5>")[1:5]
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        client.publish(TOPIC, payload)
        client.flush()
        yield link.took(wanted)


def alternating_topics(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD) + packets.publish(OTHER, PAYLOAD)
    while True:
        client.publish(TOPIC, PAYLOAD)
        client.publish(OTHER, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def more_topics_than_are_remembered(proof):
    link, client = online()
    names = [b"dev/%d/temp" % (1000 + i) for i in range(12)]
    wanted = b"".join(packets.publish(name, PAYLOAD) for name in names)
    while True:
        for name in names:
            client.publish(name, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def topic_in_a_bytearray(proof):
    link, client = online()
    topic = bytearray(TOPIC)
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        client.publish(topic, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def burst_in_one_write(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD) * 8
    while True:
        for _ in range(8):
            client.publish(TOPIC, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def burst_of_every_qos(proof):
    link, client = online()
    at1 = packets.numbered(TOPIC, PAYLOAD, 0x32)
    at2 = packets.numbered(TOPIC, PAYLOAD, 0x34)
    puback = packets.puback()
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    pubcomp = packets.pubcomp()
    wanted = bytearray(len(packets.publish(TOPIC, PAYLOAD)) + 2 * len(at1.with_id(0)))
    view = memoryview(wanted)
    first = view[: len(at1.with_id(0))]
    second = view[len(first) : 2 * len(first)]
    third = view[2 * len(first) :]
    third[:] = packets.publish(TOPIC, PAYLOAD)
    while True:
        one = client.publish(TOPIC, PAYLOAD, 1)
        two = client.publish(TOPIC, PAYLOAD, 2)
        client.publish(TOPIC, PAYLOAD)
        client.poll()
        first[:] = at1.with_id(one)
        second[:] = at2.with_id(two)
        sent = link.took(wanted)
        link.feed(pubrec.with_id(two))
        client.poll()
        sent = sent and link.took(pubrel.with_id(two))
        link.feed(puback.with_id(one))
        client.poll()
        link.feed(pubcomp.with_id(two))
        client.poll()
        yield sent and client.pending == 0


def written_in_pieces(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    link.room = 5
    while True:
        client.publish(TOPIC, PAYLOAD)
        for _ in range(len(wanted)):
            client.poll()
        yield link.took(wanted)


def acknowledgements_of_nothing(proof):
    link, client = online()
    packet = packets.puback().with_id(77) + packets.pubcomp().with_id(77)
    packet += packets.pubrec().with_id(77)
    while True:
        before = client.stats.strays
        link.feed(packet)
        client.poll()
        yield client.stats.strays == before + 3 and client.connected


def no_room_in_the_ring(proof):
    link, client = online(tx_size=64)
    link.room = 0
    while client.publish(TOPIC, PAYLOAD) is not None:
        pass
    while True:
        yield client.publish(TOPIC, PAYLOAD) is None


def no_room_in_flight(proof):
    _, client = online(inflight=2)
    client.publish(TOPIC, PAYLOAD, 1)
    client.publish(TOPIC, PAYLOAD, 2)
    client.poll()
    while True:
        yield client.publish(TOPIC, PAYLOAD, 1) is None


def into_a_wrapped_ring(proof):
    """There is room for three packets and a half, and one is always kept: it never gets empty."""
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    link, client = online(tx_size=7 * len(wanted.with_id(0)) // 2)
    puback = packets.puback()
    before = client.publish(TOPIC, PAYLOAD, 1)
    client.poll()
    link.took_any()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = link.took(wanted.with_id(identifier)) and client.pending == 2
        link.feed(puback.with_id(before))
        client.poll()
        before = identifier
        yield sent and client.pending == 1


def qos0_into_a_wrapped_ring(proof):
    """Above, and the kept packet changes with every second message."""
    kept = packets.numbered(TOPIC, PAYLOAD, 0x32)
    wanted = packets.publish(TOPIC, PAYLOAD)
    link, client = online(tx_size=6 * len(wanted))
    puback = packets.puback()
    before = client.publish(TOPIC, PAYLOAD, 1)
    client.poll()
    link.took_any()
    while True:
        accepted = client.publish(TOPIC, PAYLOAD)
        client.poll()
        sent = accepted == 0 and link.took(wanted)
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = sent and link.took(kept.with_id(identifier))
        link.feed(puback.with_id(before))
        client.poll()
        before = identifier
        yield sent and client.pending == 1


class Endless:
    """A file of 200 MB."""

    def seek(self, at, whence=0):
        return 200_000_000

    def readinto(self, into):
        return len(into)


def in_pieces_from_a_file(proof):
    """Once it has begun."""
    link, client = online()
    link.swallows = True
    client.publish_from(TOPIC, Endless(), 1)
    client.poll()
    while True:
        before = link.swallowed
        client.poll()
        yield link.swallowed > before + 512 and client.pending == 1
