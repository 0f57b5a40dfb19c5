"""Sums by time, for reports: of the fleet, and of each device; and the newest values.

A batch adds rows with what it has of each second, of each device in each hour, and of each
quantity. `fold` adds up the rows of a step, and makes steps wider as they grow old. None is
removed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from .histogram import TYPE, number
from .table import Table

SECOND, MINUTE, HOUR, DAY = 1, 60, 3600, 86_400
WIDTHS = {
    "fleet": {7200: SECOND, 2 * DAY: MINUTE, 400 * DAY: HOUR, None: DAY},
    "device": {3 * DAY: HOUR, 400 * DAY: DAY, None: 32 * DAY},
}
"""How wide the steps of each kind of row are, in s, by their age in s."""
SUMS = f"""kind string, at bigint, device string, numbered boolean, messages bigint,
    packs bigint, dead bigint, received bigint, missing bigint, duplicates bigint,
    reordered bigint, first timestamp, last timestamp, devices binary, delays {TYPE}"""
"""`at` is when a step begins, in s since 1970. `missing` are numbers found missing in it, less
those that came late; numbers before the first of a boot do not count. `devices` is a sketch of
the set of devices that were heard: see `hll_sketch_estimate` of Spark."""
NEWEST = """device string, quantity string, unit string, time timestamp, value double, text string,
    flag boolean"""
"""The newest value of each quantity of a device."""

_ADDED = ("messages", "packs", "dead", "received", "missing", "duplicates", "reordered")
_AT = "unix_micros(timestamp) div 1000000"
_BIN = number("(unix_micros(timestamp) - unix_micros(time))")


def of_batch(messages: DataFrame, marked: DataFrame) -> DataFrame:
    """Return the sums of a batch: of messages, and of packs as `copies.marked` marks them."""
    seconds = f"{_AT} AS at, CAST(NULL AS string) AS device, CAST(NULL AS boolean) AS numbered"
    return marked.sparkSession.sql(
        f"""
        WITH parts AS (
            SELECT 'fleet' AS kind, {seconds}, count(*) AS messages, 0L AS packs, 0L AS dead,
                0L AS received, 0L AS missing, 0L AS duplicates, 0L AS reordered,
                min(timestamp) AS first, max(timestamp) AS last, NULL AS devices,
                CAST(array() AS array<int>) AS bins
            FROM {{messages}} GROUP BY {_AT}
            UNION ALL
            SELECT 'fleet', {seconds}, 0L, count_if(reason IS NULL), count_if(reason IS NOT NULL),
                0L, 0L, 0L, 0L, NULL, NULL, hll_sketch_agg(IF(reason IS NULL, device, NULL)),
                collect_list(IF(fresh AND timed, {_BIN}, NULL))
            FROM {{marked}} GROUP BY {_AT}
            UNION ALL
            SELECT 'device', at, device, numbered, 0L, count(*), 0L, count_if(NOT copy),
                sum(missing), count_if(copy), count_if(reordered), min(timestamp), max(timestamp),
                NULL, collect_list(IF(NOT copy AND timed, {_BIN}, NULL))
            FROM (
                SELECT *, {_AT} - pmod({_AT}, {HOUR}) AS at, boot IS NOT NULL AS numbered,
                    IF(boot IS NOT NULL, NOT fresh, coalesce(retain, false)
                        OR coalesce(dup, false)) AS copy
                FROM {{marked}} WHERE reason IS NULL
            ) GROUP BY at, device, numbered
        )
        SELECT * EXCEPT (bins), map_from_arrays(array_distinct(bins), transform(
            array_distinct(bins), b -> CAST(size(filter(bins, x -> x = b)) AS bigint))) AS delays
        FROM parts
        """,
        messages=messages, marked=marked,
    )  # fmt: skip


def newest(values: DataFrame) -> DataFrame:
    """Return the newest value of each quantity; those of the same time in any order."""
    return values.sparkSession.sql(
        """
        SELECT device, quantity, inline(array(last)) FROM (
            SELECT device, quantity,
                max_by(struct(unit, time, value, text, flag), time) AS last
            FROM {values} WHERE coalesce(CAST(value AS string), text, CAST(flag AS string))
                IS NOT NULL
            GROUP BY device, quantity
        )
        """,
        values=values,
    )


def folded(sums: DataFrame) -> DataFrame:
    """Return sums with one row per step, in steps that are as wide as their age asks for."""
    steps = " ".join(
        f"WHEN kind = '{kind}'{_since(age, list(widths.values()), n)} THEN {wide}"
        for kind, widths in WIDTHS.items()
        for n, (age, wide) in enumerate(widths.items())
    )
    added = ", ".join(f"sum({name}) AS {name}" for name in _ADDED)
    return sums.sparkSession.sql(
        f"""
        WITH aged AS (
            SELECT *, CASE {steps} END AS width
            FROM (SELECT *, (SELECT max(at) FROM {{sums}}) AS newest FROM {{sums}})
        )
        SELECT kind, at - pmod(at, width) AS at, device, numbered, {added}, min(first) AS first,
            max(last) AS last, hll_union_agg(devices) AS devices,
            aggregate(collect_list(delays), CAST(map() AS {TYPE}), (a, d) ->
                map_zip_with(a, d, (k, x, y) -> coalesce(x, 0L) + coalesce(y, 0L))) AS delays
        FROM aged GROUP BY kind, at - pmod(at, width), device, numbered
        """,
        sums=sums,
    )


def _since(age: int | None, widths: list[int], n: int) -> str:
    """Return SQL for whether a step is younger; a step that is wider is so as a whole."""
    if age is None:
        return ""
    return f" AND at >= newest - {age} - pmod(newest - {age}, {widths[n + 1]})"


def fold(table: Table, job: str) -> None:
    """Write all rows of a table again, folded; `job` is the one that appends to it."""
    files, position = table.files(), table.position(job)
    if not files or position is None:
        return
    fold = newest if "quantity" in table.schema.names else folded
    table.commit(fold(table.read(files)), job, position, files)
