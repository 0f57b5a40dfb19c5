"""A peer for CPU measurements: answers a client, swallows what it sends, or floods it.

It is no broker. It runs as its own process, so that only the client's CPU time is counted, prints
its port, and ends when its standard input is closed.
The measuring script steers it over a second connection, with lines that are answered by a line
when they are done:

    sink ID            from now on answer nothing that client ID sends
    drain ID BYTES     read until so many bytes have come since; the connection ends if they do not
    spray ID N         send it N messages at QoS 0

Between two drains nothing is read and the receive buffer is small: a writer then pays for handing
its bytes to the network, not for the delivery to a reader on the same machine.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import ClassVar

from flatmq_rigs.bench.device import packets

_RECEIVE_BUFFER = 8192  # bytes
_MOST = 65536  # bytes of one read
_DRAIN_TIMEOUT = 10  # s


class Source:
    """The peer as a child process, at `port` on loopback; a context manager."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._child.stdout is not None
        self._lines = self._child.stdout
        self.port = int(self._lines.readline())

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(10)
        self._lines.close()


def _split(buffer: bytearray) -> Iterator[bytes]:
    """Take whole packets off the front of the buffer; their lengths have one byte."""
    while len(buffer) > 1 and len(buffer) >= (end := 2 + buffer[1]):
        yield bytes(buffer[:1] + buffer[2:end])
        del buffer[:end]


@functools.cache
def _spray(count: int) -> bytes:
    return packets.publish(packets.TOPICS[0], packets.PAYLOAD, 0, 0) * count


class _Connection:
    """One client, until it is gone."""

    everyone: ClassVar[dict[str, _Connection]] = {}

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.sinking = False
        self.wanted: queue.Queue[int] = queue.Queue()
        self.drained: queue.Queue[None] = queue.Queue()

    def serve(self) -> None:
        buffer = bytearray()
        while data := self.connection.recv(_MOST):
            buffer += data
            if self.sinking:
                self.sink(len(buffer))
                return
            for packet in _split(buffer):
                self.answer(packet)

    def sink(self, count: int) -> None:
        while True:
            wanted = self.wanted.get()
            while count < wanted:
                data = self.connection.recv(_MOST)
                if not data:
                    return
                count += len(data)
            self.drained.put(None)

    def answer(self, packet: bytes) -> None:
        kind = packet[0] >> 4
        if kind == 1:
            at = 1 + 2 + packet[2] + 4
            size = packet[at] << 8 | packet[at + 1]
            self.everyone[packet[at + 2 : at + 2 + size].decode()] = self
            self.connection.sendall(b"\x20\2\0\0")
        elif kind == 8:
            self.connection.sendall(b"\x90\3" + packet[1:3] + bytes((packet[-1] & 3,)))


def _obey(command: str) -> None:
    word, client_id, *arguments = command.split()
    client = _Connection.everyone[client_id]
    if word == "sink":
        client.sinking = True
    elif word == "drain":
        client.wanted.put(int(arguments[0]))
        client.drained.get(timeout=_DRAIN_TIMEOUT)
    else:
        client.connection.sendall(_spray(int(arguments[0])))


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client that exits without a goodbye resets the connection: that is the usual end.
    with connection, contextlib.suppress(ConnectionError, queue.Empty):
        first = connection.recv(1, socket.MSG_PEEK)
        if first in (b"s", b"d"):
            with connection.makefile("r") as lines:
                for line in lines:
                    _obey(line)
                    connection.sendall(b"done\n")
            return
        _Connection(connection).serve()


def main() -> None:
    """Serve until standard input is closed."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()
