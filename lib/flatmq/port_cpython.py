"""MicroPython's constants and its clock of 30 bits, on CPython."""

import time


def collect() -> None:
    """Do nothing. A collection on CPython looks through the objects of the whole program, and
    takes from tens to hundreds of milliseconds."""


def const(value: int) -> int:
    """Return `value`."""
    return value


def ticks_ms() -> int:
    """Return milliseconds since some moment, modulo 2**30."""
    return time.monotonic_ns() // 1_000_000 & 0x3FFFFFFF


def ticks_add(ticks: int, ms: int) -> int:
    """Return the time that is `ms` after `ticks`."""
    return ticks + ms & 0x3FFFFFFF


def ticks_diff(later: int, earlier: int) -> int:
    """Return the milliseconds from `earlier` to `later`, negative if it is the other way round."""
    return (later - earlier + 0x20000000 & 0x3FFFFFFF) - 0x20000000
