"""The methods of a client that are loaded when they are called."""

from .port import MICROPYTHON, const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client


def modules() -> "dict[str, str]":
    """Return the module that has a method, by the names of the methods."""
    # In one text: each of these names alone would stay in a board's table of names.
    table = """\
abandon rare.connecting
awaits waiting
connect rare.connecting
disconnect rare.connecting
drop rare.strays
handover rare.handover
ping waiting
publish_from rare.parts
publish_wait rare.publishing
queue rare.bulk
reconfigure rare.saying
set_credentials rare.saying
set_will rare.saying
subscribe subscribing
unsubscribe subscribing
wait waiting
withdraw subscribing"""
    return dict([line.split() for line in table.splitlines()])


def get(c: "Client", name: str) -> "Any":
    """Return the method `name` of a client. AttributeError for an unknown name."""
    module = modules().get(name)
    if not module:
        raise AttributeError(f"Client has no attribute {name!r}")
    drop("methods")
    # The methods of these become methods of the class.
    if module in ("waiting", "rare.parts", "rare.bulk", "rare.publishing"):
        setattr(type(c), name, getattr(load(module, ""), name))
        return getattr(c, name)

    def run(*a, **values):
        try:
            return getattr(load(module, ""), name)(c, *a, **values)
        finally:
            settle(c)

    return run


def settle(c: "Client") -> None:
    """Let go of what the last call has loaded."""
    drop(*["connecting", "strays", "saying", "hello", "subscribing", "wire"])


if not MICROPYTHON:

    def install(kind: "Any") -> None:
        """Add all methods to the class."""
        for name, module in modules().items():
            setattr(kind, name, getattr(load(module, ""), name))
