"""The methods of a client that are loaded when they are called."""

from ..port import const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..client import Client

MODULES = {
    "abandon": "connecting",
    "awaits": "waiting",
    "connect": "connecting",
    "disconnect": "connecting",
    "drop": "strays",
    "handover": "handover",
    "ping": "waiting",
    "publish_from": "parts",
    "publish_wait": "publishing",
    "queue": "bulk",
    "reconfigure": "saying",
    "set_credentials": "saying",
    "set_will": "saying",
    "subscribe": "subscribing",
    "unsubscribe": "subscribing",
    "wait": "waiting",
    "withdraw": "subscribing",
}
# Those whose module stays loaded become methods of the class.
_STAY = ("waiting", "parts", "bulk", "publishing")


def method(c: "Client", name: str) -> "Any":
    """Return the method `name` of a client. AttributeError for an unknown name."""
    if name not in MODULES:
        raise AttributeError(f"Client has no attribute {name!r}")
    drop("methods")
    module = MODULES[name]
    if module in _STAY:
        setattr(type(c), name, getattr(load(module), name))
        return getattr(c, name)

    def call(*a, **options):
        try:
            return getattr(load(module), name)(c, *a, **options)
        finally:
            settle(c)

    return call


def settle(c: "Client") -> None:
    """Let go of what the last call has loaded."""
    drop("connecting", "strays", "saying", "hello", "filters", "subscribing", "wire")


def install(kind: "Any") -> None:
    """Add all methods to the class. For CPython."""
    for name, module in MODULES.items():
        setattr(kind, name, getattr(load(module), name))
