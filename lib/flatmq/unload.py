"""Unload code on a board after use."""

import sys

from .port import MICROPYTHON, collect

# Modules that other modules import.
_USERS = {
    "properties": ("replies", "v5_auth"),
    "topic": ("router", "pieces", "v5_walk"),
    "wire": ("pieces", "replies", "senml", "stream_uart", "v5_alias", "v5_auth"),
}


def unload(*names: str) -> None:
    """Unload modules that a board does not need again soon, and collect them.

    A module that another one still holds is kept: otherwise it would be loaded twice.
    """
    if MICROPYTHON:
        for name in names + ("unload",):  # noqa: RUF005 - as MicroPython has it
            for user in _USERS.get(name, ()):
                if "flatmq." + user in sys.modules:
                    break
            else:
                sys.modules.pop("flatmq." + name, None)
                if hasattr(sys.modules["flatmq"], name):
                    delattr(sys.modules["flatmq"], name)
    collect()  # else the code loaded next would stay behind garbage
