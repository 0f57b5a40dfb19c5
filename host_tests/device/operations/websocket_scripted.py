"""Rare events of a WebSocket, with a scripted peer."""

import binascii
import hashlib

from flatmq.stream_websocket import WebSocket

_ANSWER = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Accept: "
)


class _Inner:
    """An inner link, and its stream. It allocates nothing once the WebSocket is open."""

    def __init__(self):
        self.address = True
        self.room = 1000
        self.written = 0
        self.first = 0  # byte of what was written last
        self._request = b""
        self._script = b""
        self._at = 0

    def resolve(self):
        pass

    def connect(self):
        pass

    def stream(self):
        return self

    def close(self):
        pass

    def wait(self, ms, out):
        pass

    def feed(self, data):
        self._script = data
        self._at = 0

    def readinto(self, buf):
        n = min(len(buf), len(self._script) - self._at)
        for i in range(n):
            buf[i] = self._script[self._at]
            self._at += 1
        return n or None

    def write(self, buf, off, n):
        if not self.room:
            return None
        n = min(n, self.room)
        self.first = buf[off]
        self.written += n
        if self._request is not None:
            self._answer(bytes(buf[off : off + n]))
        return n

    def _answer(self, request):
        self._request = None
        key = request.split(b"Sec-WebSocket-Key: ")[1][:24]
        guid = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = binascii.b2a_base64(hashlib.sha1(key + guid).digest())[:-1]
        self.feed(_ANSWER + accept + b"\r\n\r\n")


def _opened():
    inner = _Inner()
    link = WebSocket("broker", link=inner)
    link.connect()
    if link.stream() is not link:
        raise AssertionError("not open")
    inner.written = 0
    return inner, link, memoryview(bytearray(64))


def a_ping_is_answered(proof):
    inner, link, buf = _opened()
    ping = b"\x89\x05there"
    while True:
        inner.feed(ping)
        nothing = link.readinto(buf)
        yield nothing is None and inner.written == 11 and inner.first == 0x8A
        inner.written = 0


def a_ping_in_a_message_of_fragments(proof):
    inner, link, buf = _opened()
    data = b"\x02\x02ab\x89\x00\x00\x02cd\x80\x00\x82\x01e"
    while True:
        inner.feed(data)
        n = 0
        while n < 5:
            n += link.readinto(buf) or 0
        yield n == 5 and inner.written == 6
        inner.written = 0


def a_frame_of_which_the_network_takes_parts(proof):
    inner, link, _ = _opened()
    data = memoryview(bytes(300))
    inner.room = 7
    while True:
        at = 0
        while at < 300:
            inner.room ^= 7  # nothing, and seven bytes, in turn
            at += link.write(data, at, 300 - at) or 0
        yield inner.written == 300 + 8 + 6
        inner.written = 0


def nothing_to_read(proof):
    _, link, buf = _opened()
    while True:
        yield link.readinto(buf) is None
