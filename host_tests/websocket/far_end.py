"""The far end of a WebSocket, for tests: the answer to the upgrade, and an inner link."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flatmq.stream_websocket import WebSocket
from hostile import server_frames
from hostile.framed import Below
from hostile.strict_frames import ClientFrames
from unit.fake_link import FakeStream


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
    return server_frames.frame(final << 7 | reserved << 4 | opcode, payload, width, mask)


def answer(request: bytes, **changes: bytes | None) -> bytes:
    """Return a server's answer to a request.

    `changes` replace fields, whose "-" is written as "_"; None leaves one out.
    """
    lines = request.split(b"\r\n")
    (key,) = (line.split(b": ")[1] for line in lines if line.startswith(b"Sec-WebSocket-Key: "))
    fields: dict[str, bytes | None] = {
        "Upgrade": b"websocket",
        "Connection": b"Upgrade",
        "Sec_WebSocket_Accept": server_frames.accept(key),
        "Sec_WebSocket_Protocol": b"mqtt",
        **changes,
    }
    text = b"HTTP/1.1 101 Switching Protocols\r\n"
    for name, value in fields.items():
        if value is not None:
            text += name.replace("_", "-").encode() + b": " + value + b"\r\n"
    return text + b"\r\n"


class Inner(FakeStream):
    """An inner link and its stream.

    It holds the caller to the rule of TLS streams: what was not taken is offered again, with the
    same length.

    `takes` says how many of the offered bytes one write takes, None or 0 for none. `reply` makes
    the answer to the upgrade; None leaves it to the test.
    """

    def __init__(self, reply: Callable[[bytes], bytes] | None = answer) -> None:
        super().__init__()
        self.address: object = None
        self.request = b""
        self.takes: Callable[[int], int | None] = lambda n: n
        self.closed = False
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

    def write(self, buf: memoryview, off: int, n: int) -> int | None:
        data = bytes(memoryview(buf)[off : off + n])
        assert data, "nothing was offered"
        if self._offered is not None:
            assert data == self._offered, "other bytes than those that were not taken"
        took = min(self.takes(n) or 0, n)
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

    def sent(self) -> ClientFrames:
        """The frames that were written since this was last asked; all of them must be whole."""
        sent = ClientFrames()
        sent.feed(bytes(self.written))
        assert not sent.is_cut, "half a frame"
        self.written.clear()
        return sent


def opened(inner: Inner, tls: bool = False) -> WebSocket:
    """A WebSocket through `inner` that is open."""
    link = WebSocket("broker", tls=Below(inner)) if tls else WebSocket("broker", link=inner)
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
