"""A board that stores an update on its flash as it comes in, and sends it back from there.

update.py HOST PORT IMAGE: the flash is littlefs in the file IMAGE.
"""

import gc
import sys

import vfs
from micropython import const

from flatmq import Client

_BLOCK = const(4096)
_BLOCKS = const(400)


class Flash:
    """A block device in a file."""

    def __init__(self, name):
        self.file = open(name, "r+b")  # noqa: SIM115

    def readblocks(self, block, buf, off=0):
        self.file.seek(block * _BLOCK + off)
        self.file.readinto(buf)

    def writeblocks(self, block, buf, off=0):
        self.file.seek(block * _BLOCK + off)
        self.file.write(buf)

    def ioctl(self, what, block):
        return {4: _BLOCKS, 5: _BLOCK}.get(what, 0)


class Update:
    """A handler that writes what comes to a file."""

    def __init__(self, name):
        self.name = name
        self.file = None
        self.done = False

    def __call__(self, message):
        if message.offset == 0:  # it begins, perhaps once more after a lost connection
            self.file = open(self.name, "wb")  # noqa: SIM115
        message.write_to(self.file)
        if message.last:
            self.file.close()
            self.done = True


def main():
    host, port, image = sys.argv[1:]
    flash = Flash(image)
    vfs.VfsLfs2.mkfs(flash)
    vfs.mount(flash, "/flash")
    update = Update("/flash/update.bin")
    client = Client(b"board", host, int(port), rx_size=512, tx_size=512)
    subscription = client.subscribe(b"update", update, qos=1, chunks=True)
    client.connect()
    while subscription.granted is None:
        client.poll(20)
    print("@ready")
    while not update.done:
        client.poll(20)
    with open(update.name, "rb") as file:
        client.publish_from(b"back", file, 1)
        while client.pending:
            client.poll(20)
    client.disconnect()
    gc.collect()
    print("SEEN", client.stats.received, gc.mem_alloc() + gc.mem_free())


main()
