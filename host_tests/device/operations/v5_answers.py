"""Acknowledgements with reason codes and properties, and Server Keep Alive: the scripted peer."""

import packets
from publishing import PAYLOAD, TOPIC
from reader import receiving
from scripted_link import online

NOBODY = 0x10  # No matching subscribers
_REASON = b"\x1f\0\x04why?"
_PAIR = b"\x26\0\1a\0\1b"
# What may stand behind the packet identifier of one that says success.
SUCCESS = (b"\0", b"\0\0", b"\0\7" + _REASON, b"\0\x15" + _REASON + _PAIR + _PAIR)
UNKNOWN = (b"\x92", b"\x92\7" + _REASON)
NOT_HEARD = tuple([bytes((NOBODY,)) + more[1:] for more in SUCCESS])


def puback_in_each_form(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    forms = [packets.puback(more) for more in SUCCESS + NOT_HEARD]
    i = 0
    while True:
        i = (i + 1) % len(forms)
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = link.took(wanted.with_id(identifier))
        link.give(forms[i].with_id(identifier))
        yield sent and client.pending == 0 and client.connected


def pubrec_and_pubcomp_in_each_form(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x34)
    pubrecs = [packets.pubrec(more) for more in SUCCESS + NOT_HEARD]
    pubcomps = [packets.pubcomp(more) for more in SUCCESS]
    i = 0
    while True:
        i = (i + 1) % len(pubrecs)
        identifier = client.publish(TOPIC, PAYLOAD, 2)
        client.poll()
        sent = link.took(wanted.with_id(identifier))
        link.give(pubrecs[i].with_id(identifier))
        sent = sent and link.took(packets.PUBREL.with_id(identifier))
        link.give(pubcomps[i % len(pubcomps)].with_id(identifier))
        yield sent and client.pending == 0


def pubrel_in_each_form(proof):
    """0x92, too: the packet identifier is not known there any more."""
    link, _, reader, _ = receiving(TOPIC, TOPIC, 2)
    packet = packets.numbered(TOPIC, b"-1500", 0x34).with_id(99)
    forms = [packets.pubrel(more) for more in SUCCESS + UNKNOWN]
    i = 0
    while True:
        i = (i + 1) % len(forms)
        link.give(packet)
        taken = reader.took(1) and link.took(packets.PUBREC.with_id(99))
        link.give(forms[i].with_id(99))
        yield taken and link.took(packets.PUBCOMP.with_id(99))


def strays_in_long_forms(proof):
    link, client = online()
    packet = packets.puback(SUCCESS[3]).with_id(77) + packets.pubcomp(SUCCESS[1]).with_id(77)
    packet += packets.pubrec(NOT_HEARD[2]).with_id(77)
    while True:
        before = client.stats.strays
        link.give(packet)
        yield client.stats.strays == before + 3 and client.connected


def long_form_cut_in_two_at_each_byte(proof):
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    puback = packets.puback(SUCCESS[3])
    while True:
        done = True
        for at in range(1, 4 + len(SUCCESS[3])):
            identifier = client.publish(TOPIC, PAYLOAD, 1)
            client.poll()
            packet = puback.with_id(identifier)
            done = done and link.took(wanted.with_id(identifier))
            link.give(packet, 0, at)
            done = done and client.pending == 1
            link.give(packet, at)
            done = done and client.pending == 0
        yield done


def puback_larger_than_rx_size(proof):
    """Its reason string is skipped."""
    link, client = online()
    wanted = packets.numbered(TOPIC, PAYLOAD, 0x32)
    # The property length has two bytes, and the Remaining Length too.
    puback = packets.Numbered(b"\x40\xb3\2\0\0\0\xae\2\x1f\1\x2b" + b"-" * 299, 3)
    while True:
        identifier = client.publish(TOPIC, PAYLOAD, 1)
        client.poll()
        sent = link.took(wanted.with_id(identifier))
        link.feed(puback.with_id(identifier))
        while client.poll():
            pass
        yield sent and client.pending == 0 and client.connected


def the_brokers_keep_alive_that_fires(proof):
    """Server Keep Alive, 20 s, is what counts."""
    link, client = online(b"\x20\x06\0\0\3\x13\0\x14", keepalive=600)
    while True:
        began = link.now
        asked = False
        while not asked and link.now - began < 20000:
            client.poll(20000)
            asked = link.took(packets.PINGREQ)
        link.feed(packets.PINGRESP)
        yield asked and client.poll() and client.connected
