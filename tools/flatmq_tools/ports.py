"""TCP ports of loopback for brokers that are started here."""

from __future__ import annotations

import socket
import sys

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A TCP port that nothing on loopback listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class HeldPort:
    """A TCP port that stays a server's own while the server is down, until `release`.

    Linux gives no connection, and nobody who asks for any free port, a port that a socket is
    bound to; a server with SO_REUSEADDR may listen on it, as no socket does so yet. Elsewhere the
    server could not: there the port is only chosen.
    """

    def __init__(self, port: int = 0) -> None:
        """Hold `port`, or a free one for 0. Raises OSError if something listens on it."""
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((LOOPBACK, port))
            self.number = int(self._socket.getsockname()[1])
        except OSError:
            self._socket.close()
            raise
        if sys.platform != "linux":
            self._socket.close()

    def release(self) -> None:
        """Give it back; may be called again."""
        self._socket.close()
