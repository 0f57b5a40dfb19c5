"""A link in memory that costs next to nothing: the interpreter's own streams and no Python code.

A client reads from one RingIO and writes into another. While a stream listens, its methods are
attributes that hold native methods, so a call of one runs no bytecode. What the peer says is put
there with `feed` before the client reads it.
"""

import sys
from collections import deque

from micropython import RingIO

CONNACK = b"\x20\x02\0\0"


class Stream:
    """Both directions of a connection, each with room for `size` bytes."""

    def __init__(self, size):
        self.incoming = RingIO(size)
        self.outgoing = RingIO(size)
        # It takes an argument, keeps it, and returns None.
        self._nothing = deque((), 1).append  # noqa: RUF037 - as MicroPython has it
        self.setblocking = self._nothing
        self.write = self.outgoing.write
        self.hush()

    def feed(self, data):
        """Have the client read these bytes next."""
        self.incoming.write(data)
        self.readinto = self._readinto
        self.read = self.incoming.read

    def _readinto(self, into):
        return self.incoming.readinto(into) or None

    def listen(self):
        """Have reads run no bytecode; after what was fed they get 0, the end of the stream."""
        self.readinto = self.incoming.readinto

    def hush(self):
        """Reads get None: nothing is there yet."""
        self.readinto = self.read = self._nothing

    def taken(self):
        """Return what the client has written since this was last called."""
        return self.outgoing.read()

    def connect(self, address):
        """As a socket does."""

    def close(self):
        """As a socket does."""


class Link:
    """What flatmq reaches a stream by."""

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
    """Stands in for the module `socket` for a client that imports it; every socket is `stream`."""

    def __init__(self, stream):
        self._stream = stream
        for name in ("socket", "usocket"):
            sys.modules[name] = self
        for name in ("binascii", "struct"):  # by the names that they had before 1.21
            sys.modules["u" + name] = __import__(name)

    def socket(self):
        return self._stream

    def getaddrinfo(self, host, port):
        return (((host, port),),)


def connect(client, stream):
    """Bring a flatmq client online; it was subscribed before or not."""
    client.start()
    for _ in range(20):
        client.poll()
        if stream.outgoing.any():
            break
    if stream.taken()[:1] != b"\x10":
        raise RuntimeError("no CONNECT")
    answer(client, stream, CONNACK)
    if not client.connected:
        raise RuntimeError("not connected: " + client.state)


def answer(client, stream, packet):
    """Have a flatmq client read a packet."""
    stream.feed(packet)
    client.poll()
    stream.hush()


def send(client, stream):
    """Have a flatmq client write what waits, and return it."""
    client.flush()
    if not stream.outgoing.any():
        client.poll()
    return stream.taken()


def grant(client, stream):
    """Answer each SUBSCRIBE of a flatmq client as a broker that grants everything."""
    sent = send(client, stream)
    if sent[:1] != b"\x82":
        raise RuntimeError("no SUBSCRIBE")
    while sent:
        end = 2 + sent[1]
        granted = b""
        at = 4
        while at < end:
            at += 3 + sent[at + 1]
            granted += sent[at - 1 : at]
        answer(client, stream, b"\x90" + bytes((2 + len(granted),)) + sent[2:4] + granted)
        sent = sent[end:]


def publish(client, stream, topic, payload, qos):
    """Publish with a flatmq client, as a broker that acknowledges everything at once."""
    identifier = client.publish(topic, payload, qos)
    if identifier is None or send(client, stream)[0] != 0x30 | qos << 1:
        raise RuntimeError("no PUBLISH")
    number = bytes((identifier >> 8, identifier & 255))
    if qos == 1:
        answer(client, stream, b"\x40\x02" + number)
    elif qos == 2:
        answer(client, stream, b"\x50\x02" + number)
        if send(client, stream) != b"\x62\x02" + number:
            raise RuntimeError("no PUBREL")
        answer(client, stream, b"\x70\x02" + number)
    if client.pending:
        raise RuntimeError("not acknowledged")
