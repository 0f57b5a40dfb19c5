"""Count the calls between a client and its socket.

`install()` before the client is imported. A poll or select by the client counts as another call.
"""

import select
import socket
import sys

WRITE = 0
READ = 1
OTHER = 2
# What is counted, and what is only passed on.
CALLS = {
    "write": WRITE, "send": WRITE, "sendall": WRITE,
    "read": READ, "readinto": READ, "readline": READ, "recv": READ, "recv_into": READ,
    "setblocking": OTHER, "settimeout": OTHER,
    "setsockopt": None, "connect": None, "fileno": None, "close": None,
}  # fmt: skip
counts = [0, 0, 0]


def reset():
    counts[:] = (0, 0, 0)


def _counted(function, kind):
    def call(*args):
        if kind is not None:
            counts[kind] += 1
        return function(*args)

    return call


def install():
    import io

    real = socket

    class Socket(io.IOBase):
        def __init__(self, *args):
            self._socket = real.socket(*args)
            self._poll = select.poll()
            self._poll.register(self._socket)
            for name, kind in CALLS.items():
                if hasattr(self._socket, name):
                    setattr(self, name, _counted(getattr(self._socket, name), kind))

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
