"""A link that never waits, with which thousands of clients share one loop.

A client waits by `link.wait`. This one notes for how long, and returns: the loop waits for all of
them at once, and polls the one whose socket, or time, it is.
"""

from __future__ import annotations

import errno
import selectors
import socket
import ssl
import time
from typing import Any

from flatmq import MQTTError
from flatmq.stream_tls_cpython import of_openssl

from ..trust import Context, PinError

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class Link:
    """A link and its stream to `address`, an address from socket.getaddrinfo.

    The selector reports to `owner` when the socket is ready.
    """

    def __init__(self, selector: selectors.BaseSelector, address: tuple, owner: Any) -> None:
        self.address: tuple | None = address
        self._found = address
        self._selector = selector
        self._owner = owner
        self._sock: socket.socket | None = None
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
        family, _, _, _, where = self._found
        self._sock = sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error = sock.connect_ex(where)
        if error not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(error, "connect")
        self._events = WRITE
        self._selector.register(sock, WRITE, self._owner)

    def stream(self) -> Link | None:
        """Itself once it is connected."""
        if not self._connected:
            return None
        assert self._sock is not None
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, "connect")
        self._watch(READ)
        return self

    def wait(self, ms: int, out: bool) -> None:
        """Note that there is nothing to do for that long."""
        self.due_ms = ms

    def readinto(self, buf: memoryview) -> int | None:
        """Read what is there; None without a system call until the selector reports data."""
        if not self._readable:
            return None
        if self._sock is None:
            return 0
        try:
            n = self._sock.recv_into(buf)
        except (BlockingIOError, InterruptedError):
            n = -1
        self._readable = n == len(buf)  # else the selector reports more
        return None if n < 0 else n

    def write(self, buf: Any, off: int, n: int) -> int | None:
        """Write `n` bytes from `off` on; None when there is no room for any."""
        if self._sock is None:
            raise OSError(errno.ENOTCONN, "cut")
        taken: int | None
        try:
            taken = self._sock.send(memoryview(buf)[off : off + n])
        except (BlockingIOError, InterruptedError):
            taken = None
        if taken != n:
            self._watch(READ | WRITE)
        return taken

    def close(self) -> None:
        """Close the socket."""
        sock = self._sock
        self._sock = None
        self._readable = self._connected = False
        if sock is not None:
            if self._events:
                self._selector.unregister(sock)
                self._events = 0
            sock.close()

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

    def _watch(self, events: int) -> None:
        if events != self._events:
            assert self._sock is not None
            self._selector.modify(self._sock, events, self._owner)
            self._events = events


class TLSLink(Link):
    """A link with TLS.

    `tls` says how to verify the certificate of the broker, which must be for the name `host`.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        address: tuple,
        owner: Any,
        tls: ssl.SSLContext,
        host: str,
    ) -> None:
        super().__init__(selector, address, owner)
        self._context = tls
        self._host = host
        self._has_cert = isinstance(tls, Context) and tls.has_cert
        self._tls: ssl.SSLSocket | None = None
        self._secured = False
        self._stage = ""  # as in stream_tls_cpython
        self._answered = False  # the broker had answered when the handshake failed

    def connect(self) -> None:
        """Begin to connect."""
        self._stage = ""
        self._answered = False
        super().connect()

    def why(self, error: Any) -> MQTTError | None:
        """Return what was wrong with TLS when `error` was raised, None if something else was."""
        if not self._stage or not isinstance(error, Exception):
            return None
        where = f"{self._host}:{self._found[4][1]}"
        if isinstance(error, PinError):
            return MQTTError("tls", f"TLS {where}: {error}")
        return of_openssl(error, self._stage, self._answered, self._has_cert, self._host, where)

    def stream(self) -> Link | None:
        """Itself once the handshake is over."""
        if self._tls is None:
            if super().stream() is None:
                return None
            assert self._sock is not None
            self._selector.unregister(self._sock)
            self._events = 0
            self._stage = "handshake"
            try:
                self._sock = self._tls = self._context.wrap_socket(
                    self._sock, server_hostname=self._host, do_handshake_on_connect=False
                )
            except ValueError as error:  # a name that no certificate can have
                raise OSError(str(error)) from error
            self._events = READ
            self._selector.register(self._tls, READ, self._owner)
        if not self._secured:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._watch(READ)
                return None
            except ssl.SSLWantWriteError:
                self._watch(WRITE)
                return None
            except OSError:
                self._answered = self._tls.cipher() is not None
                raise
            self._secured = True
            self._stage = "greeting"
            self._watch(READ)
            self._readable = True  # what came with the end of the handshake is in no socket
        return self

    def readinto(self, buf: memoryview) -> int | None:
        """Read what is there, until there is no more, or no room.

        The selector does not know of records that were read already.
        """
        if not self._readable or self._sock is None:
            return super().readinto(buf)
        have = 0
        try:
            while have < len(buf):
                n = self._sock.recv_into(buf[have:])
                if not n:
                    return have
                have += n
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._readable = False
        return have or None

    def write(self, buf: Any, off: int, n: int) -> int | None:
        """Write `n` bytes from `off` on; None when there is no room for any."""
        try:
            return super().write(buf, off, n)
        except ssl.SSLWantWriteError:
            self._watch(READ | WRITE)
        except ssl.SSLWantReadError:
            self._watch(READ)
        return None

    def close(self) -> None:
        """Close the socket."""
        self._tls = None
        self._secured = False
        super().close()
