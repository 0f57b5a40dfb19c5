"""Start a client while the heap is full, and again while it has room: `short_of_memory.py FREE`.

FREE is the number of bytes that are left. A message published before it must not be lost.
"""

import gc
import sys

import packets
from flatmq import Client
from scripted_link import Link


def filled(left):
    """Return blocks that fill the heap up to about `left` bytes."""
    spare = bytearray(left)
    blocks = None
    for size in (2048, 256, 32):
        try:
            while True:
                blocks = (bytearray(size), blocks)
        except MemoryError:
            pass
    del spare
    return blocks


def main(left):
    link = Link()
    client = Client(b"board", link=link, tx_size=256, rx_size=128)
    client.publish(b"t", b"kept", 1)
    gc.collect()
    kinds = set()
    raised = 0
    blocks = filled(left)
    try:
        client.start()
    except MemoryError:
        raised += 1
    for _ in range(50):
        link.now += 1000
        try:
            client.poll()
        except MemoryError:
            raised += 1
        if client.error:
            kinds.add(client.error.kind)
    full = client.state
    del blocks
    gc.collect()
    for _ in range(200):
        link.now += 1000
        client.poll()
        if client.state == "greeting" and link.took_any():
            link.feed(packets.CONNACK)
        if client.connected and link.took_any():
            break
    print("SEEN", raised, full, ",".join(sorted(kinds)) or "-", client.state, client.pending)


main(int(sys.argv[1]))
