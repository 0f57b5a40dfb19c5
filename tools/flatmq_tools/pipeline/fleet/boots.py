"""The state of boots: which numbers of each were seen, and what is counted of them.

A row is a device with its open boots. A batch appends the rows of devices in it, and the newest
row of a device holds. After some batches all rows are written again, each device once. A boot is
then closed, if it is over and old: it goes to another part of the table, which batches do not
read. A pack of a closed boot opens all boots of its device again.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..jobs.limits import FAR, MOST
from .histogram import TYPE, added, let, number
from .pace import PACE, PACES, STATUS, merged, status
from .table import File, Table

RANGES = 1000
"""Ranges of numbers that are known of a boot, at most; the highest stay."""
BOOTS = 64
"""Boots of a device that stay open, at most; the highest stay."""
OVER = datetime.timedelta(days=1)
"""After that long without a pack a boot is closed, if a later one was heard,"""
GONE = datetime.timedelta(days=30)
"""or if all boots of the device were silent that long."""
OPEN = -1
"""The bucket of open boots."""
BUCKETS = 32
"""Those of closed boots, by device: a batch with a pack of a closed boot reads one of them."""

_RANGE = "struct<lo: bigint, hi: bigint, lo_at: timestamp, hi_at: timestamp>"
BOOT = f"""struct<
    boot: bigint, first: timestamp, last: timestamp, received: bigint, duplicates: bigint,
    reordered: bigint, unsure: bigint, lowest: bigint, lowest_at: timestamp, highest: bigint,
    highest_at: timestamp, floor: bigint, old_missing: bigint, old_since: timestamp,
    old_until: timestamp, ranges: array<{_RANGE}>,
    delays: {TYPE}>"""
"""`floor` is the highest number below those that are still known one by one, and `old_...` what is
missing there."""
CLOSED = """struct<
    boots: bigint, reboots: bigint, first: timestamp, received: bigint, lost: bigint,
    unheard: bigint, duplicates: bigint, reordered: bigint, unsure: bigint, boot: bigint,
    at: timestamp>"""
"""Sums of the boots before the first one of a row: the last of them is `boot`, and the pack with
its highest number came `at`."""
STATE = f"""device string, version bigint, boots array<{BOOT}>, closed {CLOSED},
    reopened bigint, numbered {PACE}, plain {PACE}, status {STATUS}"""
"""`reopened`: rows of closed boots that are older than this version do not count. `numbered` is
the pace of packs with numbers, `plain` that of packs without."""
MARKING = f"""device string, version bigint, boots array<struct<
    boot: bigint, lowest: bigint, highest: bigint, floor: bigint, ranges: array<{_RANGE}>>>"""
"""What is needed to find copies."""
BY = {"bucket": "int"}

BUCKET = f"pmod(hash(device), {BUCKETS})"


def starts(boot: str, before: str) -> str:
    """Return SQL for the starts since the boot before: those of silent boots too."""
    return f"""CASE WHEN {before} IS NULL THEN 0L WHEN {boot} - {before} > {FAR} THEN 1L
        ELSE {boot} - {before} END"""


def missing(boot: str) -> str:
    """Return SQL for the numbers that are missing between those of a boot."""
    return f"""greatest(least({boot}.highest - {boot}.lowest - ({boot}.received - 1),
        {MOST}L), 0L)"""


def head(boot: str) -> str:
    """Return SQL for the numbers below the first one of a boot."""
    return f"greatest({boot}.lowest - 1, 0L)"


def newest(table: Table, files: Sequence[File], columns: str = STATE) -> DataFrame:
    """Return the newest row of each device in these files."""
    rows = table.read(files, columns)
    if len(versions(files)) == 1:
        return rows
    return rows.groupBy("device").agg(
        F.max_by(F.struct(*rows.columns), "version").alias("row")
    ).select("row.*")  # fmt: skip


def versions(files: Sequence[File]) -> dict[int, int]:
    """Return how many rows there are of each version, the oldest first."""
    found: dict[int, int] = {}
    for file in files:
        version = file.least["version"]
        found[version] = found.get(version, 0) + file.rows
    return dict(sorted(found.items()))


def reopened(
    table: Table, heads: DataFrame, files: Sequence[File], devices: DataFrame, version: int
) -> DataFrame:
    """Return the newest row of each device; those of `devices` have their closed boots, too.

    files  of closed boots that may be theirs
    """
    return table.spark.sql(
        f"""
        WITH every AS (
            SELECT *, false AS old FROM {{heads}} UNION ALL SELECT *, true FROM {{old}}
        ), since AS (
            SELECT *, coalesce(max(reopened) OVER (PARTITION BY device), -1) AS since FROM every
        )
        SELECT device, max(version) AS version, {_sorted('flatten(collect_list(boots))')} AS boots,
            IF(bool_or(old), NULL, any_value(closed)) AS closed,
            IF(bool_or(old), {version}L, any_value(reopened)) AS reopened,
            max_by(numbered, version) FILTER (WHERE numbered IS NOT NULL) AS numbered,
            max_by(plain, version) FILTER (WHERE plain IS NOT NULL) AS plain,
            max_by(status, version) FILTER (WHERE status IS NOT NULL) AS status
        FROM since WHERE NOT old OR version >= since GROUP BY device
        """,
        old=table.read(files).join(devices, "device", "left_semi"), heads=heads,
    )  # fmt: skip


def changed(
    marked: DataFrame, heads: DataFrame, statuses: DataFrame, version: int,
    now: datetime.datetime | None = None, every: bool = False,
) -> DataFrame:  # fmt: skip
    """Return the rows of the devices in a batch, after it, with the bucket of each.

    marked    packs as `copies.marked` marks them
    heads     the newest row of each device before
    statuses  the newest status of each device in the batch: device, status
    every     return the rows of all devices; boots that are over by `now`, when the newest pack
              came, are in rows of their own then
    """
    news = f"""
        SELECT device, any_value(news, true) AS news, any_value(numbered, true) AS numbered,
            any_value(plain, true) AS plain, any_value(status, true) AS status
        FROM (
            SELECT device, news, NULL AS numbered, NULL AS plain, NULL AS status FROM ({_RUNS})
            UNION ALL
            SELECT device, NULL, IF(numbered, p, NULL), IF(numbered, NULL, p), NULL
            FROM (SELECT device, numbered, struct(*) AS p FROM ({PACES}))
            UNION ALL SELECT device, NULL, NULL, NULL, status FROM {{statuses}}
        ) GROUP BY device"""
    known = f"""concat(
        transform(coalesce(n.news, array()), n -> {_merged()}),
        filter(coalesce(h.boots, array()),
            o -> NOT exists(coalesce(n.news, array()), n -> n.boot = o.boot)))"""
    rows = f"""
        SELECT coalesce(n.device, h.device) AS device, {version}L AS version, h.closed, h.reopened,
            {merged("n.numbered", "h.numbered", True)} AS numbered,
            {merged("n.plain", "h.plain", False)} AS plain,
            {status("n.status", "h.status")} AS status,
            {_sorted(known)} AS boots
        FROM ({news}) n {"FULL" if every else "LEFT"} JOIN {{heads}} h ON h.device = n.device"""
    of_device = "numbered, plain, status"
    columns = f"device, version, boots, closed, reopened, {of_device}, bucket"
    text = f"SELECT {columns} FROM (SELECT *, {OPEN} AS bucket FROM ({rows}))"
    if every:
        over, gone = _before(now, OVER), _before(now, GONE)
        text = f"""
            WITH counted AS (
                SELECT *, CAST(IF(forall(boots, b -> {gone}), size(boots), greatest(
                    size(boots) - {BOOTS},
                    array_position(transform(boots, (b, i) ->
                        i = size(boots) - 1 OR NOT ({over})), true) - 1
                )) AS int) AS over FROM ({rows})
            ), parted AS (
                SELECT device, version, reopened, over, bucket = {OPEN} OR over = size(all) AS tip,
                    {of_device}, boots, closed, bucket
                FROM (SELECT * EXCEPT (boots, closed), boots AS all, inline(array(
                    struct(slice(boots, 1, over) AS boots, closed, {BUCKET} AS bucket),
                    struct(slice(boots, over + 1, size(boots)) AS boots,
                        {sums("slice(boots, 1, over)", "closed")} AS closed, {OPEN} AS bucket)
                )) FROM counted)
            )
            SELECT device, version, boots, closed, reopened, IF(tip, numbered, NULL) AS numbered,
                IF(tip, plain, NULL) AS plain, IF(tip, status, NULL) AS status, bucket
            FROM parted WHERE size(boots) > 0 OR bucket = {OPEN} AND over = 0"""
    return marked.sparkSession.sql(text, marked=marked, heads=heads, statuses=statuses)


_DELAY = number("(unix_micros(timestamp) - unix_micros(time))")
_RUNS = f"""
    SELECT device, collect_list(struct(*)) AS news FROM (
        SELECT device, boot,
            collect_list(IF(island IS NULL, NULL, struct(lo, hi, lo_at, hi_at))) AS runs,
            min(lo) AS lowest, min_by(lo_at, lo) AS lowest_at,
            max(hi) AS highest, max_by(hi_at, hi) AS highest_at,
            min(first) AS first, max(last) AS last, sum(received) AS received,
            sum(duplicates) AS duplicates, sum(reordered) AS reordered, sum(unsure) AS unsure,
            flatten(collect_list(bins)) AS bins
        FROM (
            SELECT device, boot, island, min(IF(fresh, seq, NULL)) AS lo,
                max(IF(fresh, seq, NULL)) AS hi,
                min_by(timestamp, IF(fresh, seq, NULL)) AS lo_at,
                max_by(timestamp, IF(fresh, seq, NULL)) AS hi_at,
                min(timestamp) AS first, max(timestamp) AS last, count_if(fresh) AS received,
                count_if(NOT fresh) AS duplicates, count_if(reordered) AS reordered,
                count_if(unsure) AS unsure,
                collect_list(IF(fresh AND timed, {_DELAY}, NULL)) AS bins
            FROM {{marked}} WHERE boot IS NOT NULL GROUP BY device, boot, island
        ) GROUP BY device, boot
    ) GROUP BY device"""
"""What a batch has of each boot: ranges of fresh numbers, and counts."""


def _sorted(some: str) -> str:
    """Return SQL for boots in their order."""
    return f"array_sort({some}, (x, y) -> CAST(signum(x.boot - y.boot) AS int))"


def _merged() -> str:
    """Return SQL for what is known of a boot: what is new, `n`, and what was known before."""
    ranges = """zip_with(
        filter(p, (x, i) -> i = 0 OR get(p, i - 1).hi < x.lo - 1),
        filter(p, (x, i) -> i = size(p) - 1 OR x.hi < get(p, i + 1).lo - 1),
        (x, y) -> struct(x.lo AS lo, y.hi AS hi, x.lo_at AS lo_at, y.hi_at AS hi_at))"""
    gaps = f"""IF(size(r) <= {RANGES}, NULL, transform(
        slice(r, 2, size(r) - {RANGES}), (x, i) -> struct(
            least({MOST}L, x.lo - r[i].hi - 1) AS missing, least(x.lo_at, r[i].hi_at) AS since,
            greatest(x.lo_at, r[i].hi_at) AS until)))"""
    left = "greatest(w.old_missing - n.unsure, 0L)"
    boot = f"""struct(
        n.boot, least(n.first, w.first) AS first, greatest(n.last, w.last) AS last,
        n.received + coalesce(w.received, 0L) AS received,
        n.duplicates + coalesce(w.duplicates, 0L) AS duplicates,
        n.reordered + coalesce(w.reordered, 0L) AS reordered,
        n.unsure + coalesce(w.unsure, 0L) AS unsure,
        least(n.lowest, w.lowest) AS lowest,
        IF(coalesce(n.lowest < w.lowest, w IS NULL), n.lowest_at, w.lowest_at) AS lowest_at,
        greatest(n.highest, w.highest) AS highest,
        IF(coalesce(n.highest > w.highest, w IS NULL), n.highest_at, w.highest_at) AS highest_at,
        IF(g IS NULL, w.floor, r[size(r) - {RANGES}].lo - 1) AS floor,
        IF(g IS NULL, {left}, aggregate(g, coalesce({left}, 0L),
            (a, x) -> least({MOST}L, a + x.missing))) AS old_missing,
        least(w.old_since, array_min(transform(g, x -> x.since))) AS old_since,
        greatest(w.old_until, array_max(transform(g, x -> x.until))) AS old_until,
        IF(g IS NULL, r, slice(r, -{RANGES}, {RANGES})) AS ranges,
        {added("w.delays", "n.bins")} AS delays)"""
    known = let("r", ranges, let("g", gaps, boot))
    pieces = "array_sort(concat(coalesce(w.ranges, array()), n.runs))"
    return let("w", "get(filter(h.boots, o -> o.boot = n.boot), 0)", let("p", pieces, known))


def _before(now: datetime.datetime | None, age: datetime.timedelta) -> str:
    """Return SQL for whether the last pack of a boot is so old."""
    return "false" if now is None else f"b.last < TIMESTAMP '{(now - age).isoformat()}'"


def sums(some: str, closed: str) -> str:
    """Return SQL for the sums of closed boots and some more."""
    begun = starts("b.boot", "a.boot")
    none = """named_struct('boots', 0L, 'reboots', 0L, 'first', CAST(NULL AS timestamp),
        'received', 0L, 'lost', 0L, 'unheard', 0L, 'duplicates', 0L, 'reordered', 0L,
        'unsure', 0L, 'boot', CAST(NULL AS bigint), 'at', CAST(NULL AS timestamp))"""
    return f"""IF(size({some}) = 0, {closed}, aggregate({some}, coalesce({closed}, {none}),
        (a, b) -> named_struct(
            'boots', a.boots + 1, 'reboots', a.reboots + {begun},
            'first', least(a.first, b.first), 'received', a.received + b.received,
            'lost', a.lost + {missing("b")} + IF({begun} > 0, {head("b")}, 0L),
            'unheard', a.unheard + IF({begun} > 0, 0L, {head("b")}),
            'duplicates', a.duplicates + b.duplicates,
            'reordered', a.reordered + b.reordered, 'unsure', a.unsure + b.unsure,
            'boot', b.boot, 'at', b.highest_at)))"""
