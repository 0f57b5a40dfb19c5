"""Integers that may be missing, and times of a clock that may be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .groups import Bools, Ints

DAY = 86_400_000_000
"""In microseconds."""
UNKNOWN = int(np.iinfo(np.int64).min)
"""None, in an array."""


def ints(values: Sequence[Any]) -> Ints:
    """Return an array of integers of which some may be None."""
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def known(values: Ints) -> Bools:
    """Return which are not None, of an array that `ints` has made."""
    found: Bools = values != UNKNOWN
    return found


def later(old: Ints, new: Ints) -> Ints:
    """Return the later of two times.

    It is the new one if the old one lies more than a day ahead of it, as it does after a
    receiver's clock was wrong.
    """
    wrong = known(old) & known(new) & (old - new > DAY)
    return np.where(wrong, new, np.maximum(old, new))


def least(old: Ints, new: Ints) -> Ints:
    """Return the smaller of two numbers, or the one that is known."""
    return np.where(known(old), np.minimum(old, new), new)


def columns(rows: list[tuple[Any, ...]], names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return the columns of rows by their names."""
    if not rows:
        return {name: [] for name in names}
    return dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
