"""Run cases and print a line on each, on CPython or MicroPython.

Usage: `replay.py FILE LINK`. The file holds cases, each after its size in four bytes,
big-endian. The line is\nCHECKSUM GROWTH [ERROR]

CHECKSUM is that of every event, so two interpreters agree where it is the same. GROWTH is what the
heap holds more at the end of the case than when the client had been online for the first time, in
bytes; 0 on CPython, which does not report it. ERROR is what was raised that should not be.
"""

import gc
import sys
from binascii import crc32

from hostile import cases, drive

RARE = (
    "alone", "rare.checks", "rare.connecting", "dial", "hello", "methods", "rare.pieces",
    "rare.qos2", "rare.reading", "reasons", "rare.strays", "subs", "subscribing", "rare.wild",
)  # fmt: skip
RARE_5 = (
    "acks", "alias", "auth", "calls", "carry", "connack", "faulty", "flow", "hello", "limits",
    "packets", "passing", "pieces", "reasons", "replies", "setup", "subscribing", "walk",
)  # fmt: skip
KEPT = []  # those modules
MOST = 400  # bytes of acknowledgements and requests that wait at once, and messages received
LONGEST = 130  # bytes of a topic name, of properties, or of both, that a client remembers


def load():
    """Load everything that a client otherwise loads when it needs it.

    It stays in memory, and the first case that needs it is not to be blamed for that.
    """
    import flatmq.port

    flatmq.port.drop = lambda *_names: None  # nothing is let go of
    from flatmq import Client
    from flatmq.message import Message

    for name in ("stream_websocket", "v5"):  # what differs on CPython
        __import__("flatmq." + name)
    KEPT.extend([flatmq.port.load(name, "") for name in RARE])
    KEPT[0].let_go = lambda: None
    methods = flatmq.port.load("methods", "")
    for name, home in methods.modules().items():
        if name != "server":
            setattr(Client, name, getattr(flatmq.port.load(home, ""), name))
    reading = flatmq.port.load("reading")
    for name in reading._NAMES:
        setattr(Message, name, getattr(reading, name))


def load_5():
    """Load the same for MQTT 5, once."""
    from flatmq.port import load
    from flatmq.v5 import Client5

    KEPT.extend([load(name, "v5.") for name in RARE_5])
    for name, home in load("methods", "").modules(True).items():
        if name != "server":
            setattr(Client5, name, getattr(load(home, ""), name))


def fill(client):
    """Make what a client makes once, when it needs it, and then keeps.

    That is a place for messages in pieces, and the topic names that it was last given, of
    which there are never more; and lists and buffers as long as they become.
    """
    from flatmq.port import load

    client.pieces = client.pieces or (client.five or load("pieces")).Pieces(client)
    client.two = load("qos2")
    client.two.is_new(client, 1)
    for buffer in [client.acks] + client.heads[:3]:  # noqa: RUF005 (MicroPython)
        now = bytes(buffer)
        buffer.extend(bytes(MOST))
        buffer[0:] = now
    for some, more in ((client.subscriptions, 8), (client.requests, 16), (client.received, MOST)):
        now = some[:]  # a list that was longer keeps its places
        for _ in range(more):
            some.append(None)
        some[:] = now
    load("subscribing", "").extend(client, 3)  # with many it remembers more topic names
    for topic in cases.TOPICS + (b"reply", b"out"):  # noqa: RUF005 (MicroPython)
        for qos in (0, 1, 2):
            client.address(topic, qos)
    if client.five:
        fill_5(client)


def fill_5(client):
    """Do the same for what MQTT 5 adds."""
    from flatmq.port import load

    if client.owners is None:
        load("carry", "v5.").begin(client)
    client.five.view(client)
    assert client.server
    client.pieces.walk = load("passing", "v5.").Walk()
    client.pieces.walk.begin(0)
    for _ in range(8):
        client.owed.append(0)
    client.owed[:] = []
    client.blocks = [bytearray(LONGEST) for _ in range(8)]
    for block in client.blocks:  # it keeps its memory when it is smaller
        block[0:] = b"\0\0\0"


class Digest:
    """The checksum of events."""

    def __init__(self):
        self.value = 0

    def note(self, event):
        value = self.value
        for field in event:
            if isinstance(field, bytes):
                value = crc32(field, crc32(str(len(field)).encode(), value))
            else:
                value = crc32(str(field).encode(), value)
        self.value = value


class Heap:
    """The growth of the heap since the beginning.

    The collector takes whatever is on the stack of the interpreter for a pointer if it looks like
    one, also where nothing has been written for long. So where something seems to be kept it is
    looked for again after more ordinary work: what is really kept is still there.
    """

    def __init__(self):
        self.first = -1
        self.growth = 0

    def look(self, client):
        """Look for the first time, or compare with that; whether it is as it was."""
        if hasattr(gc, "mem_alloc"):
            if self.first < 0:
                fill(client)
            gc.collect()
            gc.collect()  # what the first one finalized
            if self.first < 0:
                self.first = gc.mem_alloc()
            self.growth = gc.mem_alloc() - self.first
        return self.growth <= 0


def runner(link):
    """Return a function that runs a case over "tcp" or "websocket"."""
    if link == "tcp":
        return drive.run
    from hostile import framed

    return framed.run


def outcome(data, run=drive.run):
    """Return checksum, growth and error of a case."""
    digest = Digest()
    heap = Heap()
    error = ""
    try:
        run(data, digest.note, heap.look)
    except (Exception, drive.Stuck) as e:
        error = repr(e)
    return digest.value, heap.growth, error


def main(path, link):
    """Print the outcome of each case in a file."""
    load()
    run = runner(link)
    five = False
    with open(path, "rb") as file:
        while True:
            size = file.read(4)
            if len(size) < 4:
                break
            data = file.read(int.from_bytes(size, "big"))
            if not five and cases.decode(data)[0].version == 5:
                five = True
                load_5()
            print(*outcome(data, run))


if __name__ == "__main__":
    main(*sys.argv[1:])
