"""Tests of each case, whose other axes are spread over the cases of a sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

import sizes


def each(name: str, cases: Iterable[object], **axes: Iterable[object]) -> pytest.MarkDecorator:
    """Parametrize by `name` and the axes.

    A sample has each case once, with one value of each axis: other ones for other cases. Their
    texts must be the same in every process: names of functions, not functions.
    """
    everything = itertools.product(cases, *axes.values())
    return pytest.mark.parametrize(
        (name, *axes), sizes.one_each(everything, lambda case: str(case[0]))
    )
