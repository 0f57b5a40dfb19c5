"""Publishing with what only MQTT 5 has, to the scripted peer."""

import packets
from flatmq.properties import Properties
from publishing import OTHER, PAYLOAD, TOPIC
from scripted_link import WITHOUT_END, connect, flushed, greeting, online

# Encoded here by hand, with their length before them.
TEXT_BYTES = b"\x0d\x03\0\x0atext/plain"
LASTING_BYTES = b"\x10\x02\0\0\0\x3c\x26\0\3key\0\3val"
FIRST = b"\3\x23\0\1"  # topic alias 1
SECOND = b"\3\x23\0\2"
ALIASES = b"\x20\x06\0\0\3\x22\0\2"  # a CONNACK that grants two topic aliases
ONE_IN_FLIGHT = b"\x20\x06\0\0\3\x21\0\1"  # and one with Receive Maximum 1
RESUMED_ONE_IN_FLIGHT = b"\x20\x06\1\0" + ONE_IN_FLIGHT[4:]


def _text():
    return Properties(content_type=b"text/plain")


def _alternating(other):
    """One block of properties, another, and none; the last two with the topic `other`."""
    link, client = online()
    text = _text()
    lasting = Properties(expiry=60, user=((b"key", b"val"),))

    def publish():
        client.publish(TOPIC, PAYLOAD, properties=text)
        client.publish(other, PAYLOAD, properties=lasting)
        return client.publish(other, PAYLOAD)

    wanted = packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    wanted += packets.publish(other, PAYLOAD, properties=LASTING_BYTES)
    wanted += packets.publish(other, PAYLOAD)
    return flushed(link, publish, wanted)


def alternating_properties(proof):
    return _alternating(TOPIC)


def alternating_topics_and_properties(proof):
    return _alternating(OTHER)


def to_a_broker_that_takes_small_packets(proof):
    """Each message is checked against its Maximum Packet Size."""
    link, client = online(b"\x20\x08\0\0\5\x27\0\0\0\x64")
    wanted = packets.publish(TOPIC, PAYLOAD, 0x31)
    while True:
        client.publish(TOPIC, PAYLOAD, retain=True)
        client.flush()
        yield client.strict and link.took(wanted)


def alias_first_on_a_connection(proof):
    """The topic name goes along, and with the next message no more."""
    link, client = online(ALIASES)
    alias = client.alias(TOPIC)
    wanted = packets.publish(TOPIC, PAYLOAD, properties=FIRST)
    wanted += packets.publish(b"", PAYLOAD, properties=FIRST)
    while True:
        proof.pause()
        link.fail()
        client.poll()
        connect(client, link, ALIASES)
        link.took_any()
        proof.resume()
        alias.publish(PAYLOAD)
        alias.publish(PAYLOAD)
        client.flush()
        yield link.took(wanted)


def _used(link, *topics):
    """Aliases of these topics, which the broker knows."""
    made = [link.client.alias(topic) for topic in topics]
    for alias in made:
        alias.publish(PAYLOAD)
    link.client.flush()
    link.took_any()
    return made


def alias_later(proof):
    link, _ = online(ALIASES)
    [alias] = _used(link, TOPIC)
    wanted = packets.publish(b"", PAYLOAD, properties=FIRST)
    return flushed(link, lambda: alias.publish(PAYLOAD), wanted)


def aliases_in_turn_with_other_messages(proof):
    link, client = online(ALIASES)
    text = _text()
    one, two = _used(link, TOPIC, OTHER)

    def publish():
        one.publish(PAYLOAD)
        client.publish(TOPIC, PAYLOAD, properties=text)
        two.publish(PAYLOAD)
        return client.publish(OTHER, PAYLOAD)

    wanted = packets.publish(b"", PAYLOAD, properties=FIRST)
    wanted += packets.publish(TOPIC, PAYLOAD, properties=TEXT_BYTES)
    wanted += packets.publish(b"", PAYLOAD, properties=SECOND)
    wanted += packets.publish(OTHER, PAYLOAD)
    return flushed(link, publish, wanted)


def alias_that_the_broker_does_not_take(proof):
    link, client = online()
    alias = client.alias(TOPIC)
    return flushed(link, lambda: alias.publish(PAYLOAD), packets.publish(TOPIC, PAYLOAD))


def as_many_in_flight_as_the_broker_takes(proof):
    """With Receive Maximum 1 a second message is not accepted until the first is settled.

    QoS 0 is not held up.
    """
    link, client = online(ONE_IN_FLIGHT)
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    free = packets.publish(OTHER, PAYLOAD)
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        held = client.publish(TOPIC, PAYLOAD, 1) is None
        client.poll()
        held = held and link.took(wanted.with_id(identifier))
        client.publish(OTHER, PAYLOAD)
        client.poll()
        held = held and link.took(free)
        link.give(packets.PUBACK.with_id(identifier))
        yield held and client.pending == 0


def fewer_in_flight_after_a_reconnect(proof):
    """Resend two messages to a broker that now accepts one at a time.

    The second goes after the first is settled.
    """
    link, client = online(clean_session=False)
    again = packets.numbered(TOPIC, PAYLOAD, 0x3A)
    while True:
        proof.pause()
        client.inflight = client.slots  # as if the broker had said nothing
        one = client.publish(TOPIC, PAYLOAD, 1)
        two = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        link.fail()
        client.poll()
        greeting(client, link)
        link.room = 0
        link.give(RESUMED_ONE_IN_FLIGHT)
        link.room = WITHOUT_END
        proof.resume()
        client.poll()
        done = link.took(again.with_id(one))
        client.poll()
        done = done and not link.took_any()
        link.give(packets.PUBACK.with_id(one))
        client.poll()
        yield link.settled(again, two) and done
