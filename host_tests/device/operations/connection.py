"""Keeping a connection, and going on with the next one, with the scripted peer."""

import packets
from scripted_link import WITHOUT_END, greeting, online

TOPIC = b"home/kitchen/temperature"
PAYLOAD = b"21.5"


def ping_and_its_pingresp(proof):
    link, client = online()
    while True:
        client.ping()
        client.poll()
        sent = link.took(packets.PINGREQ)
        link.feed(packets.PINGRESP)
        yield sent and client.poll()


def keep_alive_that_fires(proof):
    """Nothing happens until the client has to ask whether the peer is still there."""
    link, client = online(keepalive=60)
    while True:
        began = link.now
        asked = False
        while not asked and link.now - began < 120000:
            client.poll(120000)
            asked = link.took(packets.PINGREQ)
        link.feed(packets.PINGRESP)
        yield asked and client.poll() and client.connected


def idle_poll(proof):
    link, client = online()
    while True:
        now = link.now
        yield not client.poll() and link.now == now and not link.took_any()


def idle_poll_that_waits(proof):
    link, client = online(keepalive=0)
    while True:
        now = link.now
        yield not client.poll(20) and link.now - now == 20 and not link.took_any()


def idle_flush(proof):
    link, client = online()
    while True:
        client.flush()
        yield not link.took_any()


def pending(proof):
    """Of one message at each QoS, which the network does not take."""
    link, client = online()
    link.room = 0
    for qos in range(3):
        link.publish(TOPIC, PAYLOAD, qos)
    while True:
        yield client.pending == 3


def connected(proof):
    _, client = online()
    while True:
        yield client.connected


def _again(link, connack, by_peer=False):
    """The connection is lost, and there again; nothing but CONNECT was written on it."""
    if by_peer:
        link.end()
    else:
        link.fail()
    link.client.poll()
    greeting(link.client, link)
    link.room = 0
    link.give(connack)
    link.room = WITHOUT_END


def publish_while_it_is_away(proof):
    """A message accepted while the broker is away goes out with the next connection."""
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        proof.pause()
        link.end()
        client.poll()
        link.took_any()
        proof.resume()
        accepted = link.publish(TOPIC, PAYLOAD)
        proof.pause()
        _again(link, packets.CONNACK)
        proof.resume()
        client.poll()
        yield accepted == 0 and link.took(wanted)


def _three(link):
    """Publish at QoS 1, at QoS 2, and at QoS 2 up to its PUBREC. Return their identifiers."""
    made = [link.publish(TOPIC, PAYLOAD, qos) for qos in (1, 2, 2)]
    link.client.poll()
    link.give(packets.PUBREC.with_id(made[2]))
    return made


def sent_again_after_a_reconnect(proof):
    """Resend a message at QoS 1, one at QoS 2, and one at QoS 2 after its PUBREC."""
    link, client = online(clean_session=False)
    at1 = packets.numbered(TOPIC, PAYLOAD, 0x3A)
    at2 = packets.numbered(TOPIC, PAYLOAD, 0x3C)
    while True:
        proof.pause()
        one, two, three = _three(link)
        _again(link, packets.RESUMED)
        messages = at1.with_id(one) + at2.with_id(two)
        release = packets.PUBREL.with_id(three)
        # The standard orders PUBRELs among each other alone [MQTT-4.6.0-4].
        wanted = release + messages
        proof.resume()
        client.poll()
        again = link.took(wanted)
        link.give(packets.PUBACK.with_id(one))
        link.give(packets.PUBCOMP.with_id(three))
        link.give(packets.PUBREC.with_id(two))
        again = again and link.released(two)
        yield again and client.pending == 0


def sent_again_one_at_a_time(proof):
    """The same after the peer has closed: each waits for a PINGRESP and for the one before."""
    link, client = online(clean_session=False)
    at1 = packets.numbered(TOPIC, PAYLOAD, 0x3A)
    at2 = packets.numbered(TOPIC, PAYLOAD, 0x3C)
    while True:
        proof.pause()
        one, two, three = _three(link)
        _again(link, packets.RESUMED, True)
        proof.resume()
        client.poll()
        again = link.took(packets.PINGREQ)
        link.give(packets.PINGRESP)
        again = again and link.released(three)
        again = again and link.took(at1.with_id(one))
        link.give(packets.PUBACK.with_id(one))
        again = again and link.took(at2.with_id(two))
        link.give(packets.PUBREC.with_id(two))
        again = again and link.released(two)
        yield again and client.pending == 0


def sent_as_new_to_a_broker_that_forgot(proof):
    link, client = online(clean_session=False)
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    while True:
        proof.pause()
        identifier = link.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        _again(link, packets.CONNACK)
        proof.resume()
        client.poll()
        yield link.settled(wanted, identifier) and client.connected


def first_message_after_a_reconnect(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        proof.pause()
        _again(link, packets.CONNACK)
        proof.resume()
        link.publish(TOPIC, PAYLOAD)
        client.flush()
        yield link.took(wanted)
