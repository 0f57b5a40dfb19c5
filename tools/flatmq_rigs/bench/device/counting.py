"""Count the calls between a client and its socket.

`install()` before the client is imported. A poll or select by the client counts as another call.
"""

import select
import socket
import sys

WRITE = 0
READ = 1
OTHER = 2
counts = [0, 0, 0]


def reset():
    counts[:] = (0, 0, 0)


def _install_cpython():
    class Socket(socket.socket):
        def send(self, *args):
            counts[WRITE] += 1
            return super().send(*args)

        def sendall(self, *args):
            counts[WRITE] += 1
            return super().sendall(*args)

        def recv(self, *args):
            counts[READ] += 1
            return super().recv(*args)

        def recv_into(self, *args):
            counts[READ] += 1
            return super().recv_into(*args)

        def setblocking(self, flag):
            counts[OTHER] += 1
            super().setblocking(flag)

        def settimeout(self, value):
            counts[OTHER] += 1
            super().settimeout(value)

    plain = select.select

    def counted(*args):
        counts[OTHER] += 1
        return plain(*args)

    socket.socket = Socket
    select.select = counted


def _install_micropython():
    import io

    real = socket

    class Socket(io.IOBase):
        def __init__(self, *args):
            self._socket = real.socket(*args)
            self._poll = select.poll()
            self._poll.register(self._socket)

        def _write(self, name, *args):
            counts[WRITE] += 1
            return getattr(self._socket, name)(*args)

        def _read(self, name, *args):
            counts[READ] += 1
            return getattr(self._socket, name)(*args)

        def write(self, *args):
            return self._write("write", *args)

        def send(self, *args):
            return self._write("send", *args)

        def sendall(self, *args):
            return self._write("sendall", *args)

        def read(self, *args):
            return self._read("read", *args)

        def readinto(self, *args):
            return self._read("readinto", *args)

        def readline(self, *args):
            return self._read("readline", *args)

        def recv(self, *args):
            return self._read("recv", *args)

        def setblocking(self, flag):
            counts[OTHER] += 1
            self._socket.setblocking(flag)

        def settimeout(self, value):
            counts[OTHER] += 1
            self._socket.settimeout(value)

        def setsockopt(self, *args):
            self._socket.setsockopt(*args)

        def connect(self, address):
            self._socket.connect(address)

        def fileno(self):
            return self._socket.fileno()

        def close(self):
            self._socket.close()

        def ioctl(self, request, argument):
            if request == 3:  # a poll asks what is ready
                counts[OTHER] += 1
                self._poll.modify(self._socket, argument)
                for _, ready in self._poll.ipoll(0):
                    return ready
                return 0
            if request == 4:
                self._socket.close()
                return 0
            return -1

    class Module:
        def __getattr__(self, name):
            return getattr(real, name)

    module = Module()
    module.socket = Socket
    sys.modules["socket"] = sys.modules["usocket"] = module


def install():
    if sys.implementation.name == "micropython":
        _install_micropython()
    else:
        _install_cpython()
