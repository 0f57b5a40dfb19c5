"""Load rarely used code, and let go of it: the only place where a module is loaded by its name.

name      when it is loaded                                             kept
setup     Client(...), set_will, set_credentials                        no
methods   a method that is not part of the class is called              no
dial      start, the end of a connection, CONNACK                       yes
subs      subscribe, unsubscribe, SUBACK, UNSUBACK, CONNACK             while there are any
qos2      the first message at QoS 2, either way                        yes
pieces    the first message larger than the receive buffer              yes
parts     publish_from                                                  yes
aside     a peer closed the connection while messages were in flight    until they are settled
others    strays, reasons, show, ...: what is loaded for one call       no
"""

import sys

from .port import MICROPYTHON, collect

_KEPT = ("dial", "qos2", "pieces", "parts", "aside")


def load(name: str):
    """Return the module `name` of `flatmq.rare`."""
    return __import__("flatmq.rare." + name, None, None, (name,))


def drop(*names: str) -> None:
    """Let go of modules of `flatmq.rare` on a board, and collect them."""
    if MICROPYTHON:
        rare = sys.modules["flatmq.rare"]
        for name in names:
            if sys.modules.pop("flatmq.rare." + name, None) and hasattr(rare, name):
                delattr(rare, name)
    collect()
