"""Rare events of a WebSocket, with a scripted peer."""

import binascii
import hashlib

from flatmq import stream_websocket_masks
from flatmq.stream_websocket import RingIO, WebSocket, websocket
from scripted_link import Link

_ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: "
)


class _Peer(Link):
    """A link whose peer opens a WebSocket; it allocates nothing once that is open."""

    is_open = False

    def write(self, buf, at, n):
        n = Link.write(self, buf, at, n)
        if not self.is_open:
            self.is_open = True
            self._answer(bytes(buf[at : at + n]))
        return n

    def _answer(self, request):
        key = request.split(b"Sec-WebSocket-Key: ")[1][:24]
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = binascii.b2a_base64(hashlib.sha1(key + guid).digest())[:-1]
        self.feed(_ANSWER + accept + b"\r\n\r\n")

    def wrote(self, n, first):
        """Return whether so many bytes were written since the last call, and what came first."""
        return self._written[0] == first and self._n == n and self.took_any()


def _opened():
    peer = _Peer()
    link = WebSocket("broker", link=peer)
    link.connect()
    if link.stream() is not link:
        raise AssertionError("not open")
    peer.took_any()
    return peer, link, memoryview(bytearray(64))


def a_ping_is_answered(proof):
    peer, link, buf = _opened()
    ping = b"\x89\x05there"
    while True:
        peer.feed(ping)
        nothing = link.readinto(buf)
        yield nothing is None and peer.wrote(11, 0x8A)


def a_ping_in_a_message_of_fragments(proof):
    peer, link, buf = _opened()
    data = b"\x02\x02ab\x89\x00\x00\x02cd\x80\x00\x82\x01e"
    while True:
        peer.feed(data)
        n = 0
        while n < 5:
            n += link.readinto(buf) or 0
        yield n == 5 and peer.wrote(6, 0x8A)


def a_frame_of_which_the_network_takes_parts(proof):
    peer, link, _ = _opened()
    data = memoryview(bytes(300))
    peer.room = 7
    while True:
        at = 0
        while at < 300:
            peer.room ^= 7  # nothing, and seven bytes, in turn
            at += link.write(data, at, 300 - at) or 0
        yield peer.wrote(300 + 8 + 6, 0x82)


def nothing_to_read(proof):
    _, link, buf = _opened()
    while True:
        yield link.readinto(buf) is None


def masks_without_the_native_module(proof):
    ring = RingIO(264)
    native = websocket(ring).readinto
    other = stream_websocket_masks.websocket(ring).readinto
    frames = []
    for n in (1, 3, 125, 126, 256):
        head = bytes((0x82, 0x80 | n)) if n < 126 else bytes((0x82, 0xFE, n >> 8, n & 255))
        frames.append((head + b"\1\x82\xf3\xff" + bytes(range(n)), n))
    into = [bytearray(256), bytearray(256)]
    while True:
        for frame, n in frames:
            ring.write(frame)
            native(into[0], n)
            ring.write(frame)
            other(into[1], n)
        yield into[0] == into[1] and into[0][2] == 0xF1
