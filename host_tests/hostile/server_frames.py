"""The bytes of a WebSocket server: the answer to an upgrade, and frames, right ones and spoilt.

Written from RFC 6455 and apart from flatmq. Every choice comes from a Chance, which is the same
for the same seed on CPython and on MicroPython. Runs on both.
"""

from binascii import b2a_base64
from hashlib import sha1

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

CONTINUATION = 0
TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10

CODES = (
    1000, 1001, 1002, 1003, 1008, 1011, 3000, 4999, 0, 999, 1004, 1005, 1006, 1015, 5000, 65535,
)  # fmt: skip
LENGTHS = (
    (126, b"\0\0"), (126, b"\0\5"), (126, b"\0\x7e"), (126, b"\xff\xff"),
    (127, b"\0\0\0\0\0\0\0\0"), (127, b"\0\0\0\0\0\0\0\7"), (127, b"\0\0\0\0\0\1\0\0"),
    (127, b"\0\0\0\0\x3f\xff\xff\xff"), (127, b"\0\0\0\0\x40\0\0\0"),
    (127, b"\0\0\0\0\x7f\xff\xff\xff"), (127, b"\0\0\0\0\x80\0\0\0"),
    (127, b"\0\0\0\1\0\0\0\0"), (127, b"\x7f\xff\xff\xff\xff\xff\xff\xff"),
    (127, b"\x80\0\0\0\0\0\0\0"), (127, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
)  # fmt: skip


class Chance:
    """Numbers that look random: the same ones for the same seed."""

    def __init__(self, seed):
        self.state = seed & 0x7FFFFFFF
        for _ in range(3):
            self.pick(2)

    def pick(self, n):
        """Return 0 to n - 1; `n` is at most 65536."""
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return (self.state >> 12) % n if n < 4096 else (self.state >> 8) % n

    def one(self, values):
        """Return one of several values."""
        return values[self.pick(len(values))]

    def some(self, n):
        """Return `n` bytes."""
        return bytes([self.pick(256) for _ in range(n)])


def mangled(data, chance):
    """Return these bytes, one or more, with something wrong anywhere."""
    at = chance.pick(len(data))
    kind = chance.pick(5)
    if kind == 0:  # cut
        return data[:at]
    if kind == 1:  # a bit
        return data[:at] + bytes((data[at] ^ 1 << chance.pick(8),)) + data[at + 1 :]
    if kind == 2:  # more
        return data[:at] + chance.some(1 + chance.pick(12)) + data[at:]
    if kind == 3:  # less
        return data[:at] + data[at + 1 + chance.pick(8) :]
    return chance.some(len(data))


def frame(first, payload=b"", width=0, mask=None):
    """Return a frame with that first byte.

    `width` is the number of bytes of its length, chosen unless given.
    """
    n = len(payload)
    bit = 0
    if mask is not None:
        bit = 0x80
        payload = mask + bytes([payload[i] ^ mask[i & 3] for i in range(n)])
    width = width or (1 if n < 126 else 3 if n < 65536 else 9)
    if width == 1:
        head = bytes((first, bit | n))
    elif width == 3:
        head = bytes((first, bit | 126, n >> 8, n & 255))
    else:
        head = bytes((first, bit | 127, 0, 0, 0, 0, n >> 24, n >> 16 & 255, n >> 8 & 255, n & 255))
    return head + payload


def accept(key):
    """The Sec-WebSocket-Accept of a Sec-WebSocket-Key."""
    return b2a_base64(sha1(key + GUID).digest()).strip()


def lines(first, fields):
    """The head of an HTTP message."""
    return b"".join([line + b"\r\n" for line in [first] + fields]) + b"\r\n"  # noqa: RUF005 (MicroPython)


class Server:
    """Carries the bytes of an MQTT server to its client.

    `frames` counts the frames that were made, `changed` those that are not as they were made, or
    were left out, doubled or moved.
    """

    def __init__(self, chance):
        self.chance = chance
        self.frames = self.changed = 0
        self.pings = 0
        self.fragments = False  # a message has begun, and more of it comes

    # The answer to the upgrade

    def answer(self, request, spoilt):
        """Return what a server says to a request; if `spoilt`, not quite that."""
        self.fragments = False
        chance = self.chance
        key = request[request.find(b"Key: ") + 5 :]
        key = key[: key.find(b"\r")]
        fields = [
            chance.one((b"Upgrade: websocket", b"upgrade:websocket", b"UPGRADE: WebSocket ")),
            chance.one((b"Connection: Upgrade", b"connection:keep-alive, Upgrade")),
            chance.one((b"Sec-WebSocket-Accept: ", b"sec-websocket-accept:")) + accept(key),
            chance.one((b"Sec-WebSocket-Protocol: mqtt", b"sec-websocket-protocol: mqtt")),
        ]  # fmt: skip
        if chance.pick(3) == 0:
            fields.append(b"Server: " + b"x" * chance.pick(400))
        i = chance.pick(len(fields))
        fields.append(fields.pop(i))
        first = chance.one((b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 101 OK"))
        if not spoilt:
            return lines(first, fields)
        self.changed += 1
        kind = chance.pick(12)
        i = chance.pick(len(fields))
        if kind == 0:
            first = chance.one((
                b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1", b"", b"HTTP/2 101",
                b"HTTP/1.1 1010", b"HTTP/1.1  101", b"SSH-2.0-x", b"\xff\xfe\0", b"HTTP/1.1 302",
            ))  # fmt: skip
        elif kind == 1:
            del fields[i]
        elif kind == 2:
            fields[i] = fields[i][: chance.pick(len(fields[i]))]
        elif kind == 3:
            fields[i] = fields[i].replace(b":", chance.one((b"", b" :", b"::")))
        elif kind == 4:
            fields.append(chance.one((
                b"Sec-WebSocket-Extensions: permessage-deflate", b"Sec-WebSocket-Protocol: x",
                b"Sec-WebSocket-Accept: AAAA", b"Upgrade: h2c", b"Connection: close", b"", b"\0\0",
            )))  # fmt: skip
        elif kind == 5:
            fields.append(b"X: " + b"x" * (3900 + chance.pick(400)))
        elif kind == 6:
            fields = [b"X: y"] * (200 + chance.pick(600)) + fields
        return lines(first, fields) if kind < 7 else mangled(lines(first, fields), chance)

    # Frames

    def carry(self, data, spoilt):
        """Return frames that have these bytes as their payload; if `spoilt`, not quite these."""
        if not data:
            return b""
        chance = self.chance
        made = []
        at = 0
        while True:
            kind = chance.pick(10)
            if kind == 0:
                self.pings += 1
                made.append(frame(0x80 | PING, (b"%d " % self.pings) * (1 + chance.pick(20))))
            elif kind == 1:
                made.append(frame(0x80 | PONG, b"p" * chance.pick(126)))
            elif kind == 2:
                made.append(self._data(b""))
            if at == len(data):
                break
            n = len(data) - at
            if chance.pick(3) == 0:
                n = 1 + chance.pick(n)
            made.append(self._data(data[at : at + n]))
            at += n
        self.frames += len(made)
        if spoilt:
            for _ in range(1 + chance.pick(2)):
                self._spoil(made)
        return b"".join(made)

    def _data(self, payload):
        final = self.chance.pick(3) > 0
        first = (0x80 if final else 0) | (CONTINUATION if self.fragments else BINARY)
        self.fragments = not final
        width = 0
        if self.chance.pick(4) == 0:
            width = 9 if len(payload) > 65535 or self.chance.pick(2) else 3
        return frame(first, payload, width)

    def _spoil(self, made):
        """Spoil one of some frames, or what is between them."""
        chance = self.chance
        if not made:
            return
        self.changed += 1
        i = chance.pick(len(made))
        f = made[i]
        if not f:
            return
        kind = chance.pick(18)
        if kind == 0:  # a bit of the first byte
            made[i] = bytes((f[0] ^ 1 << chance.pick(8),)) + f[1:]
        elif kind == 1:  # reserved bits
            made[i] = bytes((f[0] | (1 + chance.pick(7)) << 4,)) + f[1:]
        elif kind == 2:  # the opcode
            made[i] = bytes((f[0] & 0xF0 | chance.pick(16),)) + f[1:]
        elif kind == 3:  # the second byte
            made[i] = f[:1] + bytes((chance.pick(256),)) + f[2:]
        elif kind == 4:  # a mask
            made[i] = frame(0x80 | BINARY, b"masked"[: chance.pick(7)], 0, chance.some(4))
        elif kind == 5:  # a length that is far off
            size, more = chance.one(LENGTHS)
            made[i] = bytes((chance.one((f[0], 0x82, 0x89, 0x88)), size)) + more + f[2:]
        elif kind == 6 and len(f) > 1:  # a length that is nearly right
            made[i] = f[:1] + bytes((f[1] + chance.one((255, 1, 2)) & 255,)) + f[2:]
        elif kind == 7:  # a control frame that is too long
            n = 126 + chance.pick(200)
            made.insert(i, frame(0x80 | chance.one((PING, PONG, CLOSE)), bytes(n)))
        elif kind == 8:  # a control frame in fragments
            made.insert(i, frame(chance.one((PING, PONG, CLOSE)), b"part"))
        elif kind == 9:  # the end
            payload = b""
            if chance.pick(4):
                code = chance.one(CODES)
                reason = chance.one((b"", b"bye", b"\xff\xfe", "größer".encode(), b"r" * 123))
                payload = bytes((code >> 8, code & 255)) + reason
                if chance.pick(8) == 0:
                    payload = payload[:1]
            made.insert(i, frame(0x80 | CLOSE, payload))
        elif kind == 10:  # fragments out of order
            first = CONTINUATION | (0x80 if chance.pick(2) else 0)
            made.insert(i, frame(first if chance.pick(2) else BINARY, b"odd"))
        elif kind == 11:
            made.insert(i, frame(0x80 | TEXT, b"text"[: chance.pick(5)]))
        elif kind == 12:
            del made[i]
        elif kind == 13:
            made.insert(i, f)
        elif kind == 14:
            j = chance.pick(len(made))
            made[i], made[j] = made[j], f
        else:
            made[i] = mangled(f, chance)
