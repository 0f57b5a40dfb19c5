"""Measure the cost of a record: `wear.py PROGSIZE HEAD PAYLOAD online|offline`, on MicroPython.

The last line has erases and programmed bytes per record, erases of the block worn most, and bytes
of heap asked for per append and per record handed over, of those that begin no segment.
"""

import gc
import sys

import vfs
from flash_chip import PlainChip
from model_broker import Broker

import flatmq.port
from flatmq import Client
from flatmq.spool import Spool

RECORDS = 400
TOPICS = [b"sensors/pico-1/temp", b"sensors/pico-1/humi"]  # in turn


def main():
    prog, head, size = [int(a) for a in sys.argv[1:4]]
    chip = PlainChip(64, 4096)
    vfs.VfsLfs2.mkfs(chip, progsize=prog)
    vfs.mount(vfs.VfsLfs2(chip, progsize=prog), "/f")
    broker = Broker()
    flatmq.port.ticks_ms = broker.ticks_ms
    client = Client(b"b", link=broker, clean_session=False, keepalive=0, tx_size=2048)
    spool = Spool(client, "/f/s", head=head, segments=15)
    client.start()
    reading = bytes(size)
    broker.up = sys.argv[4] == "online"
    while broker.up and not client.connected:
        spool.poll(1)
    for _ in range(20):
        one(chip, spool, reading)
    chip.power_on()
    appends = [one(chip, spool, reading) for _ in range(RECORDS)]
    spool_erases, spool_bytes, worn = chip.erases, chip.programmed, max(chip.worn)
    broker.up = True
    handed = []
    gc.collect()
    while spool.pending:
        while client.connected and spool._to - spool._from < 8:
            before = chip.asked()
            if not (spool._load() and spool._hand_over(0)):
                break
            handed.append(chip.asked() - before)
        spool.poll(1)
    appends.sort()
    handed = sorted(handed) or [0]
    print(
        "SEEN",
        spool_erases / RECORDS,
        spool_bytes / RECORDS,
        worn,
        appends[len(appends) // 2],
        handed[len(handed) // 2],
        appends[-1],
        handed[-1],
    )
    spool.close()


def one(chip, spool, reading):
    """A reading, which is acknowledged where there is a broker.

    Returns what its append asked of the heap.
    """
    TOPICS.append(TOPICS.pop(0))
    before = chip.asked()
    if not spool.publish(TOPICS[0], reading):
        raise SystemExit("refused")
    before = chip.asked() - before
    while spool._client.connected and spool.pending:
        spool.poll(1)
    return before


main()
