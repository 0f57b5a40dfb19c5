"""A CircuitPython-like socket over MicroPython's: `recv_into` instead of `readinto`."""

import errno
import socket


class Socket:
    def __init__(self):
        self._socket = socket.socket()
        self.send = self._socket.send
        self.close = self._socket.close
        self.settimeout = self._socket.settimeout

    def connect(self, host, port):
        self._socket.connect(socket.getaddrinfo(host, port)[0][-1])

    def recv_into(self, into, size):
        count = self._socket.readinto(into, size)
        if count is None:
            raise OSError(errno.ETIMEDOUT)
        return count
