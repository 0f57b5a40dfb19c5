"""MicroPython's constants and 30-bit clock, and fast attributes, on CPython."""

from __future__ import annotations

import time
from typing import Any


def collect() -> None:
    """Do nothing.

    A collection on CPython visits the objects of the whole program, and takes tens to hundreds
    of milliseconds.
    """


class _Slots(type):
    """Make slots of the attributes that a class declares.

    CPython finds them faster than the attributes of an object that has more than 30. Other
    attributes can still be set.
    """

    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> _Slots:
        declared = [name for name in body.get("__annotations__", ()) if name not in body]
        if "__dict__" not in dir(bases[0] if bases else object):
            declared.append("__dict__")
        body["__slots__"] = declared
        return super().__new__(mcs, name, bases, body)


class Shown(metaclass=_Slots):
    """Base of the objects that print something readable at the prompt."""

    def __repr__(self) -> str:
        from .show import show

        return show(self)


def const(value: int) -> int:
    """Return `value`."""
    return value


def ticks_ms() -> int:
    """Return milliseconds since an arbitrary moment, modulo 2**30."""
    return time.monotonic_ns() // 1_000_000 & 0x3FFFFFFF


def ticks_add(ticks: int, ms: int) -> int:
    """Return the time `ms` milliseconds after `ticks`."""
    return ticks + ms & 0x3FFFFFFF


def ticks_diff(later: int, earlier: int) -> int:
    """Return the milliseconds from `earlier` to `later`; negative if `earlier` is later."""
    return (later - earlier + 0x20000000 & 0x3FFFFFFF) - 0x20000000
