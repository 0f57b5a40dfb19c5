"""Publishing, receiving and waiting over a UART, with the scripted peer behind a bridge."""

import packets
from reader import TOPIC, Reader
from scripted_bridge import online
from scripted_link import subscribe

LONG = bytes(range(200))


def publish_qos0(proof):
    peer, client = online()
    wanted = packets.publish(TOPIC, b"21.5")
    while True:
        accepted = client.publish(TOPIC, b"21.5")
        client.poll()
        yield accepted == 0 and peer.took(wanted)


def publish_qos1_and_its_puback(proof):
    peer, client = online()
    wanted = packets.numbered(TOPIC, b"21.5", 0x32)
    while True:
        identifier = client.publish(TOPIC, b"21.5", 1)
        client.poll()
        yield peer.settled(wanted, identifier)


def publish_in_several_frames(proof):
    peer, client = online()
    wanted = packets.publish(TOPIC, LONG)
    while True:
        client.publish(TOPIC, LONG)
        while client.pending:
            client.poll()
        yield peer.took(wanted)


def receive_qos1_and_its_puback(proof):
    peer, client = online()
    reader = Reader()
    subscribe(client, peer, TOPIC, reader.take, 1)
    packet = packets.numbered(TOPIC, b"-1500", 0x32)
    identifier = 1
    while True:
        identifier += 1
        peer.give(packet.with_id(identifier))
        yield reader.took(1) and peer.took(packets.PUBACK.with_id(identifier))


def receive_in_several_frames(proof):
    peer, client = online()
    sizes = bytearray(1)

    def take(message):
        sizes[0] = len(message)

    subscribe(client, peer, TOPIC, take)
    packet = packets.publish(TOPIC, LONG)
    while True:
        sizes[0] = 0
        peer.feed(packet)
        while not sizes[0]:
            client.poll()
        yield sizes[0] == 200


def idle_poll(proof):
    peer, client = online()
    while True:
        yield not client.poll() and client.connected and not peer.took_any()


def idle_poll_that_waits(proof):
    peer, client = online()
    while True:
        yield not client.poll(3) and client.connected and not peer.took_any()
