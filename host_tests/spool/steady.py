"""Heap that the spool requests while it runs: `steady.py QOS VERSION`, on MicroPython.

A reading goes out at that QoS, and a message comes in at QoS 2, over and over. The last line has
the bytes of heap per round that neither the flash nor the broker requested: the median, the
maximum, and how many rounds there were.
"""

import gc
import sys

import micropython
import vfs
from flash_chip import PlainChip
from model_broker import Broker

import flatmq.port
from flatmq import Client
from flatmq.spool import Spool

ROUNDS = 200


class Counting(Broker):
    """`own` counts what it requests itself."""

    own = 0

    def readinto(self, into):
        before = micropython.mem_total()
        n = Broker.readinto(self, into)
        self.own += micropython.mem_total() - before
        return n

    def write(self, buf, at, n):
        before = micropython.mem_total()
        n = Broker.write(self, buf, at, n)
        self.own += micropython.mem_total() - before
        return n

    def wait(self, ms, out):
        before = micropython.mem_total()
        Broker.wait(self, ms, out)
        self.own += micropython.mem_total() - before


def main():
    qos, version = [int(a) for a in sys.argv[1:3]]
    chip = PlainChip(64, 4096)
    vfs.VfsLfs2.mkfs(chip, progsize=32)
    vfs.mount(vfs.VfsLfs2(chip, progsize=32), "/f")
    broker = Counting(version)
    flatmq.port.ticks_ms = broker.ticks_ms
    client = Client(b"b", link=broker, clean_session=False, keepalive=0, version=version)
    handled = [0]

    def handle(message):
        handled[0] += 1

    client.subscribe(b"in", handle, 2)
    spool = Spool(client, "/f/s")
    client.start()
    while not client.connected:
        spool.poll(1)
    payload = bytes(40)
    seen = []
    for i in range(ROUNDS):
        broker.send(payload)
        gc.collect()
        before = micropython.mem_total() - chip.own - broker.own
        if not spool.publish(b"sensors/pico-1/temp", payload, qos):
            raise SystemExit("refused")
        while spool.pending or handled[0] == i or broker.outgoing:
            spool.poll(1)
        seen.append(micropython.mem_total() - chip.own - broker.own - before)
    seen = sorted(seen[5:])  # the first ones load modules
    print("SEEN", seen[len(seen) // 2], seen[-1], len(seen))


main()
