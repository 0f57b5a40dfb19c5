"""The parts of MicroPython that CPython lacks: constants, a clock that wraps, little memory.

So rarely used code is loaded when it is needed, and let go of.
"""

import sys

MICROPYTHON = sys.implementation.name == "micropython"

if MICROPYTHON:
    from gc import collect
    from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

    from micropython import const

    class Shown:
        """Base of the objects that print something readable at the prompt."""

        def __repr__(self):
            from .show import show

            return show(self)
else:
    from .port_cpython import Shown, collect, const, ticks_add, ticks_diff, ticks_ms  # noqa: F401

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

# Modules that are kept as long as one of those after it is, which holds it.
_USERS = {
    "wire": ("rare.parts", "senml", "stream_uart", "v5.alias", "v5.auth", "v5.replies"),
    "properties": ("v5.auth", "v5.replies"),
}


def load(name: str, package: str = "rare") -> "Any":
    """Return the module `name` of `flatmq.rare`, or of another package.

    This is the only place where a module is loaded by its name: see "What is loaded when" in
    docs/design.md.
    """
    return __import__("flatmq." + package + "." + name, None, None, (name,))


def drop(*names: str) -> None:
    """Let go of modules on a board, and collect them.

    A module that another one still holds is kept: otherwise it would be loaded twice.
    """
    if MICROPYTHON:
        for name in names:
            for user in _USERS.get(name, ()):
                if "flatmq." + user in sys.modules:
                    break
            else:
                for package in ("flatmq", "flatmq.rare", "flatmq.v5"):
                    if sys.modules.pop(package + "." + name, None):
                        holder = sys.modules[package]
                        if hasattr(holder, name):
                            delattr(holder, name)
    collect()
