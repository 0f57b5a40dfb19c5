"""A serial port, or whatever pyserial has a URL for, read and written by threads of its own."""

from __future__ import annotations

import asyncio
import queue
import socket
import threading
from collections.abc import Callable

import serial

from ..errors import ToolError

_LOOK = 0.2  # seconds between two looks at whether the line is to be closed
_STUCK = 5.0  # seconds that a write may take
# Another machine that has lost its power closes no connection: it is noticed after a minute.
_WATCH = {
    "TCP_KEEPIDLE": 30,  # s,
    "TCP_KEEPALIVE": 30,  # its name in macOS
    "TCP_KEEPINTVL": 10,  # s
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 60_000,  # ms
}


class LineError(ToolError):
    """The line cannot be opened; the text says why."""


def watch(port: serial.SerialBase) -> None:
    """Have an open port end with an error if it is a connection whose other end has vanished."""
    connection = getattr(port, "_socket", None)  # pyserial has no other way
    if isinstance(connection, socket.socket):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _WATCH.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Line:
    """An open line, which reports to two callbacks in the event loop.

    `received` gets bytes; `lost` is called once, with the reason, when the line ends by
    itself.
    """

    def __init__(
        self, url: str, baud: int, received: Callable[[bytes], None], lost: Callable[[str], None]
    ) -> None:
        """Open it, which may block. Raises LineError when it cannot."""
        try:
            self._port = serial.serial_for_url(url, do_not_open=True)
            self._port.baudrate = baud
            self._port.timeout = _LOOK
            if not url.startswith("rfc2217:"):  # it has none to set; its socket has 5 s
                self._port.write_timeout = _STUCK
            if "://" not in url:
                self._port.exclusive = True
            self._port.open()
            watch(self._port)
        except Exception as error:  # pyserial lets much through when a device goes
            raise LineError(str(error.args[-1] if error.args else error)) from error
        self._received = received
        self._lost = lost
        self._closed = False
        self._writes: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read from now on."""
        self._loop = loop
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (self._read, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def write(self, data: bytes) -> None:
        """Write it, in its turn."""
        self._writes.put(data)

    def close(self) -> None:
        """End it; nothing is called any more. May block for a moment."""
        self._closed = True
        self._writes.put(None)
        for thread in self._threads:
            thread.join()
        self._port.close()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._tell(self._on_lost, str(error) or type(error).__name__)

    def _read(self) -> None:
        while not self._closed:
            data = self._port.read(1)
            if data:
                waiting = self._port.in_waiting
                self._tell(self._on_data, data + (self._port.read(waiting) if waiting else b""))

    def _write(self) -> None:
        for data in iter(self._writes.get, None):
            self._port.write(data)

    def _tell(self, what: Callable, argument: object) -> None:
        if not self._closed:
            self._loop.call_soon_threadsafe(what, argument)

    def _on_data(self, data: bytes) -> None:
        if not self._closed:
            self._received(data)

    def _on_lost(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self._lost(reason)
