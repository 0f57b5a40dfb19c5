"""Let go of code on a board when it has done its work."""

import sys

from .port import MICROPYTHON, collect

# Modules that are imported by others.
_USERS = {
    "properties": ("replies", "v5_auth"),
    "topic": ("router", "pieces", "v5_walk"),
    "wire": ("pieces", "replies", "senml", "stream_uart", "v5_alias", "v5_auth"),
}


def unload(*names: str) -> None:
    """Have a board forget modules that are not needed again soon, and collect them. One that
    another module holds anyway is kept: else it would be loaded twice."""
    if MICROPYTHON:
        for name in names + ("unload",):  # noqa: RUF005 - as MicroPython has it
            for user in _USERS.get(name, ()):
                if "flatmq." + user in sys.modules:
                    break
            else:
                sys.modules.pop("flatmq." + name, None)
                if hasattr(sys.modules["flatmq"], name):
                    delattr(sys.modules["flatmq"], name)
    collect()  # what is loaded next stays, behind garbage otherwise
