"""Publish what a board prints, while somebody listens.

    from flatmq.log import Log

    log = Log(client, b"dev/pico-1/log")
    while True:
        client.poll(100)
        log.poll()

`flatmq logs pico-1 --broker HOST` listens, and shows it.
"""

import io
import os

from . import port
from .every import Every
from .port import const, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client
    from .message import Message

_AROUND = const(12)  # bytes of a PUBLISH besides its topic name and payload
_HEAD = const(11)  # bytes: ten digits and a space
_MAXIMUM_PACKET_SIZE = const(3)  # of what the broker offers: see `v5.server`
_PIECE_MS = const(200)  # between two pieces
_LONGEST = const(3600)  # seconds that somebody may ask for at a time
_LAST = const(1073741823)


class Log(io.IOBase):
    """The last `size` bytes that were printed, as a terminal for `os.dupterm`.

    While somebody listens, they leave at QoS 0 on `topic`, at most five times a second. Each piece
    begins with ten digits and a space: the number of bytes that were printed before it. So who
    listens knows what is missing. A client listens by publishing seconds, 1 to 3600, to
    `topic`/listen, again and again; a retained message is ignored.

    ValueError if `size` is not 64 to 4096, or does not fit into the client's `tx_size`, or if the
    client's link is what is printed to. OSError if another program, such as WebREPL, uses
    `os.dupterm`. Where there is no `os.dupterm`, as on a computer, call `write`.

    Claims `size` bytes. After that, nothing allocates but the first time that somebody listens.
    """

    def __init__(self, client: "Client", topic: "bytes | str", size: int = 512) -> None:
        if type(client.link).__name__ == "USB":
            raise ValueError("link must not be the terminal: over USB, flatmq bridge shows it")
        if topic.__class__ is str:
            topic = topic.encode()
        self._topic = topic
        most = min(4096, client.room - _HEAD - len(topic) - _AROUND)
        if not 64 <= size <= most:
            raise ValueError(f"size must be 64 to {most}, not {size!r}")
        self._client = client
        self._size = size + _HEAD
        self._piece = bytearray(self._size)  # the head, and what was printed last
        self._piece[_HEAD:] = b""
        self._piece[_HEAD - 1] = 32
        self._printed = 0  # bytes before those in the piece
        self._listens = False
        self._end = port.ticks_ms()
        self._turn = Every(_PIECE_MS)
        client.subscribe(topic + b"/listen", self._listen)  # type: ignore[operator]
        if hasattr(os, "dupterm"):
            before = os.dupterm(self)
            if before is not None and not isinstance(before, Log):
                os.dupterm(before)
                raise OSError("os.dupterm is in use")

    def write(self, data: "Any") -> int:
        """Keep bytes that are printed, instead of the oldest ones."""
        try:
            self._fill(data, self._size)
        except MemoryError:  # raised to `os.dupterm`, it would end this terminal
            self._printed = self._printed + len(data)  # they are missing
        return len(data)

    def _fill(self, data, size):
        """Append bytes, of which `size` are kept, with the head."""
        piece = self._piece
        n = max(len(piece) + len(data) - size, 0)  # too many
        self._printed = self._printed + n & _LAST
        size = min(n, len(piece) - _HEAD)
        piece[_HEAD : _HEAD + size] = b""
        n -= size
        if n:  # of what is larger than there is room, the end is kept
            while n < len(data):
                piece.append(data[n])
                n += 1
        else:
            piece.extend(data)

    def readinto(self, buf: "Any") -> None:
        """Return None: nothing is typed here."""

    def ioctl(self, request: int, argument: int) -> int:
        """Return 0: there is nothing to read."""
        return 0

    def poll(self) -> None:
        """Publish a piece if it is time to, and if somebody listens. Never blocks."""
        if self._listens and self._turn.due():
            if ticks_diff(self._end, port.ticks_ms()) <= 0:
                self._listens = False
            elif len(self._piece) > _HEAD and self._client.connected:
                self._send()

    def _send(self):
        c = self._client
        piece = self._piece
        n = c.five and c.offers[_MAXIMUM_PACKET_SIZE]
        if n:
            n = min(self._size, n - _AROUND - len(self._topic))
            self._fill(b"", n)
        n = self._printed
        at = _HEAD - 1
        while at:
            at -= 1
            piece[at] = 48 + n % 10
            n //= 10
        if len(piece) > _HEAD and c.publish(self._topic, piece) is not None:
            self._fill(b"", _HEAD)

    def _listen(self, message: "Message") -> None:
        seconds = message.number()
        if seconds is not None and 1 <= seconds <= _LONGEST and not message.retain:
            self._end = ticks_add(port.ticks_ms(), seconds * 1000)
            self._listens = True
