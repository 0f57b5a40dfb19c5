"""Load the methods of a client that are called now and then.

They are functions of other modules. A board loads them with the first call. Those that are called
a few times in all are not kept.
"""

from .port import collect, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .client import Client

MODULES = {
    "connect": "blocking",
    "disconnect": "blocking",
    "drop": "resend",
    "ping": "connection",
    "publish_from": "pieces",
    "queue": "bulk",
    "set_credentials": "setup",
    "set_will": "setup",
    "start": "connection",
    "subscribe": "subscribing",
    "unsubscribe": "subscribing",
    "wait": "connection",
}


def make(args: tuple, options: dict) -> "Client":
    """Return a client of the class for its version, with these arguments of `Client`."""
    if options["version"] in (5, None):
        # By a computed name: MQTT 5 is a package of its own.
        return __import__("flatmq." + "v5", None, None, ("new",)).new(args, options)
    from .client import Client

    return object.__new__(Client)


def method(client: "Client | None", name: str, modules: "dict[str, str]" = MODULES) -> "Any":
    """Return the method `name` of a client; without one, the function. AttributeError if there is
    none. `modules` says where they are. A module with a function `bound` is not kept."""
    if name not in modules:
        raise AttributeError(f"Client has no attribute {name!r}")
    collect()  # what is loaded stays: behind garbage it would lie all over the heap
    module = __import__("flatmq." + modules[name], None, None, (name,))
    if client is None:
        return getattr(module, name)
    from .unload import unload

    unload("calls")
    if hasattr(module, "bound"):
        return module.bound(client, name)
    setattr(type(client), name, getattr(module, name))
    return getattr(client, name)
