"""The parts of MicroPython that CPython lacks: constants, and a millisecond clock that wraps."""

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
