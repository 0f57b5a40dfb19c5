"""The far end of a WebSocket, for tests: frames, the answer to the upgrade, and an inner link.

Written from RFC 6455 and apart from flatmq, so that a mistake in one shows in the other.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flatmq.stream_websocket import WebSocket

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Frame(NamedTuple):
    """A frame, taken apart and unmasked."""

    first: int
    mask: bytes | None
    payload: bytes


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    final: bool = True,
    reserved: int = 0,
    mask: bytes | None = None,
    width: int = 0,
) -> bytes:
    """A frame; `width` is the number of bytes of its length, chosen unless given."""
    n = len(payload)
    bit = 0x80 if mask is not None else 0
    width = width or (1 if n < 126 else 3 if n < 65536 else 9)
    size = {
        1: lambda: bytes([bit | n]),
        3: lambda: bytes([bit | 126]) + struct.pack(">H", n),
        9: lambda: bytes([bit | 127]) + struct.pack(">Q", n),
    }[width]()
    if mask is not None:
        payload = masked(payload, mask)
        size += mask
    return bytes([final << 7 | reserved << 4 | opcode]) + size + payload


def masked(payload: bytes, mask: bytes) -> bytes:
    return bytes(c ^ mask[i % 4] for i, c in enumerate(payload))


def frames(data: bytes) -> tuple[list[Frame], bytes]:
    """The whole frames at the start of `data`, and the rest."""
    found = []
    while len(data) >= 2:
        n, at = data[1] & 127, 2
        if n == 126:
            n, at = int.from_bytes(data[2:4], "big"), 4
            assert len(data) < at or n > 125, "a length longer than it must be"
        elif n == 127:
            n, at = int.from_bytes(data[2:10], "big"), 10
            assert len(data) < at or n > 65535, "a length longer than it must be"
        mask = None
        if data[1] & 0x80:
            mask = data[at : at + 4]
            at += 4
        if len(data) < at + n:
            break
        payload = data[at : at + n]
        found.append(Frame(data[0], mask, masked(payload, mask) if mask else payload))
        data = data[at + n :]
    return found, data


def answer(request: bytes, **changes: bytes | None) -> bytes:
    """Return a server's answer to a request.

    `changes` replace fields, whose "-" is written as "_"; None leaves one out.
    """
    lines = request.split(b"\r\n")
    (key,) = (line.split(b": ")[1] for line in lines if line.startswith(b"Sec-WebSocket-Key: "))
    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    fields: dict[str, bytes | None] = {
        "Upgrade": b"websocket",
        "Connection": b"Upgrade",
        "Sec_WebSocket_Accept": base64.b64encode(digest),
        "Sec_WebSocket_Protocol": b"mqtt",
        **changes,
    }
    text = b"HTTP/1.1 101 Switching Protocols\r\n"
    for name, value in fields.items():
        if value is not None:
            text += name.replace("_", "-").encode() + b": " + value + b"\r\n"
    return text + b"\r\n"


class Inner:
    """An inner link and its stream.

    It gives `incoming`, a chunk for each read, keeps what is `written`, and holds the caller
    to the rule of TLS streams: what was not taken is offered again, with the same length.

    `room` says how many of the offered bytes one write takes, None or 0 for none. `reply` makes
    the answer to the upgrade; None leaves it to the test.
    """

    def __init__(self, reply: Callable[[bytes], bytes] | None = answer) -> None:
        self.address: object = None
        self.incoming: deque[bytes] = deque()
        self.written = bytearray()
        self.request = b""
        self.room: Callable[[int], int | None] = lambda n: n
        self.ended = self.closed = False
        self.waits: list[bool] = []
        self._reply = reply
        self._offered: bytes | None = None

    def resolve(self) -> None:
        self.address = "there"

    def connect(self) -> None:
        self.closed = False
        self._offered = None

    def stream(self) -> Inner:
        return self

    def wait(self, ms: int, out: bool) -> None:
        self.waits.append(out)

    def close(self) -> None:
        self.closed = True

    def readinto(self, buf: memoryview) -> int | None:
        if not self.incoming:
            return 0 if self.ended else None
        chunk = self.incoming.popleft()
        n = min(len(chunk), len(buf))
        buf[:n] = chunk[:n]
        if n < len(chunk):
            self.incoming.appendleft(chunk[n:])
        return n

    def write(self, buf: memoryview, off: int, n: int) -> int | None:
        data = bytes(memoryview(buf)[off : off + n])
        assert data, "nothing was offered"
        if self._offered is not None:
            assert data == self._offered, "other bytes than those that were not taken"
        took = min(self.room(n) or 0, n)
        self._offered = data[took:] or None
        self.written += data[:took]
        if not self.request and self.written.endswith(b"\r\n\r\n"):
            self.request = bytes(self.written)
            self.written.clear()
            if self._reply:
                self.incoming.append(self._reply(self.request))
        return took or None

    def mend(self) -> None:
        """Answer the next upgrade as a server does, whatever this one did before."""
        self.request = b""
        self._reply = answer
        self.ended = False
        self.incoming.clear()
        self.written.clear()

    def sent(self) -> list[Frame]:
        """The frames that were written since this was last asked; all of them must be whole."""
        found, rest = frames(bytes(self.written))
        assert not rest, "half a frame"
        self.written.clear()
        return found


class ZeroMask:
    """A replacement for `tls` of a WebSocket, without TLS: its frames have a mask of zeros."""

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def link(self, host: str, port: int) -> object:
        return self._inner


def opened(inner: Inner, tls: bool = False) -> WebSocket:
    """A WebSocket through `inner` that is open."""
    link = WebSocket("broker", tls=ZeroMask(inner)) if tls else WebSocket("broker", link=inner)
    link.resolve()
    link.connect()
    assert link.stream() is link
    return link


def cut(data: bytes, sizes: Iterator[int]) -> Iterator[bytes]:
    """The bytes in chunks of these sizes, and the rest as the last one."""
    at = 0
    while at < len(data):
        n = next(sizes, len(data))
        yield data[at : at + n]
        at += n
