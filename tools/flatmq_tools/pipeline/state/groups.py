"""Arithmetic on many groups at once: ranges of numbers, and distributions of values.

The rows of all groups lie in one array, sorted by group, with the number of the group of each row
in an array beside it. So a batch costs the same few calls of numpy for one board as for thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[Any]

RANGE = np.dtype([("lo", "<i8"), ("hi", "<i8"), ("lo_at", "<i8"), ("hi_at", "<i8")])
"""Numbers from lo to hi that were all seen, and when the first of lo and of hi arrived."""
BIN = np.dtype([("bin", "<i4"), ("n", "<u4"), ("sum", "<f8")])
"""How many values lie in a bin of a distribution, and their sum."""
SHORT = np.dtype([("bin", "<i2"), ("n", "<u4")])
"""A bin without the sum: half as long, and its values are taken to be in its middle."""
WIDTH = 1.04
"""The largest value of a bin is at most so many times the smallest."""
_LOG = float(np.log(WIDTH))
_BINS = (
    4096  # more than there are: the logarithm of 2**63 is 1,114 bins, and there are negative ones
)
_KEY = 1 << 62


def unpacked(blobs: Sequence[bytes | None], kind: np.dtype[Any]) -> tuple[Ints, Rows]:
    """Return the group of each row and the rows, from the bytes that each group was kept as."""
    sizes = np.array([len(blob or b"") // kind.itemsize for blob in blobs], np.int64)
    rows = np.frombuffer(b"".join(blob or b"" for blob in blobs), kind)
    return np.repeat(np.arange(len(blobs)), sizes), rows


def packed(group: Ints, rows: Rows, groups: int) -> list[bytes]:
    """Return the bytes to keep of each group; the opposite of `unpacked`."""
    ends = np.searchsorted(group, np.arange(groups + 1)) * rows.dtype.itemsize
    whole = rows.tobytes()
    places = ends.tolist()
    return [whole[places[i] : places[i + 1]] for i in range(groups)]


def starts(*sorted_keys: Ints) -> Bools:
    """Return where a row differs from the one before, of rows sorted by these keys."""
    first = np.ones(len(sorted_keys[0]), np.bool_)
    if len(first):
        first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in sorted_keys])
    return first


def _order(group: Ints, value: Ints, values: int) -> Ints:
    """Return the order by group and value; of equal rows in any order.

    The values are numbers from 0 to `values` - 1.
    """
    if len(group) and (int(group.max()) + 1) * values < _KEY:
        # One key is sorted several times as fast as two.
        return np.argsort(group * values + value)
    return np.lexsort((value, group))


def inside(range_group: Ints, ranges: Rows, group: Ints, number: Ints) -> Bools:
    """Return which numbers are in a range of their group. Both are sorted by group and number."""
    if not len(ranges) or not len(number):
        return np.zeros(len(number), np.bool_)
    groups = np.concatenate([range_group, group])
    values = np.concatenate([ranges["lo"], number])
    is_number = np.zeros(len(groups), np.bool_)
    is_number[len(ranges) :] = True
    order = np.lexsort((is_number, values, groups))
    # How many ranges begin at or before each number: the last of them may hold it.
    before = np.cumsum(~is_number[order])[is_number[order]] - 1
    last = np.maximum(before, 0)
    found: Bools = (before >= 0) & (range_group[last] == group) & (number <= ranges["hi"][last])
    return found


def joined(
    range_group: Ints, ranges: Rows, group: Ints, number: Ints, at: Ints
) -> tuple[Ints, Rows]:
    """Return the ranges with these numbers, none of which is in them, that arrived at `at`."""
    more = np.empty(len(number), RANGE)
    more["lo"] = more["hi"] = number
    more["lo_at"] = more["hi_at"] = at
    groups, rows = np.concatenate([range_group, group]), np.concatenate([ranges, more])
    order = _order(groups, rows["lo"], int(rows["lo"].max(initial=0)) + 1)
    groups, rows = groups[order], rows[order]
    if not len(rows):
        return groups, rows
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (groups[1:] != groups[:-1]) | (rows["hi"][:-1] != rows["lo"][1:] - 1)
    ends = np.append(begins[1:], True)
    whole = rows[begins]
    whole["hi"], whole["hi_at"] = rows["hi"][ends], rows["hi_at"][ends]
    return groups[begins], whole


def binned(values: Ints) -> Rows:
    """Return the bin of each integer, as a distribution of one value."""
    size = np.abs(values).astype(np.float64)
    number = np.floor(np.log(np.maximum(size, 1)) / _LOG) + 1
    rows = np.empty(len(values), BIN)
    rows["bin"] = np.sign(values) * number
    rows["n"] = 1
    rows["sum"] = values
    return rows


def bins(group: Ints, values: Ints) -> tuple[Ints, Rows]:
    """Return the distributions of integers, in bins whose values differ by 4 % at most."""
    return added(group, binned(values))


def shortened(rows: Rows) -> Rows:
    """Return bins without their sums."""
    short = np.empty(len(rows), SHORT)
    short["bin"], short["n"] = rows["bin"], rows["n"]
    return short


def lengthened(short: Rows) -> Rows:
    """Return bins with sums, from bins without.

    Each value counts as the middle of its bin, at most 2 % off.
    """
    rows = np.empty(len(short), BIN)
    rows["bin"], rows["n"] = short["bin"], short["n"]
    number = np.abs(rows["bin"].astype(np.float64))
    middle = np.where(number > 0, np.exp((number - 0.5) * _LOG), 0.0)
    middle = np.where(number == 1, 1.0, middle)  # the only whole number in it
    rows["sum"] = np.sign(rows["bin"]) * middle * rows["n"]
    return rows


def added(group: Ints, rows: Rows) -> tuple[Ints, Rows]:
    """Return the sum of distributions: bins in any order, of which several may be the same."""
    order = _order(group, rows["bin"] + _BINS // 2, _BINS)
    group, rows = group[order], rows[order]
    first = starts(group, rows["bin"])
    at = np.flatnonzero(first)
    whole = rows[first]
    if len(at):
        whole["n"] = np.add.reduceat(rows["n"], at)
        whole["sum"] = np.add.reduceat(rows["sum"], at)
    return group[first], whole


def merged(*parts: tuple[Ints, Rows]) -> tuple[Ints, Rows]:
    """Return the sum of several distributions, each with the groups of its bins."""
    every, rows = zip(*parts, strict=True)
    return added(np.concatenate(every), np.concatenate(rows))


def percentiles(
    group: Ints, rows: Rows, groups: int, parts: Sequence[float]
) -> NDArray[np.float64]:
    """Return for each group and part the mean of the bin in which its nearest rank lies.

    It is NaN for a group without values.
    """
    found = np.full((groups, len(parts)), np.nan)
    counts = np.bincount(group, rows["n"], groups).astype(np.int64)
    some = np.flatnonzero(counts)
    if not len(some):
        return found
    reached = np.cumsum(rows["n"].astype(np.int64))
    base = np.cumsum(counts) - counts
    for n, part in enumerate(parts):
        rank = np.maximum(np.ceil(part * counts[some] - 1e-9), 1).astype(np.int64)
        at = np.searchsorted(reached, base[some] + rank)
        found[some, n] = rows["sum"][at] / rows["n"][at]
    return found
