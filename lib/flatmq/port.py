"""What CPython lacks: constants, and the millisecond clock that wraps as a board's does."""

import sys

MICROPYTHON = sys.implementation.name == "micropython"

if MICROPYTHON:
    from gc import collect
    from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

    from micropython import const

    class Shown:
        """What says something about itself at the prompt."""

        def __repr__(self):
            from .show import show

            return show(self)
else:
    from .port_cpython import Shown, collect, const, ticks_add, ticks_diff, ticks_ms  # noqa: F401
