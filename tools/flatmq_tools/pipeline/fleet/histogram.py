"""SQL for distributions of integers, in bins whose values differ by 4 % at most."""

from __future__ import annotations

import math

WIDTH = 1.04
"""The largest value of a bin is at most so many times the smallest."""
TYPE = "map<int, bigint>"
"""How many values are in each bin."""
_LOG = math.log(WIDTH)


def let(name: str, value: str, then: str) -> str:
    """Return SQL in which a name stands for a value that is computed once."""
    return f"transform(array({value}), {name} -> {then})[0]"


def number(value: str) -> str:
    """Return SQL for the bin of an integer."""
    size = f"floor(ln(greatest(abs({value}), 1L)) / {_LOG!r}D) + 1"
    return f"CAST(signum({value}) * ({size}) AS int)"


def added(old: str, bins: str) -> str:
    """Return SQL for a distribution and more values, given as an array of their bins."""
    counted = let("every", bins, let(
        "d", "array_distinct(every)",
        "map_from_arrays(d, transform(d, b -> CAST(size(filter(every, x -> x = b)) AS bigint)))",
    ))  # fmt: skip
    return f"""map_zip_with(coalesce({old}, CAST(map() AS {TYPE})), {counted},
        (k, a, b) -> coalesce(a, 0L) + coalesce(b, 0L))"""


def count(found: str) -> str:
    """Return SQL for how many values there are."""
    return f"coalesce(aggregate(map_values({found}), 0L, (a, x) -> a + x), 0L)"


def percentile(found: str, part: float) -> str:
    """Return SQL for the middle of the bin in which a nearest rank lies; null without values."""
    rank = f"greatest(1L, ceil({part}D * {count(found)} - 1e-9D))"
    place = let("rank", rank, f"""aggregate(array_sort(map_entries({found})),
        struct(0L AS c, CAST(NULL AS int) AS k), (a, x) -> struct(a.c + x.value AS c,
            IF(a.k IS NULL AND a.c + x.value >= rank, x.key, a.k) AS k)).k""")  # fmt: skip
    # The bin of 1 has no other whole number in it.
    middle = f"""IF(abs(bin) <= 1, CAST(bin AS double),
        signum(bin) * exp((abs(bin) - 0.5D) * {_LOG!r}D))"""
    return let("bin", place, middle)
