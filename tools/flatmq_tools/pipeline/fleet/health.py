"""The tables health, devices and gaps, of the state of a fleet.

docs/tables.md says what their columns mean.
"""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame

from ..jobs.limits import MOST, QUIET, QUIET_UNNUMBERED
from . import boots
from .histogram import percentile
from .table import Table

_COUNTS = ("received", "lost", "unheard", "duplicates", "reordered")
_PARTS = (50, 95, 99)


class Health:
    """The tables, of the state as it is now.

    now           until when silence is counted; when the newest pack or status came, unless given
    silent_after  s without a pack after which a device is silent; unless given, 3 of its usual
                  intervals, or of the fleet's for a device that was heard only once
    """

    def __init__(
        self, state: Table, now: datetime.datetime | None = None, silent_after: float | None = None
    ) -> None:
        self._spark = state.spark
        files = state.files()
        of_open = [file for file in files if file.partition["bucket"] == boots.OPEN]
        of_closed = [file for file in files if file.partition["bucket"] != boots.OPEN]
        self._rows = self._spark.sql(
            """
            SELECT * EXCEPT (since) FROM (
                SELECT *, coalesce(max(reopened) OVER (PARTITION BY device), -1) AS since
                FROM (SELECT *, true AS open FROM {open} UNION ALL SELECT *, false FROM {closed})
            ) WHERE open OR version >= since""",
            open=boots.newest(state, of_open), closed=state.read(of_closed),
        )  # fmt: skip
        self._devices = self._known(now, silent_after)

    def _known(self, now: datetime.datetime | None, silent_after: float | None) -> DataFrame:
        """Return a row per device: its newest row, and whether it is silent."""
        until = f"TIMESTAMP '{now.isoformat()}'" if now is not None else "max(seen) OVER ()"
        after = "NULL" if silent_after is None else f"{float(silent_after)}D"
        usual, long = percentile("intervals", 0.5), percentile("intervals", 0.95)
        return self._spark.sql(
            f"""
            WITH tips AS (
                SELECT device, max_by(struct(*), struct(open, version)) AS tip
                FROM {{rows}} GROUP BY device
            ), paced AS (
                SELECT device, tip, tip.numbered IS NOT NULL AS is_numbered, tip.status,
                    coalesce(tip.numbered, tip.plain) AS pace,
                    coalesce(tip.numbered, tip.plain).intervals AS intervals,
                    greatest(tip.numbered.heard, tip.plain.first, tip.plain.heard, tip.status.at)
                        AS seen
                FROM tips
            ), usual AS (
                SELECT * EXCEPT (intervals), {usual} / 1e6D AS usual_s,
                    IF(is_numbered, {QUIET} * {usual}, {QUIET_UNNUMBERED} * {long}) / 1e6D AS own,
                    {until} AS now
                FROM paced
            ), fleet AS (
                SELECT *, coalesce({after}, own,
                    percentile_approx(own, 0.5, 10000) OVER (PARTITION BY is_numbered)) AS after_s,
                    (unix_micros(now) - unix_micros(pace.heard)) / 1e6D AS silent_s
                FROM usual
            )
            SELECT *, coalesce(silent_s > after_s AND NOT (is_numbered
                AND status.status <=> 'asleep'), false) AS silent FROM fleet
            """,
            rows=self._rows,
        )  # fmt: skip

    def devices(self) -> DataFrame:
        """Return the table devices."""
        known = {"received": "pace.received", "duplicates": "pace.duplicates"}
        counts = {
            name: f"""CASE WHEN is_numbered THEN total.{name} WHEN pace IS NULL THEN 0L
                ELSE {known.get(name, "NULL")} END AS {name}"""
            for name in ("reboots", *_COUNTS)
        }
        return self._spark.sql(
            f"""
            WITH summed AS (
                SELECT *, {boots.sums("tip.boots", "tip.closed")} AS total FROM {{devices}}
            )
            SELECT device, IF(is_numbered, total.boots, 0L) AS boots,
                {counts["reboots"]}, pace.first, pace.heard,
                {", ".join(counts[name] for name in _COUNTS)}, {_delays("pace.delays")},
                usual_s, silent_s, silent, status.status, status.at AS status_since
            FROM summed
            """,
            devices=self._devices,
        )  # fmt: skip

    def boots(self) -> DataFrame:
        """Return the table health."""
        begun = boots.starts("b.boot", "before")
        of_newest = ", ".join(
            f"IF(b.boot = d.pace.boot, {value}, NULL) AS {name}"
            for name, value in {
                "silent_s": "d.silent_s", "silent": "d.silent", "status": "d.status.status",
            }.items()
        )  # fmt: skip
        return self._spark.sql(
            f"""
            SELECT device, b.boot, b.first, b.last, b.received,
                least({boots.missing("b")} + IF(begun > 0, {boots.head("b")}, 0L), 2 * {MOST}L)
                    AS lost,
                IF(begun > 0, 0L, {boots.head("b")}) AS unheard, b.duplicates, b.reordered,
                {_delays("b.delays")}, begun AS reboots, {of_newest}
            FROM (SELECT *, {begun} AS begun FROM {{boots}}) JOIN {{devices}} d USING (device)
            """,
            boots=self._boots(), devices=self._devices,
        )  # fmt: skip

    def gaps(self) -> DataFrame:
        """Return the table gaps."""
        return self._spark.sql(
            f"""
            WITH lost AS (
                SELECT device, b.boot, inline(concat(
                    transform(slice(b.ranges, 2, size(b.ranges)), (r, i) -> struct(
                        b.ranges[i].hi_at AS since, r.lo_at AS until,
                        r.lo - b.ranges[i].hi - 1 AS missing)),
                    IF(before IS NOT NULL AND b.lowest > 1, array(struct(before_at AS since,
                        b.lowest_at AS until, b.lowest - 1 AS missing)), array()),
                    IF(b.old_missing > 0, array(struct(b.old_since AS since,
                        b.old_until AS until, b.old_missing AS missing)), array())
                )) FROM {{boots}}
            ), silences AS (
                SELECT device, after_s, inline(concat(pace.silences, IF(status.status <=> 'asleep',
                    array(), array(struct(pace.arrived AS since, now AS until, pace.boot)))))
                FROM {{devices}} WHERE is_numbered
            )
            SELECT device, boot, 'lost' AS kind, least(since, until) AS since,
                greatest(since, until) AS until, least(missing, {MOST}L) AS missing FROM lost
            UNION ALL
            SELECT device, boot, 'silent', since, until, NULL FROM silences
            WHERE (unix_micros(until) - unix_micros(since)) / 1e6D > after_s
            """,
            boots=self._boots(), devices=self._devices,
        )  # fmt: skip

    def _boots(self) -> DataFrame:
        """Return a row per boot, with the boot before and when its highest number came."""
        return self._spark.sql(
            """
            SELECT device, b, IF(i = 0, closed.boot, get(boots, i - 1).boot) AS before,
                IF(i = 0, closed.at, get(boots, i - 1).highest_at) AS before_at
            FROM (SELECT device, boots, closed, posexplode(boots) AS (i, b) FROM {rows})
            """,
            rows=self._rows,
        )


def _delays(found: str) -> str:
    """Return SQL for the percentiles of delays, in ms."""
    return ", ".join(f"{percentile(found, p / 100)} / 1000 AS delay_p{p}" for p in _PARTS)
