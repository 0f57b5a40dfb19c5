"""A link in memory that costs next to nothing: the interpreter's own streams and no Python code.

A client reads from one RingIO and writes into another. The stream's methods are attributes that
hold native methods, so a call of one runs no bytecode. What the peer says is put there with
`feed` before the client reads it.
"""

import sys
from collections import deque

from micropython import RingIO

CONNACK = b"\x20\x02\0\0"
CONNACK_5 = b"\x20\x06\0\0\3\x22\0\x0a"  # of MQTT 5, with ten topic aliases


class Stream:
    """Both directions of a connection, each with room for `size` bytes.

    A RingIO that is empty says 0, the end of the stream. If `patient`, reads get None then, as
    they do from a socket; they are calls of Python for that.
    """

    def __init__(self, size, patient=False):
        self.incoming = RingIO(size)
        self.outgoing = RingIO(size)
        self.write = self.outgoing.write
        self.readinto = self._readinto if patient else self.incoming.readinto
        self.read = self._read if patient else self.incoming.read
        # It takes an argument, keeps it, and returns None.
        self.setblocking = deque((), 1).append  # noqa: RUF037 - as MicroPython has it

    def _readinto(self, into):
        return self.incoming.readinto(into) or None

    def _read(self, n):
        return self.incoming.read(n) if self.incoming.any() else None

    def feed(self, data):
        """Have the client read these bytes next."""
        self.incoming.write(data)

    def taken(self):
        """Return what the client has written since this was last called."""
        return self.outgoing.read()

    def connect(self, address):
        """Accept any address, as there is nothing to connect to."""

    def close(self):
        """Do nothing; a socket would close here."""


class Link:
    """A link by which flatmq reaches a stream."""

    address = True

    def __init__(self, stream):
        self._stream = stream

    def resolve(self):
        pass

    def connect(self):
        pass

    def stream(self):
        return self._stream

    def wait(self, ms, out):
        pass

    def close(self):
        pass


class Sockets:
    """A replacement for the module `socket` for a client that imports it; every socket is `to`."""

    def __init__(self, to):
        self.to = to
        for name in ("socket", "usocket"):
            sys.modules[name] = self
        for name in ("binascii", "struct"):  # by the names that they had before 1.21
            sys.modules["u" + name] = __import__(name)

    def socket(self):
        return self.to

    def getaddrinfo(self, host, port):
        return (((host, port),),)


def connect(client, stream):
    """Bring a flatmq client online; it was subscribed before or not."""
    stream.feed(CONNACK if client.five is None else CONNACK_5)
    client.start()
    for _ in range(20):
        client.poll()
        if client.connected:
            break
    else:
        raise RuntimeError("not connected: " + client.state)
    # A SUBSCRIBE may have left behind it: `grant` asks for it.
    if stream.outgoing.read(1) != b"\x10":
        raise RuntimeError("no CONNECT")
    stream.outgoing.read(stream.outgoing.read(1)[0])


def grant(client, stream):
    """Answer each SUBSCRIBE of a flatmq client as a broker that grants everything."""
    client.flush()
    sent = stream.taken()
    if sent[:1] != b"\x82":
        raise RuntimeError("no SUBSCRIBE")
    while sent:
        end = 2 + sent[1]
        granted = none = b""
        at = 4
        if client.five is not None:
            at += 1 + sent[4]  # properties
            none = b"\0"
        while at < end:
            at += 3 + sent[at + 1]
            granted += bytes((sent[at - 1] & 3,))
        granted = sent[2:4] + none + granted
        stream.feed(b"\x90" + bytes((len(granted),)) + granted)
        client.poll()
        sent = sent[end:]
