"""Connect over a link with ever more memory, and then with enough: `... LINK WHEN STEP`.

LINK is "plain", "tls", "reserve" (TLS that holds memory for itself), "websocket" or "uart". Memory
is short from WHEN on: before the "start"; when the connection is "lost", after the client has let
go of the code that connects; or when it ends by an "error", and the client has kept that code.
STEP is how many bytes more there are each time.

It prints how often memory was too short for a connection, how often `poll` raised, how often a
socket stayed open, how often `error` did not say that memory was short, and how often the message
was not acknowledged afterwards.
"""

import gc
import sys

import packets
import scripted_link
from flatmq import Client
from flatmq.frames import BEGIN
from little_memory import empty, fill, list_of_blocks

PUBACK = packets.PUBACK
SECONDS = range(40)


class Socket:
    """A socket, also one of TLS, which leads to the scripted peer."""

    def __init__(self, net, below=None):
        self._net = net
        self._below = below
        self._is_open = below is None  # one of TLS is closed by the collector, too
        net.open += self._is_open

    def setblocking(self, flag):
        pass

    def setsockopt(self, *options):
        pass

    def connect(self, address):
        self._net.peer.connect()

    def readinto(self, into):
        return self._net.peer.readinto(into)

    def write(self, buf, at, n):
        return self._net.peer.write(buf, at, n)

    def close(self):
        if self._is_open:
            self._is_open = False
            self._net.open -= 1


class Poll:
    """A poll object, whose socket may always be written to."""

    def __init__(self, net):
        self._net = net

    def register(self, socket, mask):
        pass

    modify = register

    def ipoll(self, ms):
        self._net.peer.wait(ms, False)
        return self._net.ready


class Net:
    """The modules `socket`, `select` and `tls`. `open` counts the sockets that are."""

    AF_INET, SOCK_STREAM, IPPROTO_TCP, TCP_NODELAY = 2, 1, 6, 1
    POLLIN, POLLOUT, POLLERR, POLLHUP = 1, 4, 8, 16
    PROTOCOL_TLS_CLIENT, CERT_OPTIONAL, CERT_REQUIRED = 0, 1, 2

    def __init__(self):
        self.peer = None
        self.open = 0
        self.ready = ((self, 4),)

    def getaddrinfo(self, *address):
        return [(2, 1, 0, "", ("192.0.2.1", 8883))]

    def socket(self, *kind):
        return Socket(self)

    def poll(self):
        return Poll(self)

    def SSLContext(self, protocol):
        return Context(self)


class Context:
    def __init__(self, net):
        self._net = net

    def load_verify_locations(self, data):
        self._data = bytes(data)

    def wrap_socket(self, socket, **options):
        return Socket(self._net, socket)


NET = Net()


class Peer(scripted_link.Link):
    """The scripted peer, with the clock of the bench."""

    def ticks_ms(self):
        return Bench.now

    def wait(self, ms, out):
        Bench.now += ms


def sleep(link, ms):
    """Let time pass, as a link does that waits for a byte."""
    Bench.now += ms


class Bench:
    """A client, its link and its peer, which answers without memory."""

    now = 0

    def __init__(self, kind, release):
        self.peer = peer = Peer()
        self._kind = kind
        self._step = 0
        self._name = b""
        if kind in ("tls", "reserve"):
            from flatmq.stream_tls import TLS

            NET.peer = peer
            link = TLS(ca=b"an authority", reserve=kind == "reserve").link("broker", 8883)
        elif kind == "websocket":
            from flatmq.stream_websocket import WebSocket

            link = WebSocket("broker", link=peer)
        elif kind == "plain":
            link = peer
        else:
            from flatmq.stream_uart import Link
            from scripted_bridge import UART

            Link._sleep = sleep
            self.uart = UART(peer)
            link = Link(self.uart)
        self.link = link
        self.client = Client(
            b"board", link=link, tx_size=256, rx_size=128, release=release, quiet=True
        )
        peer.client = self.client

    def answer(self):
        """Answer what the client has written, one part at each call."""
        client, peer = self.client, self.peer
        if self._kind == "websocket" and self.link._upgrade:
            if self._step == 0 and peer.took_any():
                peer.feed(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
                self._step = 1
            elif self._step == 1:
                peer.feed(b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: ")
                self._step = 2
            elif self._step == 2:
                peer.feed(self.link._upgrade._accept)
                self._step = 3
            elif self._step == 3:
                peer.feed(b"\r\n\r\n")
                self._step = 0
        elif client.state == "greeting":
            self._step = 0
            if peer.took_any():
                peer.feed(b"\x82\4\x20\2\0\0" if self._kind == "websocket" else packets.CONNACK)
        elif client.connected and peer.took_any():
            first = peer._written[0]
            framed = self._kind == "websocket"
            if framed:
                first = peer._written[2] ^ peer._written[6]  # without its mask
            if first == 0xC0:
                peer.feed(FRAMED_PINGRESP if framed else packets.PINGRESP)
            elif framed:
                FRAMED_PUBACK[4] = client.last_id >> 8
                FRAMED_PUBACK[5] = client.last_id & 255
                peer.feed(FRAMED_PUBACK)
            else:
                peer.feed(PUBACK.with_id(client.last_id))
        elif not client.connected:
            self._step = 0

    def run(self, until):
        """Poll once a second. Returns how often it raised."""
        raised = 0
        for _ in SECONDS:
            Bench.now += 1000
            try:
                self.client.poll()
            except MemoryError:
                raised += 1
            self.answer()
            if until and self.client.connected and not self.client.pending:
                break
        return raised


FRAMED_PUBACK = bytearray(b"\x82\4\x40\2\0\0")
FRAMED_PINGRESP = b"\x82\2\xd0\0"


def main(kind, when, step):
    if kind in ("tls", "reserve"):
        for name in ("socket", "select", "tls"):
            sys.modules[name] = NET
    blocks = list_of_blocks()
    short = raised = opened = other = missing = 0
    for left in range(0, 15000, int(step)):
        bench = Bench(kind, when != "error")
        client = bench.client
        if when != "start":
            client.publish(b"t", b"before", 1)
            client.start()
            raised += bench.run(True)
            for _ in range(12):  # then it lets go of the code that connects
                Bench.now += 1000
                client.poll()
                bench.answer()
        client.publish(b"t", b"kept", 1)
        client.error = None
        gc.collect()
        fill(blocks, left)
        if when == "start":
            client.start()
        elif kind == "uart" and when == "lost":
            bench.uart._frame(BEGIN, 0)  # a new bridge
        elif kind == "uart":
            bench.uart._seq += 1  # a frame was lost
            bench.peer.feed(packets.PINGRESP)
        elif when == "lost":
            bench.peer.end()
        elif kind == "websocket":
            bench.peer.feed(b"\x88\x0e\x03\xe9going away..")
        else:
            bench.peer.fail()
        raised += bench.run(False)
        was = client.error
        connected = client.connected
        empty(blocks)
        if not connected:
            short += 1
            other += not was or was.kind != "resource"
        opened += NET.open > 1
        raised += bench.run(True)
        for _ in range(3):
            raised += bench.run(True)
        missing += not client.connected or client.pending != 0
        client.disconnect()
        opened += NET.open
        NET.open = 0
    print("SEEN", short, raised, opened, other, missing)


main(*sys.argv[1:])
