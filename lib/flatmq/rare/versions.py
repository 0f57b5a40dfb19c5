"""Make a client of the class for its version. Loaded for that call."""

from ..port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def of_version(kind: "Any", args: tuple, options: dict) -> "Any":
    """Return a client of the class for its version. The arguments are those of `Client`."""
    if options["version"] in (5, None):
        # By its name: MQTT 5 is a package of its own.
        return __import__("flatmq.v5", None, None, ("new",)).new(args, options)
    return object.__new__(kind)
