"""MicroPython's constants, its clock of 30 bits and quick attributes, on CPython."""

import time
from collections.abc import Callable
from typing import Any


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


def properties(cls: Any, *names: str) -> None:
    """Make properties of attributes that `__getattr__` computes. CPython does not specialize what
    it does with any attribute of a class that has a `__getattr__`."""
    get = cls.__getattr__
    for name in names:
        setattr(cls, name, property(_getter(get, name)))
    del cls.__getattr__


def _getter(get: Callable[[Any, str], Any], name: str) -> Callable[[Any], Any]:
    return lambda self: get(self, name)
