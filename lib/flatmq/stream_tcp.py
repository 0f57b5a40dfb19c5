"""TCP on MicroPython. The stream is the socket itself, which reads and writes without allocating.

A link for the client has `address` (None until the name is looked up), `resolve()` (may block),
`connect()` (begins to connect), `stream()` (None until connected), `wait(ms, out)` and `close()`.
All except `wait` may raise OSError. If it has `accepted()`, that is called at CONNACK. The stream
has `readinto(buf)` and `write(buf, off, n)`, which return the number of bytes, or None if they
would have to wait, and may raise OSError.
"""

import errno
import select
import socket
import time

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


class TCP:
    """A link to `host` and `port`. If a name has both, IPv4 is preferred to IPv6."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.address: Any = None
        self.socket: Any = None
        self.poll: Any = None
        self.out: Any = None

    def resolve(self) -> None:
        """Look up the name. Blocks, on every port of MicroPython."""
        found = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
        for a in found:
            if a[0] == socket.AF_INET:
                break
        else:
            a = found[0]
        self.address = a

    def connect(self) -> None:
        """Begin to connect."""
        a = self.address
        self.socket = s = socket.socket(a[0], socket.SOCK_STREAM)
        s.setblocking(False)
        if hasattr(socket, "TCP_NODELAY"):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            s.connect(a[-1])
        except OSError as e:
            if e.errno != errno.EINPROGRESS:
                raise
        self.poll = select.poll()
        self.poll.register(s, select.POLLOUT)
        self.out = None

    def stream(self):
        """Return the socket once it is connected, None before."""
        for _, event in self.poll.ipoll(0):
            if event & (select.POLLERR | select.POLLHUP):
                raise OSError(errno.ECONNREFUSED)
            return self.socket
        return None

    def wait(self, ms: int, out: bool) -> None:
        """Wait at most `ms` milliseconds until there is something to read.

        With `out`, room to write ends the wait too. Without a connection, wait for that
        time.
        """
        if not self.socket:
            time.sleep_ms(ms)
            return
        if out != self.out:
            self.out = out
            self.poll.modify(self.socket, select.POLLIN | select.POLLOUT if out else select.POLLIN)
        self.poll.ipoll(ms)

    def close(self) -> None:
        """Close the socket, and forget it."""
        s = self.socket
        self.socket = self.poll = None
        if s:
            s.close()
