"""Fill a file system: it is then like a spool that is full.

Usage: `full.py FULL HEAD`, on MicroPython. The last line has the readings accepted, refused,
dropped, lost, torn, whether any was out of order, and how many of five more it takes once there is
room.
"""

import os
import sys

import vfs
from flash_chip import Chip
from model_broker import Broker

import flatmq.port
from flatmq import Client
from flatmq.spool import Spool


def main():
    full, head = sys.argv[1], int(sys.argv[2])
    chip = Chip(24)
    vfs.VfsLfs2.mkfs(chip)
    vfs.mount(vfs.VfsLfs2(chip), "/f")
    with open("/f/ballast", "wb") as f:
        f.write(bytes(12 * 1024))
    broker = Broker()
    flatmq.port.ticks_ms = broker.ticks_ms
    client = Client(b"b", link=broker, keepalive=0, retry_ms=1, retry_max_ms=1)
    # Room for 64 KB is asked for, of which there is a tenth.
    spool = Spool(client, "/f/s", head=head, full=full, segment=1024, segments=64)
    accepted = [i for i in range(300) if spool.publish(b"t", b"%05d" % i + bytes(40), 1 + (i & 1))]
    refused, dropped = spool.stats.refused, spool.stats.dropped
    client.start()
    broker_polls(spool)
    os.remove("/f/ballast")
    again = sum(spool.publish(b"t", b"%05d" % i + bytes(40)) for i in range(300, 305))
    accepted += range(300, 305)
    broker_polls(spool)
    got = [int(body[:5]) for _, _, body in broker.taken if len(body) == 45]
    lost = len(set(accepted) - set(got)) - dropped
    torn = sum(len(body) != 45 for _, _, body in broker.taken)
    print("SEEN", len(accepted), refused, dropped, lost, torn, int(got != sorted(got)), again)


def broker_polls(spool):
    for _ in range(3000):
        if not spool.pending and spool._client.connected:
            return
        spool.poll(1)
    raise SystemExit(f"not empty: {spool.pending}")


main()
