"""MQTT over WebSocket (RFC 6455), as a link of the client: see docs/websocket.md.

    client = Client(b"pico-1", link=WebSocket("broker", 443, "/mqtt", tls=TLS(ca=...)))

The link goes through another one, TCP or TLS, and is its own stream. Once connected, nothing is
allocated.
"""

import errno
from struct import pack_into

from .port import MICROPYTHON, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

# A native reader of masked frames. What takes a mask off also puts it on: the header and the
# payload of a frame go through it, and the payload comes out masked.
if MICROPYTHON:
    from random import getrandbits

    from micropython import RingIO

    from .stream_tcp import TCP

    try:
        from websocket import websocket
    except ImportError:  # firmware without a network of its own
        from .stream_websocket_masks import websocket  # type: ignore[assignment]
else:
    from secrets import randbits as getrandbits

    from .stream_cpython import TCP
    from .stream_websocket_masks import RingIO, websocket

# The header of an outgoing frame has up to 8 bytes, directly before the payload.
_HEAD = const(8)
_PIECE = const(256)  # most bytes of payload in a masked frame
_SHORT = const(125)  # most bytes of payload without an extended length in the header
_MOST = const(65535)

# The part of an incoming frame that comes next: the first byte of its header, the second, then the
# number of length bytes still missing, or 0 for payload.
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

_LONG = const(0x3FFFFF)  # a longer length, with 8 more bits, would not be a small int

# Close codes (section 7.4.1).
_PROTOCOL_ERROR = const(1002)
_UNSUPPORTED = const(1003)
_TOO_BIG = const(1009)


class WebSocket:
    """A link to the WebSocket at `path` on a host.

    host     name or address, str
    port     1 to 65,535; None: 80, or 443 with `tls`
    path     path of the request, with its query if there is one; str, ASCII
    tls      a `stream_tls.TLS`, or None; its `link(host, port)` is called once
    link     a link of your own to go through, instead of TCP

    Without `tls` every frame has its own random mask. With `tls` the mask is zero: masks protect
    proxies that read the bytes, and through TLS no proxy can. `resolve`, `connect` and `stream`
    may raise OSError, and ValueError if TLS does. ValueError and TypeError name the argument that
    broke its rule.
    """

    def __init__(
        self,
        host: str,
        port: "int | None" = None,
        path: str = "/mqtt",
        tls: "Any" = None,
        link: "Any" = None,
    ) -> None:
        from .port import drop
        from .stream_websocket_upgrade import check
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
        self._link = link or (tls.link(host, port) if tls else TCP(host, port))
        drop("wire", "stream_websocket_upgrade")
        self._one = bytearray(1)
        self._two = bytearray(2)
        self._control = bytearray(_SHORT)  # payload of the last control frame, or of the answer
        self._out = bytearray(_HEAD + _PIECE)
        self._into = memoryview(self._out)[_HEAD:]
        self._ring: Any = RingIO(_HEAD + _PIECE)  # what the reader of masked frames reads
        self._reset()

    def _reset(self):
        self._upgrade: Any = None  # Upgrade, while the WebSocket is being opened
        self._read: Any = None  # readinto and write of the stream below, while there is one
        self._write: Any = None
        self._why: Any = None  # the exception to raise, once the WebSocket has ended
        # Incoming: bytes of payload left in this frame, its opcode, the bytes in `_control`, and
        # whether more frames of the same message follow.
        self._stage = _FIRST
        self._left = self._kind = self._size = 0
        self._fragments = False
        # Outgoing: the part of `_out` not yet written, bytes of payload that follow from the
        # caller's buffer, the first byte of a control frame that is due, and whether this is one.
        self._at = self._end = _HEAD
        self._rest = self._due = 0
        self._mine = False

    # The link

    def resolve(self) -> None:
        """Look up the name. May block."""
        self._link.resolve()
        self.address = self._link.address

    def connect(self) -> None:
        """Begin to connect."""
        from .stream_websocket_upgrade import Upgrade

        self._upgrade = Upgrade(self._where, self._path, not self._masks)
        self._ring.readinto(self._out)  # Ctrl-C may have left something
        self._mask = websocket(self._ring).readinto
        self._link.connect()

    def stream(self) -> "WebSocket | None":
        """Return this link once the WebSocket is open, None before."""
        if not self._read:
            s = self._link.stream()
            if not s:
                return None
            self._read = s.readinto
            self._write = s.write
        if not self._upgrade.step(self._read, self._write):
            return None
        self._upgrade = None
        from .port import drop

        drop("stream_websocket_upgrade")
        return self

    def wait(self, ms: int, out: bool) -> None:
        """Wait at most `ms` milliseconds until there is something to read.

        With `out`, room to write ends the wait too.
        """
        if self._upgrade and self._read:
            out = self._upgrade.unsent > 0
        self._link.wait(ms, out or self._mine or self._due > 0)

    def why(self, error: "Any") -> "Any":
        """Return the inner link's explanation of an exception raised before CONNACK, or None."""
        why = getattr(self._link, "why", None)
        if isinstance(error, OSError) and error.args and isinstance(error.args[0], str):
            return None  # raised by the upgrade, not by the link below
        return why(error) if why else None

    def accepted(self) -> None:
        """Let the link below know that the broker has accepted the connection."""
        accepted = getattr(self._link, "accepted", None)
        if accepted:
            accepted()

    def close(self) -> None:
        """Close the link below, without a Close frame.

        DISCONNECT was sent, or the connection is lost.
        """
        self._reset()
        self._link.close()

    # The stream

    def readinto(self, buf: memoryview) -> "int | None":
        """Read available payload into `buf`.

        Returns its size, None if there is none, 0 at the end of the stream. OSError gives
        the code with which the peer closed the WebSocket, or the rule that it broke.
        """
        if self._why:
            raise self._why
        if self._due or self._mine:
            self._flush()
        # The header is read separately, so that the payload goes straight to its place.
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
        """Write up to `n` bytes of `buf` from `off` on.

        Returns their number, None if there is no room. A frame that has begun also takes
        its payload from the next calls, which must offer the rest of it.
        """
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

    # Outgoing frames

    def _frame(self, buf, off, n):
        """Begin a frame with `n` bytes of payload, or with as many as it may have."""
        if self._masks or n <= _SHORT:
            self._fill(buf, off, n if n < _PIECE else _PIECE)
        else:
            # Not copied. A short payload is: that costs less than a second TLS record.
            self._rest = n = min(n, _MOST)
            self._header_of(n)
            self._end = _HEAD

    def _header_of(self, n):
        out = self._out
        if n > _SHORT:
            self._at = 0
            out[0] = _FINAL | _BINARY
            out[1] = _MASKED | 126
            out[2] = n >> 8
            out[3] = n & 255
        else:
            self._at = 2
            out[2] = _FINAL | _BINARY
            out[3] = _MASKED | n
        if self._masks:
            pack_into("HH", out, 4, getrandbits(16), getrandbits(16))

    def _fill(self, buf, off, n):
        """Make a frame with `n` bytes of payload."""
        self._header_of(n)
        self._end = _HEAD + n
        if n:
            self._ring.write(self._out, self._at, _HEAD - self._at)
            self._ring.write(buf, off, n)
            self._mask(self._into, n)

    def _flush(self):
        """Write the control frame that is due, unless another frame has begun.

        Returns whether data may be written.
        """
        if self._due and self._at == self._end and not self._rest:
            self._fill(self._control, 0, self._size)
            self._out[self._at] = self._due
            self._due = 0
            self._mine = True
        if self._mine:
            self._at += self._write(self._out, self._at, self._end - self._at) or 0
            self._mine = self._at < self._end
        return not self._mine

    # Incoming frames

    def _payload(self, buf, have):
        """Take in bytes, from the payload of a frame on, with everything behind it.

        Moves payload for the client to the start of `buf`, and returns its size.
        """
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
        """Take in a byte of a frame's header (section 5.2)."""
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
                # Only the last of several pings must be answered (section 5.5.3).
                self._due = self._size = 0
        elif kind > _BINARY:
            self._fail(_PROTOCOL_ERROR, "an unknown opcode")
        elif self._fragments != (kind == _CONTINUATION):
            self._fail(_PROTOCOL_ERROR, "fragments out of order")
        else:
            self._fragments = not c & _FINAL

    def _ended(self):
        """Handle the end of a frame."""
        if self._why:
            return
        self._stage = _FIRST
        if self._kind == _PING:
            self._due = _FINAL | _PONG
            self._flush()
        elif self._kind == _CLOSE:
            self._closed()

    def _closed(self):
        """Answer a Close frame, and let the next read report its contents."""
        text = "WebSocket closed by the peer"
        code = 0
        if self._size > 1:
            code = self._control[0] << 8 | self._control[1]
            text += f": code {code}"
            if self._size > 2:
                text += f" {str(bytes(self._control[2 : self._size]))[2:-1]}"
        # The client handles this like the end of the stream: the peer has closed the connection.
        self._why = OSError(errno.ECONNRESET, text)
        # Other codes must not be sent, so they are not sent back (section 7.4).
        if self._size and not (1000 <= code < 1004 or 1007 <= code < 1015 or 3000 <= code < 5000):
            code = _PROTOCOL_ERROR
        self._close(code)

    def _fail(self, code, what):
        """Close the WebSocket because the peer broke a rule."""
        if not self._why:
            self._why = OSError(f"WebSocket: the peer sent {what}")
            self._close(code)

    def _close(self, code):
        """Send a Close frame with this code, or without a code if it is 0."""
        self._control[0] = code >> 8
        self._control[1] = code & 255
        self._size = 2 if code else 0
        self._due = _FINAL | _CLOSE
        self._flush()
