"""The size of each proof: a fixed sample in `make test`, all of it in `make proofs`.

A test whose cases are many takes them from here. `pytest --whole` makes each function return all
that it is given. A sample is chosen by a hash of each case, so that it stays the same when cases
are added, and is the same in every process.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

SEED = 2711

T = TypeVar("T")

_whole = False


def set_whole(on: bool) -> None:
    """Have everything run from now on, or samples; pytest calls it before it collects tests."""
    global _whole
    _whole = on


def whole() -> bool:
    """Return whether everything runs."""
    return _whole


def _rank(case: object) -> tuple[int, str]:
    name = str(case)
    return zlib.crc32(f"{SEED} {name}".encode()), name


def sample(cases: Iterable[T], count: int) -> list[T]:
    """Return `count` of the cases, in their order."""
    everything = list(cases)
    if _whole or count >= len(everything):
        return everything
    chosen = {_rank(case) for case in sorted(everything, key=_rank)[:count]}
    return [case for case in everything if _rank(case) in chosen]


def one_each(cases: Iterable[T], key: Callable[[T], Hashable]) -> list[T]:
    """Return one case for each value of `key`, in their order.

    Which one it is differs from value to value, so that brokers and interpreters are spread over
    the scenarios.
    """
    everything = list(cases)
    if _whole:
        return everything
    first: dict[Hashable, T] = {}
    for case in sorted(everything, key=_rank):
        first.setdefault(key(case), case)
    chosen = {_rank(case) for case in first.values()}
    return [case for case in everything if _rank(case) in chosen]
