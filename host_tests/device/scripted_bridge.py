"""A UART with a bridge at its other end, which leads to the scripted peer.

It allocates nothing itself.
"""

import io

import packets
import scripted_link
from flatmq.frames import ACK, DATA, HEAD, OPEN, PAYLOAD, SMALL, Decoder, Encoder
from flatmq.stream_uart import Link

POLL = 3  # the request of ioctl
POLLIN = 1


class UART(io.IOBase):
    """The part of machine.UART that a link uses."""

    def __init__(self, peer):
        self._peer = peer
        self._rx = Decoder()
        self._tx = Encoder()
        self._at = 0
        self._payload = bytearray(PAYLOAD)
        self._opened = self._owe = False
        self._seq = self._wanted = 0

    def ioctl(self, request, argument):
        return POLLIN if request == POLL and self.any() else 0

    def any(self):
        if self._at == self._tx.n:
            if self._opened:
                self._opened = False
                self._seq = self._wanted = 0
                self._frame(OPEN, 0)
            else:
                n = self._peer.readinto(self._payload)
                if n:
                    self._frame(DATA, n)
                    self._seq = self._seq + 1 & 255
                elif self._owe:
                    self._frame(ACK, 0)
        return self._tx.n - self._at

    def _frame(self, kind, n):
        head = self._tx.head
        head[0] = kind + SMALL
        head[3] = self._seq
        head[4] = self._wanted
        self._tx.frame(self._payload, 0, n)
        self._at = 0
        self._owe = False

    def readinto(self, into, n):
        for i in range(n):
            into[i] = self._tx.out[self._at]
            self._at += 1
        return n

    def write(self, buf, at, n):
        end = at + n
        while at < end:
            at = self._rx.take(buf, at, end)
            if self._rx.size >= 0:
                self._take(self._rx.buf)
        return n

    def _take(self, frame):
        if frame[0] == OPEN:
            self._tx.head[1] = frame[1]
            self._tx.head[2] = frame[2]
            self._opened = True
        elif frame[0] == DATA:
            if frame[3] != self._wanted:
                raise AssertionError("out of order")
            self._wanted = self._wanted + 1 & 255
            self._owe = True
            self._peer.write(frame, HEAD, self._rx.size)


def online(**options):
    """The scripted peer, and a client that is connected to it over the UART."""
    peer = scripted_link.Link()
    client = peer.client = scripted_link.made(Link(UART(peer)), **options)
    client.start()
    while client.state != "greeting":
        client.poll()
    client.poll()
    if not peer.took_any():
        raise AssertionError("no CONNECT")
    peer.feed(packets.CONNACK)
    while not client.connected:
        client.poll()
    return peer, client
