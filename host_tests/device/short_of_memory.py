"""A client whose heap is full for a while: `short_of_memory.py FREE WHEN`.

FREE is the number of bytes that are left. WHEN is "start" or "lost": it is started then, or loses
a connection after which it let go of the code that connects. Its message must not be lost.
"""

import gc
import sys

import packets
from flatmq import Client
from little_memory import empty, fill, list_of_blocks
from scripted_link import Link


def polled(client, link, seen, times):
    """Poll once a second, and put the kinds of errors into a list; allocates nothing itself.

    Returns how often a poll raised MemoryError.
    """
    raised = 0
    for n in times:
        link.now += 1000
        try:
            client.poll()
        except MemoryError:
            raised += 1
        if client.error:
            seen[n] = client.error.kind
    return raised


def connect(client, link):
    """Answer CONNECT, until a message was sent or 200 s have passed."""
    for _ in range(200):
        link.now += 1000
        client.poll()
        if client.state == "greeting" and link.took_any():
            link.feed(packets.CONNACK)
        if client.connected and link.took_any():
            break


def main(left, when):
    link = Link()
    client = Client(b"board", link=link, tx_size=256, rx_size=128, release=True, quiet=True)
    client.publish(b"t", b"kept", 1)
    times = range(50)
    seen = ["-"] * len(times)
    if when == "lost":
        client.start()
        connect(client, link)
        polled(client, link, seen, times)
    gc.collect()
    blocks = list_of_blocks()
    fill(blocks, left)
    raised = 0
    if when == "lost":
        link.end()
    else:
        try:
            client.start()
        except MemoryError:
            raised += 1
    raised += polled(client, link, seen, times)
    full = client.state
    empty(blocks)
    connect(client, link)
    print("SEEN", raised, full, ",".join(set(seen)), client.state, client.pending)


main(int(sys.argv[1]), sys.argv[2])
