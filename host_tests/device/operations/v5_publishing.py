"""Publishing with what MQTT 5 has besides, to the scripted peer."""

import packets
from flatmq.properties import Properties
from publishing import OTHER, PAYLOAD, TOPIC, Endless
from scripted_link import WITHOUT_END, connect, greeting, online

# Encoded here by hand, with their length before them.
TEXT_BYTES = b"\x0d\x03\0\x0atext/plain"
LASTING_BYTES = b"\x10\x02\0\0\0\x3c\x26\0\3key\0\3val"
ALIASES = b"\x20\x06\0\0\3\x22\0\2"  # a CONNACK that grants two topic aliases
ONE_IN_FLIGHT = b"\x20\x06\0\0\3\x21\0\1"  # and one with Receive Maximum 1


def _text():
    return Properties(content_type=b"text/plain")


def _lasting():
    return Properties(expiry=60, user=((b"key", b"val"),))


def qos0_with_properties(proof):
    link, client = online()
    text = _text()
    wanted = packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    while True:
        accepted = client.publish(TOPIC, PAYLOAD, properties=text)
        client.flush()
        yield accepted == 0 and link.took(wanted)


def qos1_with_properties_and_its_puback(proof):
    link, client = online()
    text = _text()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32, TEXT_BYTES)
    puback = packets.puback()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 1, False, text)
        client.poll()
        sent = link.took(wanted.with_id(identifier)) and client.pending == 1
        link.feed(puback.with_id(identifier))
        client.poll()
        yield sent and client.pending == 0


def qos2_with_properties_and_its_pubrec_pubrel_pubcomp(proof):
    link, client = online()
    text = _text()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x34, TEXT_BYTES)
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    pubcomp = packets.pubcomp()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, qos=2, properties=text)
        client.poll()
        sent = link.took(wanted.with_id(identifier))
        link.feed(pubrec.with_id(identifier))
        client.poll()
        sent = sent and link.took(pubrel.with_id(identifier)) and client.pending == 1
        link.feed(pubcomp.with_id(identifier))
        client.poll()
        yield sent and client.pending == 0


def alternating_properties(proof):
    """One block, another, and none."""
    link, client = online()
    text = _text()
    lasting = _lasting()
    wanted = packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    wanted += packets.publish(TOPIC, PAYLOAD, properties=LASTING_BYTES)
    wanted += packets.publish(TOPIC, PAYLOAD)
    while True:
        client.publish(TOPIC, PAYLOAD, properties=text)
        client.publish(TOPIC, PAYLOAD, properties=lasting)
        client.publish(TOPIC, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def alternating_topics_and_properties(proof):
    link, client = online()
    text = _text()
    lasting = _lasting()
    wanted = packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    wanted += packets.publish(OTHER, PAYLOAD, properties=LASTING_BYTES)
    wanted += packets.publish(OTHER, PAYLOAD)
    while True:
        client.publish(TOPIC, PAYLOAD, properties=text)
        client.publish(OTHER, PAYLOAD, properties=lasting)
        client.publish(OTHER, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def more_topics_than_are_remembered_with_properties(proof):
    link, client = online(tx_size=768)
    text = _text()
    names = [b"dev/%d/temp" % (1000 + i) for i in range(12)]
    wanted = b"".join(packets.publish(n, PAYLOAD, properties=TEXT_BYTES) for n in names)
    while True:
        for name in names:
            client.publish(name, PAYLOAD, properties=text)
        client.flush()
        yield link.took(wanted)


def topic_in_a_bytearray_with_properties(proof):
    link, client = online()
    text = _text()
    topic = bytearray(TOPIC)
    wanted = packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    while True:
        client.publish(topic, PAYLOAD, properties=text)
        client.flush()
        yield link.took(wanted)


def in_pieces_from_a_file_with_properties(proof):
    """Once it has begun."""
    link, client = online()
    link.swallows = True
    client.publish_from(TOPIC, Endless(), 1, properties=_text())
    client.poll()
    while True:
        before = link.swallowed
        client.poll()
        yield link.swallowed > before + 512 and client.pending == 1


def to_a_broker_that_takes_small_packets(proof):
    """Each message is checked against its Maximum Packet Size."""
    link, client = online(b"\x20\x08\0\0\5\x27\0\0\0\x64")
    wanted = packets.publish(TOPIC, PAYLOAD, 0x31)
    while True:
        client.publish(TOPIC, PAYLOAD, retain=True)
        client.flush()
        yield client.strict and link.took(wanted)


def _reconnect(client, link, connack):
    link.fail()
    client.poll()
    connect(client, link, connack)
    link.took_any()


def alias_first_on_a_connection(proof):
    """The topic name goes along, and with the next message no more."""
    link, client = online(ALIASES)
    alias = client.alias(TOPIC)
    wanted = packets.publish(TOPIC, PAYLOAD, properties=b"\3\x23\0\1")
    wanted += packets.publish(b"", PAYLOAD, properties=b"\3\x23\0\1")
    while True:
        proof.pause()
        _reconnect(client, link, ALIASES)
        proof.resume()
        alias.publish(PAYLOAD)
        alias.publish(PAYLOAD)
        client.flush()
        yield link.took(wanted)


def alias_later(proof):
    link, client = online(ALIASES)
    alias = client.alias(TOPIC)
    alias.publish(PAYLOAD)
    client.flush()
    link.took_any()
    wanted = packets.publish(b"", PAYLOAD, properties=b"\3\x23\0\1")
    while True:
        accepted = alias.publish(PAYLOAD)
        client.flush()
        yield accepted == 0 and link.took(wanted)


def aliases_in_turn_with_other_messages(proof):
    link, client = online(ALIASES)
    text = _text()
    one = client.alias(TOPIC)
    two = client.alias(OTHER)
    for alias in (one, two):
        alias.publish(PAYLOAD)
    client.flush()
    link.took_any()
    wanted = packets.publish(b"", PAYLOAD, properties=b"\3\x23\0\1")
    wanted += packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    wanted += packets.publish(b"", PAYLOAD, properties=b"\3\x23\0\2")
    wanted += packets.publish(OTHER, PAYLOAD)
    while True:
        one.publish(PAYLOAD)
        client.publish(TOPIC, PAYLOAD, properties=text)
        two.publish(PAYLOAD)
        client.publish(OTHER, PAYLOAD)
        client.flush()
        yield link.took(wanted)


def alias_that_the_broker_does_not_take(proof):
    link, client = online()
    alias = client.alias(TOPIC)
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        alias.publish(PAYLOAD)
        client.flush()
        yield link.took(wanted)


def as_many_in_flight_as_the_broker_takes(proof):
    """With Receive Maximum 1 a second message is not accepted until the first is settled.

    QoS 0 is not held up.
    """
    link, client = online(ONE_IN_FLIGHT)
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    free = packets.publish(OTHER, PAYLOAD)
    puback = packets.puback()
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        held = client.publish(TOPIC, PAYLOAD, 1) is None
        client.poll()
        held = held and link.took(wanted.with_id(identifier))
        client.publish(OTHER, PAYLOAD)
        client.poll()
        held = held and link.took(free)
        link.feed(puback.with_id(identifier))
        client.poll()
        yield held and client.pending == 0


def fewer_in_flight_after_a_reconnect(proof):
    """Resend two messages to a broker that now accepts one at a time.

    The second goes after the first is settled.
    """
    link, client = online(clean_session=False)
    again = packets.numbered(TOPIC, PAYLOAD, 0x3A)
    puback = packets.puback()
    resumed = b"\x20\x06\1\0" + ONE_IN_FLIGHT[4:]
    while True:
        proof.pause()
        client.quota = client.slots  # as if the broker had said nothing
        one = client.publish(TOPIC, PAYLOAD, 1)
        two = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        link.fail()
        client.poll()
        greeting(client, link)
        link.room = 0
        link.feed(resumed)
        client.poll()
        link.room = WITHOUT_END
        proof.resume()
        client.poll()
        done = link.took(again.with_id(one))
        client.poll()
        done = done and not link.took_any()
        link.feed(puback.with_id(one))
        client.poll()
        client.poll()
        done = done and link.took(again.with_id(two))
        link.feed(puback.with_id(two))
        client.poll()
        yield done and client.pending == 0
