"""What CPython lacks: constants, and the millisecond clock that wraps as a board's does."""

import sys

MICROPYTHON = sys.implementation.name == "micropython"

if MICROPYTHON:
    from time import ticks_add, ticks_diff, ticks_ms  # type: ignore[attr-defined]

    from micropython import const
else:
    import time

    def const(value: int) -> int:
        return value

    def ticks_ms() -> int:
        return time.monotonic_ns() // 1_000_000 & 0x3FFFFFFF

    def ticks_add(ticks: int, ms: int) -> int:
        return ticks + ms & 0x3FFFFFFF

    def ticks_diff(later: int, earlier: int) -> int:
        return (later - earlier + 0x20000000 & 0x3FFFFFFF) - 0x20000000
