"""The size of each proof: a fixed sample in `make test`, all of it in `make proofs`.

A test whose cases are many takes them from here. `pytest --whole` makes each function return all
that it is given, but what a proof of its own runs. A sample is chosen by a hash of each case, so
that it stays the same when cases are added, and is the same in every process.
"""

import itertools
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

import pytest

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


def one_each(
    cases: Iterable[T],
    key: Callable[[T], Hashable],
    where: Callable[[T], Hashable] = lambda case: None,
    few: int = 0,
    *,
    is_proof: bool = False,
) -> list[T]:
    """Return one case for each value of `key`, and at least `few` for each of `where`.

    Which one it is differs from value to value, so that brokers and interpreters are spread over
    the scenarios. They keep their order. `is_proof`: a proof of its own runs all of them.
    """
    everything = list(cases)
    if _whole and not is_proof:
        return everything
    first: dict[Hashable, T] = {}
    taken: Counter[Hashable] = Counter()
    chosen = set()
    for case in sorted(everything, key=_rank):
        if first.setdefault(key(case), case) is case:
            chosen.add(_rank(case))
            taken[where(case)] += 1
    for case in sorted(everything, key=_rank):
        if taken[where(case)] < few and _rank(case) not in chosen:
            chosen.add(_rank(case))
            taken[where(case)] += 1
    return [case for case in everything if _rank(case) in chosen]


def spread(name: str, cases: Iterable[object], **axes: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize a test by `name` and the axes.

    A sample has each case once, with one value of each axis: other ones for other cases. Their
    texts must be the same in every process: names of functions, not functions.
    """
    everything = itertools.product(cases, *axes.values())
    return pytest.mark.parametrize((name, *axes), one_each(everything, lambda case: str(case[0])))
