"""Receive everything in bulk, in a program on CPython, on top of `Client.bulk` and `gate`.

The program takes PUBLISH packets as they came, many per call, whatever their topic names and
properties. It may stop reading for a while, and the broker then keeps the messages. Messages that
it does not take in bulk, and those larger than `rx_size`, go to `on_message`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import Client
from .message import Message
from .rare.pieces import Pieces
from .v5 import Client5
from .v5.pieces import Pieces as Pieces5
from .v5.walk import number
from .wire import put_length

_PROPERTIES = 40  # see `reasons`
_PAUSE_MS = 20  # between two calls of `reads` while nothing is read


def take_in_bulk(
    client: Client | Client5,
    take: Callable[[bytearray, int, int], int],
    reads: Callable[[], bool] = lambda: True,
) -> None:
    """Make a client offer incoming packets to `take`, and the rest to `on_message`.

    Call this before the first `subscribe` and before `start`.

    take    takes whole packets, like `Client.bulk`: `take(buf, at, end)`
    reads   called before each read. It returns False to read nothing now, so that the broker has
            to wait. The connection stays open: PINGREQs are sent, and unread answers do not end it

    A message goes to `on_message` once, however many filters it matches. Of one that comes in
    pieces, the properties are the beginning of the payload, and neither they nor the topic name
    are checked. Subscriptions have no identifier, because each message would carry it. Handlers
    passed to `subscribe` are never called. Any number of QoS 2 messages may be in flight without
    slowing the client down.
    """
    client.bulk = take
    client.received = _Identifiers(client.incoming)
    client.link = _Link(client.link, reads)
    if client.message is None:
        Message(client.rx, client)
    (_Pieces5 if isinstance(client, Client5) else _Pieces)(client)


def head_of(m: Message, is_long: bool = False) -> bytearray:
    """Return a PUBLISH as it came, up to its payload.

    For a message that comes in pieces, its Remaining Length is that of the whole message.
    `is_long` is `client.pieces.long`: the payload begins with the topic name.
    """
    if m.size:
        head = bytes(m.buf[:2]) if is_long else len(m.topic).to_bytes(2, "big") + m.topic
        if m.qos and not is_long:
            head += m.id.to_bytes(2, "big")
    else:
        head = bytes(m.buf[m.t : m.at])
    whole = bytearray((m.first,))
    put_length(whole, len(head) + m.total)
    whole += head
    return whole


class _Pieces(Pieces):
    """Messages larger than the buffer, with any topic name."""

    def begin(self, at: int, have: int) -> Any:
        n = super().begin(at, have)
        self.blind = False
        return n

    def call(self) -> object:
        if not self.long:
            return super().call()
        self.taken = True
        return self.client.on_message(self.message)  # type: ignore[misc]


class _Pieces5(_Pieces, Pieces5):
    """The same, with any properties."""

    def _carried(self, at: int, n: int, have: int) -> int:
        m = self.message
        if n + 4 <= at + len(m.buf) // 2 - 1:
            size = number(m.buf, n, have)
            if size < 0:
                return -_PROPERTIES if n + 4 <= have else 0
            if n + 1 + (size & 3) + (size >> 2) > m.end:
                return -_PROPERTIES
        self.keep(n)
        return n


class _Identifiers(list[int]):
    """The packet identifiers of received QoS 2 messages, as a client keeps them.

    Each free place has 0. A look-up takes constant time, even with the thousands of a broker
    without a limit.
    """

    def __init__(self, size: int) -> None:
        super().__init__([0] * size)
        self._at: dict[int, int] = {}
        self._free = list(range(size - 1, -1, -1))

    def __contains__(self, pid: object) -> bool:
        return pid in self._at if pid else bool(self._free)

    def index(self, pid: int, *_: Any) -> int:
        return self._at[pid] if pid else self._free[-1]

    def __setitem__(self, i: Any, pid: Any) -> None:
        old = self[i]
        if old:
            del self._at[old]
            self._free.append(i)
        if pid:
            self._at[pid] = i
            self._free.remove(i) if self._free[-1] != i else self._free.pop()
        super().__setitem__(i, pid)

    def append(self, free: int) -> None:
        """Append a free place."""
        self._free.append(len(self))
        super().append(free)


class _Stream:
    """A stream that reads only while the program allows it."""

    def __init__(self, stream: Any, link: _Link) -> None:
        self.write = stream.write
        self._readinto = stream.readinto
        self._link = link

    def readinto(self, buf: Any) -> int | None:
        if self._link.rests():
            return False
        return self._readinto(buf)


class _Link:
    """A link whose streams are `_Stream` objects."""

    def __init__(self, link: Any, reads: Callable[[], bool]) -> None:
        self._link = link
        self._reads = reads
        self._resting = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    @property
    def address(self) -> Any:
        """The address of the broker; None if it must be looked up."""
        return self._link.address

    @address.setter
    def address(self, address: Any) -> None:
        self._link.address = address

    def stream(self) -> _Stream | None:
        """Return the stream once it is connected, None before."""
        stream = self._link.stream()
        return _Stream(stream, self) if stream else None

    def rests(self) -> bool:
        """Return whether nothing is to be read now."""
        self._resting = not self._reads()
        return self._resting

    def wait(self, ms: int, out: bool) -> None:
        """Wait as the link does, but ignore incoming bytes while nothing is to be read."""
        if self._resting:
            time.sleep(min(ms, _PAUSE_MS) / 1000)
        else:
            self._link.wait(ms, out)

    def close(self) -> None:
        """Close the link."""
        self._resting = False
        self._link.close()
