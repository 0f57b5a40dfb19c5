"""TCP on CPython, with a link and a stream like those of `stream_tcp`."""

import errno
import os
import select
import socket
import time


class Stream:
    """A connected, non-blocking socket with the methods of a MicroPython stream."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def readinto(self, buf: bytearray) -> "int | None":
        """Read available bytes into `buf`.

        Returns their number, None if there are none, 0 at the end of the stream.
        """
        try:
            return self.sock.recv_into(buf)
        except (BlockingIOError, InterruptedError):
            return None

    def write(self, buf: memoryview, off: int, n: int) -> "int | None":
        """Write up to `n` bytes of `buf` from `off` on.

        Returns their number, None if there is no room.
        """
        try:
            # Released at once: the traceback of an error would keep `buf` from being resized.
            with memoryview(buf) as whole, whole[off : off + n] as part:
                return self.sock.send(part)
        except (BlockingIOError, InterruptedError):
            return None


class TCP:
    """A link to `host` and `port`. If a name has both, IPv4 is preferred to IPv6."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.address: tuple | None = None
        self.sock: socket.socket | None = None

    def resolve(self) -> None:
        """Look up the name. May block."""
        found = socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM)
        self.address = min(found, key=lambda a: a[0] != socket.AF_INET)

    def connect(self) -> None:
        """Begin to connect."""
        assert self.address is not None
        self.sock = s = socket.socket(self.address[0], socket.SOCK_STREAM)
        s.setblocking(False)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        error = s.connect_ex(self.address[-1])
        if error not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            raise OSError(error, os.strerror(error))

    def stream(self) -> "Stream | None":
        """Return the stream once it is connected, None before."""
        assert self.sock is not None
        if not self._select(self.sock, 0, True, False):
            return None
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        return Stream(self.sock)

    def wait(self, ms: int, out: bool) -> None:
        """Wait at most `ms` milliseconds until there is something to read.

        With `out`, room to write ends the wait too. Without a connection, wait for that
        time.
        """
        if self.sock:
            self._select(self.sock, ms, out, True)
        else:
            time.sleep(ms / 1000)

    @staticmethod
    def _select(s: socket.socket, ms: int, out: bool, read: bool) -> list:
        if hasattr(select, "poll"):  # which also takes files whose number is above 1023
            poll = select.poll()
            poll.register(s, (select.POLLIN if read else 0) | (select.POLLOUT if out else 0))
            return poll.poll(ms)
        ready = select.select([s] if read else [], [s] if out else [], [s], ms / 1000)
        return ready[0] or ready[1] or ready[2]

    def close(self) -> None:
        """Close the socket."""
        s = self.sock
        self.sock = None
        if s:
            s.close()
