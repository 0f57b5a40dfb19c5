"""What CPython lacks: constants, and the millisecond clock that wraps as a board's does."""

import sys

MICROPYTHON = sys.implementation.name == "micropython"

if MICROPYTHON:
    from gc import collect
    from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

    from micropython import const
else:
    from .port_cpython import collect, const, ticks_add, ticks_diff, ticks_ms  # noqa: F401
