"""Have MicroPython on a desk send at once, as a board does; import this before the client.

Its `socket` lacks the names of that option, so that each answer would wait 40 ms for another.
"""

import socket
import sys


class Module:
    """The module `socket`, with them."""

    TCP_NODELAY = 1
    IPPROTO_TCP = 6


for name in dir(socket):
    setattr(Module, name, getattr(socket, name))
sys.modules["socket"] = Module
