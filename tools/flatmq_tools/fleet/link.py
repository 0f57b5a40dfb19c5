"""A link that never waits, with which thousands of clients share one loop.

A client waits by `link.wait`. This one notes for how long, and returns: the loop waits for all of
them at once, and polls the one whose socket, or time, it is.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from typing import Any

from flatmq import stream_tls_cpython
from flatmq.stream_cpython import TCP

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Link(TCP):
    """A link and its stream to `found`, an address from socket.getaddrinfo.

    The selector reports to `owner` when the socket is ready. `of_link` is what the link that this
    one is made of takes.
    """

    _reads = True  # as in stream_tls_cpython: the handshake waits for bytes from the broker

    def __init__(
        self, selector: selectors.BaseSelector, found: tuple, owner: Any, *of_link: Any
    ) -> None:
        super().__init__(*of_link)
        self.address = self._found = found
        self._selector = selector
        self._owner = owner
        self._stream: Any = None
        self._fd = -1
        self._events = 0
        self._readable = False
        self._connected = False
        self.down_until = 0.0
        """By the monotonic clock: before that nothing can be connected."""
        self.due_ms = 0
        """For how long the client had nothing to do, when it was polled last."""

    # What the client calls

    def resolve(self) -> None:
        """The name was looked up once for all."""
        self.address = self._found

    def connect(self) -> None:
        """Begin to connect."""
        if time.monotonic() < self.down_until:
            raise OSError(errno.ENETUNREACH, "drop-out")
        super().connect()
        self._watch(WRITE)

    def stream(self) -> Any:
        """Itself once it is connected, and a handshake is over."""
        self._stream = super().stream()
        if self._stream is None:
            if self._connected:
                self._watch(READ if self._reads else WRITE)
            return None
        self._watch(READ)
        self._readable = True  # what came with the end of a handshake is in no socket
        return self

    def wait(self, ms: int, out: bool) -> None:
        """Note that there is nothing to do for that long."""
        self.due_ms = ms

    def readinto(self, buf: memoryview) -> int | None:
        """Read what is there; None without a system call until the selector reports data."""
        if not self._readable:
            return None
        if self._stream is None:
            return 0
        n: int | None = self._stream.readinto(buf)
        self._readable = n == len(buf)  # else the selector reports more
        return n

    def write(self, buf: Any, off: int, n: int) -> int | None:
        """Write `n` bytes from `off` on; None when there is no room for any."""
        if self._stream is None:
            raise OSError(errno.ENOTCONN, "cut")
        taken: int | None = self._stream.write(buf, off, n)
        if taken != n:
            self._watch(READ | WRITE)
        return taken

    def close(self) -> None:
        """Close the socket."""
        self._watch(0)
        self._stream = None
        self._readable = self._connected = False
        super().close()

    # What the loop and the board call

    def ready(self, events: int) -> None:
        """Note that the selector has reported the socket as ready, and poll the client next."""
        if events & READ:
            self._readable = True
        if events & WRITE:
            if self._events == WRITE:
                self._connected = True
            else:
                self._watch(READ)

    def cut(self, seconds: float) -> None:
        """Close the socket without the client's knowledge, and refuse to connect for `seconds`."""
        self.down_until = time.monotonic() + seconds
        self.close()
        self._readable = True  # the end

    def _select(self, s: socket.socket, ms: int, out: bool, read: bool) -> list:  # type: ignore[override]
        """Return whether it is connected: the selector has said so."""
        return [s] if self._connected else []

    def _watch(self, events: int) -> None:
        """Have the selector report these events of the socket, by its number: TLS replaces it."""
        if events == self._events:
            return
        if not self._events:
            assert self.sock is not None
            self._fd = self.sock.fileno()
            self._selector.register(self._fd, events, self._owner)
        elif events:
            self._selector.modify(self._fd, events, self._owner)
        else:
            self._selector.unregister(self._fd)
        self._events = events


class TLSLink(Link, stream_tls_cpython.Link):
    """The same with TLS."""
