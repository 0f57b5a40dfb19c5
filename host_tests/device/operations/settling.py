"""After these the heap must be where it was."""

import packets
import sockets
from scripted_link import connect, online, subscribe

TOPIC = b"home/kitchen/lamp"


def ten_mixed_messages(proof):
    """Out and in at every QoS; a second handler has each one's topic and payload made bytes."""
    echo = sockets.Echo(proof, 2)
    last = [None, None]

    def keep(message):
        last[0] = message.topic
        last[1] = message.payload

    echo.client.subscribe(b"proof/#", keep, 2)
    while True:
        done = True
        for i in range(10):
            done = echo.round(i % 3) and done
        yield done and last[1] == b"-1500"


def reconnect_over_tcp(proof):
    echo = sockets.Echo(proof, 1)
    while True:
        echo.client.disconnect()
        echo.client.connect(sockets.ANSWER_MS)
        yield echo.round(1)


def reconnect_after_a_loss(proof):
    """With a message in flight, and a subscription that is asked for again."""
    link, client = online()
    subscribe(client, link, TOPIC, print)
    suback = packets.suback(0)
    while True:
        identifier = client.publish(TOPIC, b"1", 1)
        client.poll()
        link.end()
        client.poll()
        connect(client, link)
        client.poll()
        link.give(suback.with_id(client.requests[0].id))
        link.give(packets.PINGRESP)  # the message waits for it
        link.give(packets.PUBACK.with_id(identifier))
        yield client.connected and client.pending == 0


def reconnect_after_a_refusal(proof):
    """The peer refuses the first try after each loss but the first one."""
    link, client = online()
    while True:
        link.end()
        client.poll()
        losses = client.stats.losses
        while link.refuses and client.stats.losses == losses:
            client.poll(1000)
        link.refuses = False
        connect(client, link)
        yield client.connected
        link.refuses = True


def keeping_each_message(proof):
    """Memory that an application holds on to does show."""
    link, client = online()
    kept = []
    subscribe(client, link, TOPIC, lambda message: kept.append(message.payload))
    packet = packets.publish(TOPIC, b"21.5")
    while True:
        link.give(packet)
        yield kept[-1] == b"21.5"
