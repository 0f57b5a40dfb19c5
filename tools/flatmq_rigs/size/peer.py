"""A broker in memory, instead of the modules `socket`, `select` and `tls`.

It runs on MicroPython beside the client that is weighed, and answers everything at once, at MQTT
3.1.1 and 5. All its memory is claimed when it is loaded, so none of it counts for the client.
"""

import sys


class Peer:
    """The modules, the socket, its TLS and what polls it: one object for all of them."""

    AF_INET, SOCK_STREAM, IPPROTO_TCP, TCP_NODELAY = 2, 1, 6, 1
    POLLIN, POLLOUT, POLLERR, POLLHUP = 1, 4, 8, 16
    PROTOCOL_TLS_CLIENT, CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED = 0, 0, 1, 2

    def __init__(self):
        self.connects = 0  # CONNECT packets received
        self._subscribes = self._publishes = 0  # with an acknowledgement
        self._into = bytearray(512)  # what the client wrote
        self._filled = 0
        self._out = bytearray(64)  # answers
        self._next = self._last = 0  # those that the client has not read
        self._five = self._cutting = self._ended = False
        self.verify_mode = self.verify_callback = None  # as an SSLContext has them
        for name in ("socket", "usocket", "select", "uselect", "tls"):
            sys.modules[name] = self

    def cut(self):
        """End the stream instead of acknowledging the next message."""
        self._cutting = True

    def seen(self, connects, subscribes, publishes):
        """Return whether so many packets came in, and the client has read all answers."""
        counted = (self.connects, self._subscribes, self._publishes)
        return self._next == self._last and counted == (connects, subscribes, publishes)

    # The modules

    def getaddrinfo(self, *address):
        return ((2, 1, 0, "", ("127.0.0.1", 1883)),)

    def socket(self, *kind):
        self._filled = self._next = self._last = 0
        self._ended = False
        return self

    def poll(self):
        return self

    def SSLContext(self, protocol):
        return self

    # The socket, an SSLContext and a poll object

    def load_verify_locations(self, authority):
        pass

    def wrap_socket(self, sock, **options):
        return self

    def setblocking(self, *arguments):
        pass

    settimeout = setsockopt = connect = register = modify = unregister = close = setblocking

    def ipoll(self, ms):
        return ((self, 4),)

    def readinto(self, into):
        n = min(len(into), self._last - self._next)
        if not n:
            return 0 if self._ended else None
        into[:n] = self._out[self._next : self._next + n]
        self._next += n
        return n

    def read(self, size):
        into = bytearray(size)
        n = self.readinto(into)
        return n if n is None else bytes(into[:n])

    def write(self, data, *span):
        if isinstance(data, str):
            data = data.encode()
        at = span[0] if len(span) == 2 else 0
        n = span[-1] if span else len(data)
        self._into[self._filled : self._filled + n] = data[at : at + n]
        self._filled += n
        while self._filled > 1:
            at = 3 if self._into[1] > 127 else 2
            end = at + self._into[1]
            if at == 3:
                end += (self._into[2] << 7) - 128
            if self._filled < end:
                break
            self._answer(self._into[0] & 0xF6, self._into[at:end])
            self._filled -= end
            self._into[: self._filled] = self._into[end : end + self._filled]
        return n

    def _answer(self, kind, body):
        if kind == 0x10:
            self.connects += 1
            self._five = body[6] == 5
            self._say(b"\x20\x06\0\0\3\x22\0\x0a" if self._five else b"\x20\x02\0\0")
        elif kind == 0x82:
            self._subscribes += 1
            granted = bytearray(1 if self._five else 0)
            at = 3 + body[2] if self._five else 2
            while at < len(body):
                at += 3 + body[at + 1]
                granted.append(body[at - 1] & 3)
            self._say(bytes((0x90, 2 + len(granted))) + body[:2] + granted)
        elif kind == 0xC0:
            self._say(b"\xd0\0")
        elif kind == 0x32:
            self._publishes += 1
            if self._cutting:
                self._cutting = False
                self._ended = True
            else:
                at = 2 + body[1]
                self._say(b"\x40\2" + body[at : at + 2])

    def _say(self, packet):
        if self._next == self._last:
            self._next = self._last = 0
        self._out[self._last : self._last + len(packet)] = packet
        self._last += len(packet)


peer = Peer()
