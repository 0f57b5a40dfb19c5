"""The methods of an MQTT 5 client that are loaded when they are called."""

from ..port import MICROPYTHON, const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5


def modules() -> "dict[str, str]":
    """Return the module that has a method, by names: in addition to those of `methods`."""
    table = """\
alias alias
authenticate auth
disconnect leaving
publish_from sending
request replies
set_credentials saying
set_will saying
subscribe subscribing
unsubscribe subscribing"""
    return dict([line.split() for line in table.splitlines()])


def get(c: "Client5", name: str) -> "Any":
    """Return the method `name` of a client. AttributeError for an unknown name."""
    drop("methods")
    home = modules().get(name)
    if not home:
        return load("methods", "").get(c, name)
    module = load(home, "v5.")
    if home == "alias" or home == "replies":  # they stay loaded
        setattr(type(c), name, getattr(module, name))
        return getattr(c, name)

    def call(*a, **values):
        try:
            return getattr(module, name)(c, *a, **values)
        finally:
            load("methods", "").settle(c)
            drop("methods", "properties", "leaving", "sending")

    return call


if not MICROPYTHON:

    def install(kind: "Any") -> None:
        """Add all methods to the class."""
        for name, module in modules().items():
            setattr(kind, name, getattr(load(module, "v5."), name))
