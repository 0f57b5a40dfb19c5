"""Load code on a board when it is needed, and let go of it.

The methods of a client that are called now and then are functions of other modules. A board
loads them with the first call. Those that are called a few times in all are not kept.
"""

import gc
import sys

from .port import MICROPYTHON, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .client import Client

_KEPT = {
    "connect": "blocking",
    "disconnect": "blocking",
    "drop": "resend",
    "ping": "connection",
    "publish_from": "pieces",
    "start": "connection",
    "wait": "blocking",
}
_LET_GO = {
    "set_credentials": "setup",
    "set_will": "setup",
    "subscribe": "requests",
    "unsubscribe": "requests",
}


def _function(module, name):
    if MICROPYTHON:
        gc.collect()  # what is loaded stays: behind garbage it would lie all over the heap
    return getattr(__import__("flatmq." + module, None, None, (name,)), name)


def method(client: "Client", name: str) -> "Any":
    """Return the method `name` of a client. AttributeError if it has none."""
    if name in _LET_GO:
        bound = _function(_LET_GO[name], "bound")(client, name)
    elif name in _KEPT:
        setattr(type(client), name, _function(_KEPT[name], name))
        bound = getattr(client, name)
    else:
        raise AttributeError(f"Client has no attribute {name!r}")
    unload("calls")
    return bound


def add_all(owner: type) -> None:
    """Make all of these functions methods of the class `owner`."""
    for names in (_KEPT, _LET_GO):
        for name in names:
            setattr(owner, name, _function(names[name], name))


def unload(*names: str) -> None:
    """Have a board forget modules that are not needed again soon."""
    if MICROPYTHON:
        for name in names:
            sys.modules.pop("flatmq." + name, None)
            if hasattr(sys.modules["flatmq"], name):
                delattr(sys.modules["flatmq"], name)
