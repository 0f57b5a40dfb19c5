"""The arrivals of devices: the part of the state that does not depend on boots.

Packs with numbers and packs without are apart: of the latter nothing else is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..jobs import columns
from .histogram import TYPE, added, count, let, number, percentile

PACE = f"""struct<
    first: timestamp, heard: timestamp, arrived: timestamp, boot: bigint, received: bigint,
    duplicates: bigint, intervals: {TYPE}, delays: {TYPE},
    silences: array<struct<since: timestamp, until: timestamp, boot: bigint>>>"""
"""`heard` is the newest arrival, `arrived` that of a pack that is no copy, `boot` its boot."""
STATUS = "struct<status: string, at: timestamp, offset: bigint>"
FEW = 64
"""Intervals of a device, all of which are kept as silences."""
SILENCES = 1000
"""Silences of a device that are kept; then the shorter half goes."""
_KEPT = 2  # times the usual interval, from which a silence is kept: it may become shorter
_STATUS = 32  # characters of a status that are kept
_BURST = 1_000_000  # us; messages without numbers that come closer together are one sign of life

_OVER = "OVER (PARTITION BY device, boot IS NOT NULL ORDER BY timestamp, offset)"
_ORDER = "IF(counted, struct(timestamp, offset), NULL)"
_DELAY = number("(unix_micros(timestamp) - unix_micros(time))")
PACES = f"""
    SELECT device, numbered, min(timestamp) AS first,
        max(IF(numbered OR NOT retained, timestamp, NULL)) AS heard,
        min(IF(counted, timestamp, NULL)) AS begin, min_by(boot, {_ORDER}) AS begin_boot,
        max(IF(counted, timestamp, NULL)) AS arrived, max_by(boot, {_ORDER}) AS boot,
        count_if(NOT copy) AS received, count_if(copy) AS duplicates,
        collect_list(IF(counted AND since IS NOT NULL,
            struct(since, timestamp AS until, boot), NULL)) AS steps,
        collect_list(IF(counted AND timed, {_DELAY}, NULL)) AS bins
    FROM (
        SELECT *, lag(IF(counted, timestamp, NULL)) IGNORE NULLS {_OVER} AS since FROM (
            SELECT device, boot, timestamp, offset, time, timed, boot IS NOT NULL AS numbered,
                coalesce(retain, false) AS retained,
                IF(boot IS NULL, coalesce(retain, false) OR coalesce(dup, false), NOT fresh)
                    AS copy,
                IF(boot IS NULL, NOT coalesce(retain, false), fresh) AS counted
            FROM {{marked}} WHERE reason IS NULL
        )
    ) GROUP BY device, numbered"""
"""What a batch has of the arrivals of each device."""


def statuses(messages: DataFrame, filters: Sequence[str] = columns.STATUS) -> DataFrame:
    """Return the newest status of each device in messages; the second level names the device."""
    # Whatever the payload is: `decode` would end the job for bytes that are not UTF-8.
    text = F.substring(F.make_valid_utf8(F.col("payload").cast("string")), 1, _STATUS)
    said = F.struct(
        F.when(text != "", text).alias("status"), F.col("timestamp").alias("at"), "offset"
    )
    return (
        messages.where(columns.matched(F.col("topic"), filters))
        .groupBy(F.get(F.split("topic", "/"), F.lit(1)).alias("device"))
        .agg(F.max_by(said, F.struct("timestamp", "offset")).alias("status"))
        .where("device IS NOT NULL")
    )


def later(old: str, new: str) -> str:
    """Return SQL for the later of two times.

    It is the new one if the old one lies more than a day ahead of it, as it does after a
    receiver's clock was wrong.
    """
    return f"""IF({old} > {new} + INTERVAL '1' DAY, {new}, greatest({old}, {new}))"""


def merged(new: str, old: str, numbered: bool) -> str:
    """Return SQL for the pace of a device after a batch."""
    steps = f"""IF({old}.arrived IS NULL OR {new}.begin IS NULL, {new}.steps, concat(
        array(struct({old}.arrived AS since, {new}.begin AS until, {new}.begin_boot AS boot)),
        {new}.steps))"""
    lasting = "(unix_micros(x.until) - unix_micros(x.since))"
    wrong = "x.since > x.until + INTERVAL '1' DAY"
    if numbered:
        bins = f"transform(s, x -> {number(f'IF({wrong}, 0L, greatest({lasting}, 0L))')})"
    else:
        bins = f"""transform(filter(s, x -> NOT ({wrong}) AND {lasting} >= {_BURST}),
            x -> {number(lasting)})"""
    every = f"filter(concat(coalesce({old}.silences, array()), s), x -> x.until > x.since)"
    kept = let("m", f"IF({count('v')} <= {FEW}, 0D, {_KEPT} * {percentile('v', 0.5)})",
               f"filter({every}, x -> {lasting} > m)")  # fmt: skip
    order = """(x, y) -> CAST(signum((unix_micros(y.until) - unix_micros(y.since))
        - (unix_micros(x.until) - unix_micros(x.since))) AS int)"""
    most = f"IF(size(k) <= {SILENCES}, k, slice(array_sort(k, {order}), 1, {SILENCES // 2}))"
    silences = let("k", kept, most) if numbered else "array()"
    pace = f"""struct(
        least({old}.first, {new}.first) AS first, {later(f"{old}.heard", f"{new}.heard")} AS heard,
        {later(f"{old}.arrived", f"{new}.arrived")} AS arrived,
        coalesce({new}.boot, {old}.boot) AS boot,
        {new}.received + coalesce({old}.received, 0L) AS received,
        {new}.duplicates + coalesce({old}.duplicates, 0L) AS duplicates,
        v AS intervals, {added(f"{old}.delays", f"{new}.bins")} AS delays,
        {silences} AS silences)"""
    whole = let("s", steps, let("v", added(f"{old}.intervals", bins), pace))
    return f"IF({new} IS NULL, {old}, CAST({whole} AS {PACE}))"


def status(new: str, old: str) -> str:
    """Return SQL for the newest status of a device; an older one may come in a later batch."""
    older = f"""{old}.at <= {new}.at + INTERVAL '1' DAY AND ({old}.at > {new}.at
        OR {old}.at = {new}.at AND {old}.offset > {new}.offset)"""
    return f"IF({new} IS NULL OR coalesce({older}, false), {old}, {new})"
