"""MQTT over WebSocket (RFC 6455), as a link of the client: see docs/websocket.md.

    client = Client(b"pico-1", link=WebSocket("broker", 443, "/mqtt", tls=TLS(ca=...)))

The link goes through another one, TCP or TLS, and is its own stream. Once the connection is there
nothing is allocated.
"""

import errno

from .port import MICROPYTHON, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

if MICROPYTHON:
    from random import getrandbits
else:
    from secrets import randbits as getrandbits

# What is written: a header of up to 8 bytes, right before the payload that goes with it.
_HEAD = const(8)
_PIECE = const(256)  # bytes of payload in a frame that is masked
_SHORT = const(125)  # bytes of payload up to which the header has no more length
_MOST = const(65535)

# How far the header of a frame that comes in has been read: its first byte comes next, its second,
# then as many bytes of the length; 0 for payload.
_FIRST = const(10)
_SECOND = const(9)

_CONTINUATION = const(0)
_TEXT = const(1)
_BINARY = const(2)
_CONTROL = const(8)  # in every opcode of a control frame
_CLOSE = const(8)
_PING = const(9)
_PONG = const(10)
_FINAL = const(0x80)
_MASKED = const(0x80)
_RESERVED = const(0x70)

_LONG = const(0x3FFFFF)  # a length above this would not be a small int with 8 bits more

# Close codes (section 7.4.1).
_PROTOCOL_ERROR = const(1002)
_UNSUPPORTED = const(1003)
_TOO_BIG = const(1009)


class WebSocket:
    """A link to the WebSocket at `path` of a host.

    host     name or address, str
    port     1 to 65,535; None for 80, or 443 with `tls`
    path     of the request, with its query if it has one; ASCII, str
    tls      None, or what makes the TLS link: its `link(host, port)` is called once
    link     a link of your own to go through, instead of TCP

    Without `tls` every frame has a mask of its own, taken from random numbers. With `tls` the mask
    is zero: masks protect proxies that read the bytes, and through TLS they cannot. `resolve`,
    `connect` and `stream` raise OSError, and ValueError if TLS does. ValueError or TypeError names
    an argument that breaks its rule.
    """

    def __init__(
        self,
        host: str,
        port: "int | None" = None,
        path: str = "/mqtt",
        tls: "Any" = None,
        link: "Any" = None,
    ) -> None:
        from .setup import tcp
        from .stream_websocket_upgrade import check
        from .unload import unload
        from .wire import number

        check(host, path)
        if tls and link:
            raise ValueError("tls must be None with a link: the link decides")
        default = 443 if tls else 80
        if port is None:
            port = default
        number("port", port, 1, 65535)
        self.host = host
        self.port = port
        self.address: Any = None
        self._path = path
        self._where = f"[{host}]" if ":" in host else host
        if port != default:
            self._where += f":{port}"
        self._masks = not tls
        self._link = link or (tls.link(host, port) if tls else tcp(host, port))
        unload("setup", "wire", "topic", "stream_websocket_upgrade")
        self._one = bytearray(1)
        self._two = bytearray(2)
        self._control = bytearray(_SHORT)  # payload of the last control frame, or of the next
        self._out = bytearray(_HEAD + _PIECE)
        self._reset()

    def _reset(self):
        self._upgrade: Any = None  # while the WebSocket is being opened
        self._read: Any = None  # of the stream below, while there is one
        self._write: Any = None
        self._why: Any = None  # the WebSocket is over: what is raised
        # Coming in: bytes of payload left in this frame, its opcode, whether it belongs to a
        # message of which more frames come, and the bytes in `_control`.
        self._stage = _FIRST
        self._left = self._kind = self._size = 0
        self._fragments = False
        # Going out: what of `_out` is not written, bytes of payload that follow from the caller's
        # buffer, whether this is a control frame, and the first byte of one that is due.
        self._at = self._end = _HEAD
        self._rest = self._due = 0
        self._mine = False

    # As a link

    def resolve(self) -> None:
        """Look the name up. May block."""
        self._link.resolve()
        self.address = self._link.address

    def connect(self) -> None:
        """Begin to connect."""
        from .stream_websocket_upgrade import Upgrade

        self._upgrade = Upgrade(self._where, self._path, not self._masks)
        self._link.connect()

    def stream(self) -> "WebSocket | None":
        """This link once the WebSocket is open, None before."""
        if not self._read:
            s = self._link.stream()
            if not s:
                return None
            self._read = s.readinto
            self._write = s.write
        if not self._upgrade.step(self._read, self._write):
            return None
        self._upgrade = None
        from .unload import unload

        unload("stream_websocket_upgrade")
        return self

    def wait(self, ms: int, out: bool) -> None:
        """Return when there is something to read, when `out` and there is room to write, or after
        `ms` milliseconds."""
        if self._upgrade and self._read:
            out = self._upgrade.unsent > 0
        self._link.wait(ms, out or self._mine or self._due > 0)

    def why(self, error: "Any") -> "Any":
        """Return the MQTTError that the link below makes of what was raised before CONNACK, None
        if it has nothing to say about it."""
        why = getattr(self._link, "why", None)
        if isinstance(error, OSError) and error.args and isinstance(error.args[0], str):
            return None  # from the upgrade, and not from below
        return why(error) if why else None

    def close(self) -> None:
        """Close the link below, without a Close frame: DISCONNECT has said all, or the connection
        is lost."""
        self._reset()
        self._link.close()

    # As a stream

    def readinto(self, buf: memoryview) -> "int | None":
        """Read payload that is there into `buf`; None when none is, 0 at the end. OSError says
        with which code the peer has closed the WebSocket, or which rule it broke."""
        if self._why:
            raise self._why
        if self._due or self._mine:
            self._flush()
        # The header by itself, so that the payload lands where it is wanted.
        while self._stage:
            part = self._one if self._stage & 1 else self._two
            n = self._read(part)
            if not n:
                return n
            self._header(part[0])
            if n > 1:
                self._header(part[1])
            if self._why or self._stage == _FIRST:  # a frame without payload
                break
        else:
            n = self._read(buf)
            if not n:
                return n
            n = self._payload(buf, n)
            if n:
                return n
        if self._why:
            raise self._why
        return None

    def write(self, buf: memoryview, off: int, n: int) -> "int | None":
        """Write some of `n` bytes of `buf` from `off` on, and return how many; None when there is
        no room for any. A frame that has begun takes its payload from the next calls, too: they
        must offer what is left."""
        if self._why:
            raise self._why
        if (self._due or self._mine) and not self._flush():
            return None
        if self._at == self._end and not self._rest:
            self._frame(buf, off, n)
        if self._at < self._end:
            n = self._write(self._out, self._at, self._end - self._at)
            if not n:
                return None
            n += self._at
            at = max(self._at, _HEAD)
            self._at = n
            if n > at:
                return n - at
            if n < self._end or not self._rest:
                return None
        n = self._write(buf, off, self._rest)
        if n:
            self._rest -= n
        return n

    # Frames going out

    def _frame(self, buf, off, n):
        """Begin a frame of `n` bytes of payload, or as many as it may have."""
        if not self._masks and n > _SHORT:
            # From where it is. A short payload is copied: that takes less than a second record.
            self._rest = n = min(n, _MOST)
            self._header_of(_FINAL | _BINARY, n)
            self._end = _HEAD
        else:
            n = min(n, _PIECE)
            self._header_of(_FINAL | _BINARY, n)
            self._fill(buf, off, n)

    def _header_of(self, first, n):
        out = self._out
        if n > _SHORT:
            self._at = 0
            out[0] = first
            out[1] = _MASKED | 126
            out[2] = n >> 8
            out[3] = n & 255
        else:
            self._at = 2
            out[2] = first
            out[3] = _MASKED | n
        if self._masks:
            n = 4
            while n < _HEAD:
                out[n] = getrandbits(8)
                n += 1

    def _fill(self, buf, off, n):
        out = self._out
        at = _HEAD
        self._end = n = n + at
        if self._masks:
            while at < n:
                out[at] = buf[off] ^ out[4 + (at & 3)]
                off += 1
                at += 1
            return
        while at < n:  # with a mask of zeros it is a copy, which is twice as fast
            out[at] = buf[off]
            off += 1
            at += 1

    def _flush(self):
        """Write the control frame that is due, if no other frame is under way. Returns whether
        data may be written."""
        if self._due and self._at == self._end and not self._rest:
            self._header_of(self._due, self._size)
            self._fill(self._control, 0, self._size)
            self._due = 0
            self._mine = True
        if self._mine:
            self._at += self._write(self._out, self._at, self._end - self._at) or 0
            self._mine = self._at < self._end
        return not self._mine

    # Frames coming in

    def _payload(self, buf, have):
        """Take bytes from the payload of a frame on, with all that follows it. Returns how many
        of them are payload for the client, at the start of `buf`."""
        at = to = 0
        while at < have and not self._why:
            if self._stage:
                self._header(buf[at])
                at += 1
                continue
            n = min(have - at, self._left)
            self._left -= n
            if self._kind & _CONTROL:
                self._keep(buf, at, n)
                at += n
            elif at == to:
                at = to = at + n
            else:
                n += at
                while at < n:
                    buf[to] = buf[at]
                    to += 1
                    at += 1
            if not self._left:
                self._ended()
        return to

    def _keep(self, buf, at, n):
        if self._kind != _PONG:
            n += at
            while at < n:
                self._control[self._size] = buf[at]
                self._size += 1
                at += 1

    def _header(self, c):
        """Take a byte of a frame's header (section 5.2)."""
        if self._stage == _FIRST:
            self._stage = _SECOND
            self._begin(c)
        elif self._stage == _SECOND:
            self._left = c
            self._stage = 0
            if c & _MASKED:
                self._fail(_PROTOCOL_ERROR, "a frame with a mask")
            elif c > _SHORT:
                self._left = 0
                self._stage = 2 if c == 126 else 8
                if self._kind & _CONTROL:
                    self._fail(_PROTOCOL_ERROR, "a control frame of more than 125 bytes")
        else:
            if self._left > _LONG:
                self._fail(_TOO_BIG, "a frame of a gigabyte or more")
            self._left = self._left << 8 | c
            self._stage -= 1
        if not (self._stage or self._left):
            self._ended()

    def _begin(self, c):
        kind = self._kind = c & 15
        if c & _RESERVED:
            self._fail(_PROTOCOL_ERROR, "a frame with reserved bits")
        elif kind == _TEXT:
            self._fail(_UNSUPPORTED, "a text frame, which is not MQTT: check the path")
        elif kind & _CONTROL:
            if kind > _PONG:
                self._fail(_PROTOCOL_ERROR, "an unknown opcode")
            elif not c & _FINAL:
                self._fail(_PROTOCOL_ERROR, "a control frame in fragments")
            elif kind != _PONG:
                # Of several pings only the last has to be answered (section 5.5.3).
                self._due = self._size = 0
        elif kind > _BINARY:
            self._fail(_PROTOCOL_ERROR, "an unknown opcode")
        elif self._fragments != (kind == _CONTINUATION):
            self._fail(_PROTOCOL_ERROR, "fragments out of order")
        else:
            self._fragments = not c & _FINAL

    def _ended(self):
        """The frame is complete."""
        if self._why:
            return
        self._stage = _FIRST
        if self._kind == _PING:
            self._due = _FINAL | _PONG
            self._flush()
        elif self._kind == _CLOSE:
            self._closed()

    def _closed(self):
        """Answer a Close frame, and have the next read say what it said."""
        text = "WebSocket closed by the peer"
        code = 0
        if self._size > 1:
            code = self._control[0] << 8 | self._control[1]
            text += f": code {code}"
            if self._size > 2:
                text += f" {str(bytes(self._control[2 : self._size]))[2:-1]}"
        # For the client it is a connection that the peer has closed, as at the end of the stream.
        self._why = OSError(errno.ECONNRESET, text)
        # Other codes may not be sent, and so not sent back (section 7.4).
        if self._size and not (1000 <= code < 1004 or 1007 <= code < 1015 or 3000 <= code < 5000):
            code = _PROTOCOL_ERROR
        self._close(code)

    def _fail(self, code, what):
        """Close the WebSocket for a rule that the peer broke."""
        if not self._why:
            self._why = OSError(f"WebSocket: the peer sent {what}")
            self._close(code)

    def _close(self, code):
        """Send a Close frame with that code, or with none if it is 0."""
        self._control[0] = code >> 8
        self._control[1] = code & 255
        self._size = 2 if code else 0
        self._due = _FINAL | _CLOSE
        self._flush()
