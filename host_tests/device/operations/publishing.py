"""Publishing to the scripted peer."""

import packets
from scripted_link import flushed, online

TOPIC = b"home/kitchen/temperature"
OTHER = b"home/kitchen/humidity"
PAYLOAD = b"21.5"


def _one(topic, payload):
    link, _ = online()
    wanted = packets.publish(bytes(topic), bytes(payload))
    return flushed(link, lambda: link.publish(topic, payload), wanted)


def _settling(qos, first):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, first)
    while True:
        identifier = link.publish(TOPIC, PAYLOAD, qos)
        client.poll()
        yield link.settled(wanted, identifier, qos)


def qos0(proof):
    return _one(TOPIC, PAYLOAD)


def qos0_by_poll(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        accepted = link.publish(TOPIC, PAYLOAD)
        client.poll()
        yield accepted == 0 and link.took(wanted)


def qos1_and_its_puback(proof):
    return _settling(1, 0x32)


def _with_few_identifiers(qos, waits):
    """Five more are known to be free: the others have been used."""
    link, client = online()
    before = link.publish(TOPIC, PAYLOAD, qos) if waits else None
    client.stop = client.last_id + 5
    client.poll()
    link.took_any()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x30 | qos << 1)
    while True:
        identifier = link.publish(TOPIC, PAYLOAD, qos)
        client.poll()
        sent = link.took(wanted.with_id(identifier)) and client.pending == 1 + waits
        if not waits:
            before = identifier
        if qos == 2:
            link.give(packets.PUBREC.with_id(before))
            link.took_any()
            link.give(packets.PUBCOMP.with_id(before))
        else:
            link.give(packets.PUBACK.with_id(before))
        before = identifier
        yield sent and client.pending == waits


def qos1_when_identifiers_have_been_used(proof):
    return _with_few_identifiers(1, False)


def qos1_when_identifiers_have_been_used_and_one_waits(proof):
    return _with_few_identifiers(1, True)


def qos2_when_identifiers_have_been_used(proof):
    return _with_few_identifiers(2, False)


def qos2_when_identifiers_have_been_used_and_one_waits(proof):
    return _with_few_identifiers(2, True)


def qos2_and_its_pubrec_pubrel_pubcomp(proof):
    return _settling(2, 0x34)


def qos2_and_its_puback(proof):
    """From a broker that does not have QoS 2."""
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x34)
    while True:
        before = client.stats.downgraded
        identifier = link.publish(TOPIC, PAYLOAD, 2)
        client.poll()
        yield link.settled(wanted, identifier) and client.stats.downgraded == before + 1


def retained(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD, 0x31, packets.NONE)
    return flushed(link, lambda: client.publish(TOPIC, PAYLOAD, retain=True), wanted)


def retained_at_qos1(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x33, packets.NONE)
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, qos=1, retain=True)
        client.flush()
        yield link.settled(wanted, identifier)


def empty_payload(proof):
    link, client = online()
    return flushed(
        link, lambda: client.publish(TOPIC), packets.publish(TOPIC, b"", 0x30, packets.NONE)
    )


def payload_of_more_than_127_bytes(proof):
    return _one(TOPIC, bytes(range(200)))


def payload_in_a_bytearray(proof):
    return _one(TOPIC, bytearray(PAYLOAD))


def payload_in_a_memoryview(proof):
    return _one(TOPIC, memoryview(b"<21.5>")[1:5])


def topic_in_a_bytearray(proof):
    return _one(bytearray(TOPIC), PAYLOAD)


def alternating_topics(proof):
    link, _ = online()

    def publish():
        link.publish(TOPIC, PAYLOAD)
        return link.publish(OTHER, PAYLOAD)

    wanted = packets.publish(TOPIC, PAYLOAD) + packets.publish(OTHER, PAYLOAD)
    return flushed(link, publish, wanted)


def more_topics_than_are_remembered(proof):
    link, client = online(tx_size=768)
    names = [b"dev/%d/temp" % (1000 + i) for i in range(12)]
    wanted = b"".join(packets.publish(name, PAYLOAD) for name in names)
    while True:
        for name in names:
            link.publish(name, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def burst_in_one_write(proof):
    link, client = online(tx_size=768)
    wanted = packets.publish(TOPIC, PAYLOAD) * 8
    while True:
        for _ in range(8):
            link.publish(TOPIC, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def burst_of_every_qos(proof):
    link, client = online()
    at1 = packets.numbered(TOPIC, PAYLOAD, 0x32)
    at2 = packets.numbered(TOPIC, PAYLOAD, 0x34)
    wanted = bytearray(len(packets.publish(TOPIC, PAYLOAD)) + 2 * len(at1.with_id(0)))
    view = memoryview(wanted)
    first = view[: len(at1.with_id(0))]
    second = view[len(first) : 2 * len(first)]
    third = view[2 * len(first) :]
    third[:] = packets.publish(TOPIC, PAYLOAD)
    while True:
        one = link.publish(TOPIC, PAYLOAD, 1)
        two = link.publish(TOPIC, PAYLOAD, 2)
        link.publish(TOPIC, PAYLOAD)
        client.poll()
        first[:] = at1.with_id(one)
        second[:] = at2.with_id(two)
        sent = link.took(wanted)
        link.give(packets.PUBREC.with_id(two))
        sent = sent and link.took(packets.PUBREL.with_id(two))
        link.give(packets.PUBACK.with_id(one))
        link.give(packets.PUBCOMP.with_id(two))
        yield sent and client.pending == 0


def written_in_pieces(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    link.room = 5
    while True:
        link.publish(TOPIC, PAYLOAD)
        for _ in range(len(wanted)):
            client.poll()
        yield link.took(wanted)


def acknowledgements_of_nothing(proof):
    link, client = online()
    packet = packets.puback().with_id(77) + packets.pubcomp().with_id(77)
    packet += packets.pubrec().with_id(77)
    while True:
        before = client.stats.strays
        link.give(packet)
        yield client.stats.strays == before + 3 and client.connected


def no_room_in_the_ring(proof):
    link, _ = online(tx_size=100)
    link.room = 0
    while link.publish(TOPIC, PAYLOAD) is not None:
        pass
    while True:
        yield link.publish(TOPIC, PAYLOAD) is None


def no_room_in_flight(proof):
    link, client = online(inflight=2)
    link.publish(TOPIC, PAYLOAD, 1)
    link.publish(TOPIC, PAYLOAD, 2)
    client.poll()
    while True:
        yield link.publish(TOPIC, PAYLOAD, 1) is None


def _keeping_one(tx_size):
    """A link, a client with one message in flight, and that message's identifier."""
    link, client = online(tx_size=tx_size)
    kept = link.publish(TOPIC, PAYLOAD, 1)
    client.poll()
    link.took_any()
    return link, client, kept


def into_a_wrapped_ring(proof):
    """There is room for three packets and a half, and one is always kept: it never gets empty."""
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    link, client, before = _keeping_one(7 * len(wanted.with_id(0)) // 2)
    while True:
        identifier = link.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = link.took(wanted.with_id(identifier)) and client.pending == 2
        link.give(packets.PUBACK.with_id(before))
        before = identifier
        yield sent and client.pending == 1


def qos0_into_a_wrapped_ring(proof):
    """Above, and the kept packet changes with every second message."""
    kept = packets.numbered(TOPIC, PAYLOAD, 0x32)
    wanted = packets.publish(TOPIC, PAYLOAD)
    link, client, before = _keeping_one(6 * len(wanted))
    while True:
        accepted = link.publish(TOPIC, PAYLOAD)
        client.poll()
        sent = accepted == 0 and link.took(wanted)
        identifier = link.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = sent and link.took(kept.with_id(identifier))
        link.give(packets.PUBACK.with_id(before))
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
    if packets.properties is None:
        client.publish_from(TOPIC, Endless(), 1)
    else:
        client.publish_from(TOPIC, Endless(), 1, properties=packets.properties)
    client.poll()
    while True:
        before = link.swallowed
        client.poll()
        yield link.swallowed > before + 512 and client.pending == 1
