"""The bytes of heap that the pieces of an update ask for, on MicroPython.

pieces.py FOLDER application|firmware. The client and its messages are made beforehand, so that
only the update itself is counted.
"""

import sys

import micropython

from flatmq.ota.fetch import Sink

IS_FIRMWARE = sys.argv[2] == "firmware"
PIECE = 4096 if IS_FIRMWARE else 1024
PIECES = 40
PART = 200  # bytes that come at a time
DIGEST = bytes(range(32))


class Message:
    topic = b"dev/b/ota/piece"

    def __init__(self):
        self.buf = bytearray(12 + PIECE)
        self.total = len(self.buf)
        self.at = self.end = self.offset = 0
        self.last = False

    def __getitem__(self, i):
        return self.buf[self.at + i]


def run(sink, message, first, last):
    """Take these pieces; return the bytes of heap asked for meanwhile."""
    before = micropython.mem_total()
    for n in range(first, last):
        sink.expect()
        for i in range(12):
            message.buf[i] = sink.head[i]
        for i in range(12, message.total):
            message.buf[i] = n
        message.at = 0
        while message.at < message.total:
            message.offset = message.at
            message.end = min(message.at + PART, message.total)
            message.last = message.end == message.total
            sink.take(message)
            message.at = message.end
    return micropython.mem_total() - before


class Partition:
    def __init__(self):
        self.blocks = [bytearray(PIECE) for _ in range(PIECES)]

    def ioctl(self, op, number):
        pass

    def writeblocks(self, number, buf, offset):
        copy(self.blocks[number], offset, buf)


def copy(block, at, buf):
    """Copy `buf`; a frame of more words would be on the heap."""
    i = 0
    while i < len(buf):
        block[at + i] = buf[i]
        i += 1


path = sys.argv[1] + "/update"
if IS_FIRMWARE:
    from flatmq.ota import firmware

    part = Partition()
    sink = firmware.Sink(part, path, DIGEST, PIECE * PIECES, PIECE)
else:
    sink = Sink(path, DIGEST, PIECE * PIECES, PIECE)
message = Message()
run(sink, message, 0, 8)
asked = run(sink, message, 8, PIECES)
sink.close()
if IS_FIRMWARE:
    data = b"".join(part.blocks)
else:
    with open(path, "rb") as f:
        data = f.read()
whole = data == b"".join(bytes([n]) * PIECE for n in range(PIECES))
print(asked, whole)
