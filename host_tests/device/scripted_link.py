"""A peer inside the interpreter: a link whose bytes are a script. It allocates nothing itself.

It and its clients speak the version of MQTT that `packets` does.
"""

import errno

from micropython import const

import flatmq.port
import packets
from flatmq import Client

WITHOUT_END = const(268435455)


class Link:
    """A link, its stream and the clock in one: time passes only where the client waits.

    `room` is how many bytes one write takes.
    """

    client = None  # the one that it was made for

    def __init__(self):
        self.address = None
        self.now = 0
        self.room = WITHOUT_END
        self.swallows = False  # what is written is counted, and not kept
        self.swallowed = 0
        self.refuses = False
        self._script = b""
        self._at = self._end = 0
        self._gone = self._failing = False
        self._written = bytearray(1024)
        self._n = 0
        flatmq.port.ticks_ms = self.ticks_ms

    # What the client calls

    def resolve(self):
        self.address = True

    def connect(self):
        self._gone = self._failing = False
        self._at = self._end = self._n = 0

    def stream(self):
        if self.refuses:
            raise OSError(errno.ECONNREFUSED)
        return self

    def wait(self, ms, out):
        if not out and self._at == self._end:  # else there is something to do at once
            self.now = self.now + ms & 0x3FFFFFFF

    def close(self):
        pass

    def ticks_ms(self):
        return self.now

    def readinto(self, into):
        n = min(self._end - self._at, len(into))
        if not n:
            if self._failing:
                raise OSError(errno.EHOSTUNREACH)
            return 0 if self._gone else None
        for i in range(n):
            into[i] = self._script[self._at + i]
        self._at += n
        return n

    def write(self, buf, at, n):
        n = min(n, self.room)
        if not n:
            return None
        if self.swallows:
            self.swallowed += n
            return n
        for i in range(at, at + n):
            self._written[self._n] = buf[i]
            self._n += 1
        return n

    # What a test calls

    def feed(self, packet, at=0, end=None):
        """Have the client read a packet, or a part of it, next."""
        self._script = packet
        self._at = at
        self._end = len(packet) if end is None else end

    def give(self, packet, at=0, end=None):
        """Have the client read a packet, or a part of it, and poll it once."""
        self.feed(packet, at, end)
        self.client.poll()

    def publish(self, topic, payload, qos=0):
        """Have the client publish, with the properties that messages have; return its answer."""
        if packets.properties is None:
            return self.client.publish(topic, payload, qos)
        return self.client.publish(topic, payload, qos, properties=packets.properties)

    def settled(self, wanted, identifier, qos=1):
        """Return whether the client has sent a message, and forgets it once it is acknowledged."""
        sent = self.took(wanted.with_id(identifier)) and self.client.pending == 1
        if qos == 2:
            self.give(packets.PUBREC.with_id(identifier))
            sent = sent and self.released(identifier)
        else:
            self.give(packets.PUBACK.with_id(identifier))
        return sent and self.client.pending == 0

    def released(self, identifier):
        """Return whether the client has sent PUBREL, and give it PUBCOMP."""
        sent = self.took(packets.PUBREL.with_id(identifier)) and self.client.pending > 0
        self.give(packets.PUBCOMP.with_id(identifier))
        return sent

    def took(self, wanted):
        """Return whether exactly these bytes were written since the last call."""
        n = self._n
        self._n = 0
        return n == len(wanted) and self._written.find(wanted, 0, n) == 0

    def took_any(self):
        """Return whether anything was written since the last call."""
        n = self._n
        self._n = 0
        return n > 0

    def identifier(self, at):
        """The two bytes at a position of what was written."""
        return self._written[at] << 8 | self._written[at + 1]

    def end(self):
        """The peer closes the connection."""
        self._gone = True

    def fail(self):
        """The network fails, so that reading raises."""
        self._failing = True


def online(connack=b"", **options):
    """A link, and a client that is connected by it."""
    link = Link()
    client = made(link, **options)
    connect(client, link, connack)
    return link, client


def made(link, **options):
    """A client with small buffers."""
    options.setdefault("tx_size", 512)
    options.setdefault("rx_size", 256)
    options.setdefault("version", packets.version)
    link.client = Client(b"proof", link=link, **options)
    return link.client


def greeting(client, link):
    """Poll until a client awaits CONNACK."""
    client.start()
    while client.state != "greeting":
        client.poll()
        link.now = link.now + 100 & 0x3FFFFFFF
    client.poll()
    if not link.took_any():
        raise AssertionError("no CONNECT")


def connect(client, link, connack=b""):
    """Poll a client until the scripted peer has accepted it.

    Its CONNACK grants everything unless another is given.
    """
    greeting(client, link)
    link.feed(connack or packets.CONNACK)
    client.poll()
    if not client.connected:
        raise AssertionError(client.state)


def subscribe(client, link, filters, handler, qos=0, chunks=False):
    """Subscribe, and have the scripted peer grant it. Returns the subscription."""
    wanted = client.subscribe(filters, handler, qos, chunks)
    client.poll()
    suback = packets.suback(qos).with_id(link.identifier(2))
    if not link.took_any():
        raise AssertionError("no SUBSCRIBE")
    link.feed(suback)
    client.poll()
    if wanted.granted != bytes((qos,)):
        raise AssertionError("not granted")
    return wanted


def flushed(link, publish, wanted):
    """The operation that publishes at QoS 0 and has it written."""
    while True:
        accepted = publish()
        link.client.flush()
        yield accepted == 0 and link.took(wanted)
