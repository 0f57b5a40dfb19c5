"""Receive with ever more memory, and each time again with enough: `... WHAT VERSION`.

WHAT is the "first" message of a client, the first "large" one, or one with longer "properties".
It prints how often memory was too short, how often a poll raised, how often a payload was wrong,
and how often the message did not come although there was memory.
"""

import gc
import sys

import packets
import scripted_link
from little_memory import empty, fill, list_of_blocks

TOPIC = b"t"
seen = [0, 0]  # payloads that were right and wrong; of a large message each piece


def handler(message):
    at = message.offset
    for i in range(len(message)):
        if message[i] != 120:
            seen[1] += 1
            return
        at += 1
    if at == (message.size or at):
        seen[0] += 1


def given(link, packet):
    """Have the client read a packet. Returns whether a poll raised."""
    try:
        link.feed(packet)
        for _ in range(4):
            link.client.poll()
    except Exception:
        return True
    return False


def main(what, version):
    packets.speak(version)
    blocks = list_of_blocks()
    before = after = packets.publish(TOPIC, b"x" * 8)
    if what == "large":
        after = packets.publish(TOPIC, b"x" * 300)
    elif what == "properties":
        before = packets.publish(TOPIC, b"x" * 8, properties=b"\x05\x03\0\2ab")
        after = packets.publish(TOPIC, b"x" * 8, properties=b"\x53\x03\0\x50" + b"a" * 80)
    short = raised = missing = 0
    for left in range(0, 1600, 32):
        link, client = scripted_link.online(on_message=handler, chunks=True, quiet=True)
        if what == "properties":
            scripted_link.subscribe(client, link, TOPIC, handler)
            given(link, before)
        gc.collect()
        if left:  # at first all code is loaded
            fill(blocks, left)
        raised += given(link, after)
        empty(blocks)
        if not client.connected:
            short += 1
            scripted_link.connect(client, link)
        for _ in range(2):
            seen[0] = 0
            raised += given(link, after)
            missing += seen[0] != 1
    print("SEEN", short, raised, seen[1], missing)


main(*sys.argv[1:])
