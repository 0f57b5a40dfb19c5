"""The methods of a client that are loaded when they are called."""

from .port import MICROPYTHON, const, drop, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client


def modules(five: bool = False) -> "dict[str, str]":
    """Return the module that has a method, by the names of the methods.

    `five`: of Client5.
    """
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
    if five:  # these replace those above
        table += """
alias v5.alias
allow v5.limits
authenticate v5.auth
disconnect v5.calls
publish_from v5.calls
request v5.replies
server v5.server
set_will v5.calls
subscribe v5.subscribing
unsubscribe v5.subscribing"""
    return dict([line.split() for line in table.splitlines()])


def get(c: "Client", name: str) -> "Any":
    """Return the method `name` of a client. AttributeError for an unknown name."""
    # What Client5 has; `__dict__` would be a copy of more than a full heap has room for.
    module = modules(hasattr(type(c), "carry")).get(name)
    if not module:
        raise AttributeError(f"Client has no attribute {name!r}")
    drop("methods")
    # The methods of these become methods of the class.
    if module in (
        "waiting", "rare.parts", "rare.bulk", "rare.publishing",
        "v5.alias", "v5.limits", "v5.replies",
    ):  # fmt: skip
        setattr(type(c), name, getattr(load(module, ""), name))
        return getattr(c, name)

    if name == "server":  # an attribute, with the names of what the client has in a list
        setattr(c, name, load(module, "").Server(c))
        return getattr(c, name)

    def run(*a, **values):
        try:
            return getattr(load(module, ""), name)(c, *a, **values)
        finally:
            settle(c)

    return run


def settle(c: "Client") -> None:
    """Let go of what the last call has loaded."""
    names = "connecting strays saying hello subscribing wire properties calls"
    try:  # noqa: SIM105 (there is no contextlib on a board)
        drop(*names.split())
    except MemoryError:  # the call is done: the next one does this
        pass


if not MICROPYTHON:

    def install(kind: "Any", five: bool = False) -> None:
        """Add all methods to the class."""
        for name, module in modules(five).items():
            if name != "server":  # which `v5.setup` makes
                setattr(kind, name, getattr(load(module, ""), name))
