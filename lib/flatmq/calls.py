"""Load the rarely called methods of a client.

They are functions in other modules. A board loads each with its first call. Those that a program
calls only a few times are not kept.
"""

from .port import collect, const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .v5_client import Client

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
    """Return a client of the class for its version. `args` and `options` are those of `Client`."""
    if options["version"] in (5, None):
        # By a computed name: MQTT 5 is a package of its own.
        return __import__("flatmq." + "v5", None, None, ("new",)).new(args, options)
    from .v5_client import Client

    return object.__new__(Client)


def method(client: "Client | None", name: str, modules: "dict[str, str]" = MODULES) -> "Any":
    """Return the method `name` of a client, or, without a client, the function.

    `modules` maps names to modules; a module with a function `bound` is not kept.
    AttributeError for an unknown name.
    """
    if name not in modules:
        raise AttributeError(f"Client has no attribute {name!r}")
    collect()  # loaded code stays, and behind garbage it would be scattered over the heap
    module = __import__("flatmq." + modules[name], None, None, (name,))
    if client is None:
        return getattr(module, name)
    from .unload import unload

    unload("calls")
    if hasattr(module, "bound"):
        return module.bound(client, name)
    setattr(type(client), name, getattr(module, name))
    return getattr(client, name)
