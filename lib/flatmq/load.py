"""Load rarely used code, and let go of it: the only place where a module is loaded by its name.

name      when it is loaded                                             kept
setup     Client(...)                                                   no
methods   a method that is not part of the class is called              no
dial      the first connection                                          yes
subs      the first subscription                                        yes
several   the first message that several subscriptions match            yes
qos2      the first message at QoS 2, either way                        yes
pieces    the first message larger than the receive buffer              yes
parts     the first publish_from; so are waiting, bulk for theirs       yes
aside     a peer closed the connection while messages were in flight    until they are settled
others    saying, strays, reasons, ...: what is loaded for one call     no
"""

import sys

from .port import MICROPYTHON, collect, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

# Modules that are kept if one of these holds them.
_USERS = {
    "wire": ("parts", "senml", "stream_uart", "v5_alias", "v5_auth", "replies"),
}


def load(name: str, package: str = "rare") -> "Any":
    """Return the module `name` of `flatmq.rare`, or of another package."""
    return __import__("flatmq." + package + "." + name, None, None, (name,))


def drop(*names: str) -> None:
    """Let go of modules on a board, and collect them.

    A module that another one still holds is kept: otherwise it would be loaded twice.
    """
    if MICROPYTHON:
        for name in names:
            for user in _USERS.get(name, ()):
                if "flatmq." + user in sys.modules or "flatmq.rare." + user in sys.modules:
                    break
            else:
                for package in ("flatmq", "flatmq.rare", "flatmq.v5"):
                    if sys.modules.pop(package + "." + name, None):
                        holder = sys.modules[package]
                        if hasattr(holder, name):
                            delattr(holder, name)
    collect()
