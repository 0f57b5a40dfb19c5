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
        client.publish(TOPIC, PAYLOAD, qos)
    while True:
        yield client.pending == 3


def connected(proof):
    _, client = online()
    while True:
        yield client.connected


def _again(client, link, connack, by_peer=False):
    """The connection is lost, and there again; nothing but CONNECT was written on it."""
    if by_peer:
        link.end()
    else:
        link.fail()
    client.poll()
    greeting(client, link)
    link.room = 0
    link.feed(connack)
    client.poll()
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
        accepted = client.publish(TOPIC, PAYLOAD)
        proof.pause()
        _again(client, link, packets.CONNACK)
        proof.resume()
        client.poll()
        yield accepted == 0 and link.took(wanted)


def sent_again_after_a_reconnect(proof):
    """Resend a message at QoS 1, one at QoS 2, and one at QoS 2 after its PUBREC."""
    link, client = online(clean_session=False)
    at1 = packets.numbered(TOPIC, PAYLOAD, 0x3A)
    at2 = packets.numbered(TOPIC, PAYLOAD, 0x3C)
    puback = packets.puback()
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    pubcomp = packets.pubcomp()
    while True:
        proof.pause()
        one = client.publish(TOPIC, PAYLOAD, 1)
        two = client.publish(TOPIC, PAYLOAD, 2)
        three = client.publish(TOPIC, PAYLOAD, 2)
        client.poll()
        link.feed(pubrec.with_id(three))
        client.poll()
        _again(client, link, packets.RESUMED)
        wanted = at1.with_id(one) + at2.with_id(two) + pubrel.with_id(three)
        proof.resume()
        client.poll()
        again = link.took(wanted)
        link.feed(puback.with_id(one))
        client.poll()
        link.feed(pubcomp.with_id(three))
        client.poll()
        link.feed(pubrec.with_id(two))
        client.poll()
        again = again and link.took(pubrel.with_id(two))
        link.feed(pubcomp.with_id(two))
        client.poll()
        yield again and client.pending == 0


def sent_again_one_at_a_time(proof):
    """The same after the peer has closed: each waits for a PINGRESP and for the one before."""
    link, client = online(clean_session=False)
    at1 = packets.numbered(TOPIC, PAYLOAD, 0x3A)
    at2 = packets.numbered(TOPIC, PAYLOAD, 0x3C)
    puback = packets.puback()
    pubrec = packets.pubrec()
    pubrel = packets.pubrel()
    pubcomp = packets.pubcomp()
    while True:
        proof.pause()
        one = client.publish(TOPIC, PAYLOAD, 1)
        two = client.publish(TOPIC, PAYLOAD, 2)
        three = client.publish(TOPIC, PAYLOAD, 2)
        client.poll()
        link.feed(pubrec.with_id(three))
        client.poll()
        _again(client, link, packets.RESUMED, True)
        proof.resume()
        client.poll()
        again = link.took(packets.PINGREQ)
        link.feed(packets.PINGRESP)
        client.poll()
        again = again and link.took(at1.with_id(one))
        link.feed(puback.with_id(one))
        client.poll()
        again = again and link.took(at2.with_id(two))
        link.feed(pubrec.with_id(two))
        client.poll()
        again = again and link.took(pubrel.with_id(two))
        link.feed(pubcomp.with_id(two))
        client.poll()
        again = again and link.took(pubrel.with_id(three))
        link.feed(pubcomp.with_id(three))
        client.poll()
        yield again and client.pending == 0


def sent_as_new_to_a_broker_that_forgot(proof):
    link, client = online(clean_session=False)
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    puback = packets.puback()
    while True:
        proof.pause()
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        _again(client, link, packets.CONNACK)
        proof.resume()
        client.poll()
        again = link.took(wanted.with_id(identifier))
        link.feed(puback.with_id(identifier))
        client.poll()
        yield again and client.pending == 0 and client.connected


def first_message_after_a_reconnect(proof):
    link, client = online()
    wanted = packets.publish(TOPIC, PAYLOAD)
    while True:
        proof.pause()
        _again(client, link, packets.CONNACK)
        proof.resume()
        client.publish(TOPIC, PAYLOAD)
        client.flush()
        yield link.took(wanted)
