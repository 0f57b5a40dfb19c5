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


def chained(*parts: Rows) -> Rows:
    """Return rows of the same kind, one part behind the other.

    As plain bytes: of rows with names, NumPy copies one value at a time.
    """
    plain = f"V{parts[0].itemsize}"
    return np.concatenate([rows.view(plain) for rows in parts]).view(parts[0].dtype)


def starts(*sorted_keys: Ints) -> Bools:
    """Return where a row differs from the one before, of rows sorted by these keys."""
    first = np.ones(len(sorted_keys[0]), np.bool_)
    if len(first):
        first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in sorted_keys])
    return first


def _order(group: Ints, value: Ints, values: int) -> Ints:
    """Return the order by group and value; equal rows stay in theirs.

    The values are numbers from 0 to `values` - 1.
    """
    if len(group) and (int(group.max()) + 1) * values < _KEY:
        # One key is sorted several times as fast as two, and faster if it is almost in order.
        return np.argsort(group * values + value, kind="stable")
    return np.lexsort((value, group))


def joined(
    range_group: Ints, ranges: Rows, group: Ints, number: Ints, at: Ints, floor: Ints
) -> tuple[Bools, Ints, Rows]:
    """Return which numbers are new, and the ranges with these, which arrived at `at`.

    floor  of each group: numbers up to it do not become ranges
    """
    groups = np.concatenate([range_group, group])
    low, high = (np.concatenate([ranges[name], number]) for name in ("lo", "hi"))
    order = _order(groups, low, int(low.max(initial=0)) + 1)
    groups, low, high = groups[order], low[order], high[order]
    is_number = order >= len(ranges)
    # The last range that begins at or before each number may hold it.
    last = np.maximum.accumulate(np.where(is_number, -1, np.arange(len(order))))
    held = (last >= 0) & (groups[last] == groups) & (low <= high[last])
    fresh = is_number & ~held & starts(groups, low)
    new = np.zeros(len(number), np.bool_)
    new[order[fresh] - len(ranges)] = True
    some = np.flatnonzero(~is_number | (fresh & (low > floor[groups])))
    groups, order = groups[some], order[some]
    begins = starts(groups)
    begins[1:] |= high[some[:-1]] != low[some[1:]] - 1
    ends = np.append(begins[1:], True)[: len(some)]
    rows = np.empty(int(np.count_nonzero(begins)), RANGE)
    rows["lo"], rows["hi"] = low[some][begins], high[some][ends]
    for name, at_end in (("lo_at", begins), ("hi_at", ends)):
        rows[name] = np.concatenate([ranges[name], at])[order[at_end]]
    return new, groups[begins], rows


def distinct(values: Ints) -> Ints:
    """Return the values, sorted, each once: several times as fast as numpy's."""
    ranked = np.sort(values)
    return ranked[starts(ranked)]


def pairs(group: Ints, number: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of each group, sorted, each once."""
    most = int(number.max(initial=0)) + 1
    found = distinct(group * most + number)
    return found // most, found % most


def binned(values: Ints) -> Rows:
    """Return the bin of each integer, as a distribution of one value."""
    size = np.abs(values).astype(np.float64)
    number = np.floor(np.log(np.maximum(size, 1)) / _LOG) + 1
    rows = np.empty(len(values), BIN)
    rows["bin"] = np.sign(values) * number
    rows["n"] = 1
    rows["sum"] = values
    return rows


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
    group, bins = group[order], rows["bin"][order]
    at = np.flatnonzero(starts(group, bins))
    group, whole = group[at], np.empty(len(at), rows.dtype)
    whole["bin"] = bins[at]
    for name in (rows.dtype.names or ())[1:] if len(at) else ():
        whole[name] = np.add.reduceat(rows[name][order], at)  # faster than of rows[order]
    some = whole["n"] > 0  # but for what was taken away
    return (group, whole) if some.all() else (group[some], whole[some])


def merged(*parts: tuple[Ints, Rows]) -> tuple[Ints, Rows]:
    """Return the sum of several distributions, each with the groups of its bins."""
    every, rows = zip(*parts, strict=True)
    return added(np.concatenate(every), chained(*rows))


def percentiles(
    group: Ints, rows: Rows, groups: int, parts: Sequence[float]
) -> NDArray[np.float64]:
    """Return for each group and part the mean of the bin in which its nearest rank lies.

    It is NaN for a group without values. Without sums, a bin has the middle of its values.
    """
    rows = rows if rows.dtype == BIN else lengthened(rows)
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
