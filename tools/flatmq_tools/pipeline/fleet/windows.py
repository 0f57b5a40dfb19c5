"""Windows of measurements, with the progress of time kept for each device.

A window of a device comes out when readings of that device have passed it, or when the device has
been silent. The state has the values of windows that are open, how far each device has come, and
the clock of arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..jobs.windows import PERCENTILES
from .job import Made
from .table import File, Table

SIZE = 60_000_000
"""us of a window"""
LATE = 600_000_000
"""us that a reading of a device may be behind its newest one and still be in its window."""
QUIET = 3_600_000_000
"""us after which a device that sends nothing counts as silent, and its windows come out."""
STEP = 60_000_000
"""The most us by which one arrival moves the clock of arrivals on from the one before. So a step
of the receiver's clock makes nobody silent, and neither does a receiver that was away."""
_RESET = 3_600_000_000  # us by which arrivals must go back for the clock to follow

READ = (
    "device string, quantity string, unit string, time timestamp, value double, received timestamp"
)
"""The columns of measurements that are read."""
WINDOWS = """device string, quantity string, unit string, start timestamp, end timestamp,
    count bigint, min double, max double, mean double, p50 double, p95 double, p99 double"""
STATE = """device string, quantity string, unit string, start bigint, values array<double>,
    newest bigint, heard bigint, closed bigint"""
"""Of each kind of row some columns; times are us since 1970. A device has its newest reading, what
the clock of arrivals was when it was heard, and the end of the windows that have come out. The
clock has itself as `heard` and the newest arrival as `newest`."""
BY = {"kind": "string"}
OUTPUT = "windows"


class Windows:
    """The work of a job that makes windows of measurements.

    state     its table
    too_late  is called with how many readings of a batch came after their window had come out, and
              the device of one of them
    """

    def __init__(
        self, state: Table, size: int = SIZE, late: int = LATE, quiet: int = QUIET,
        too_late: Callable[[int, str], None] = lambda count, device: None,
    ) -> None:  # fmt: skip
        self._state = state
        self._size, self._late, self._quiet = size, late, quiet
        self._too_late = too_late

    @contextmanager
    def __call__(self, measurements: DataFrame, end: int) -> Iterator[Made]:
        spark = self._state.spark
        files = self._state.files()
        of = {
            kind: [file for file in files if file.partition["kind"] == kind]
            for kind in ("clock", "device", "value")
        }
        rows = spark.sql(
            """
            SELECT device, quantity, unit, value, unix_micros(time) AS time,
                unix_micros(received) AS received
            FROM {rows} WHERE value IS NOT NULL AND time IS NOT NULL AND received IS NOT NULL
            """,
            rows=measurements,
        ).persist()
        clock, last = self._clock(of["clock"], rows)
        devices = self._devices(of["device"], rows, clock).persist()
        (bound,) = devices.agg(F.max("closed")).first() or (None,)
        read = [file for file in of["value"] if bound is not None and file.least["start"] < bound]
        values = self._values(read, rows, devices).persist()
        try:
            yield Made(
                {OUTPUT: self._out(values)},
                self._kept(values, devices, clock, last),
                [*of["clock"], *of["device"], *read],
            )
            late = rows.join(devices, "device").where(f"{self._end('time')} <= was")
            found = late.agg(F.count("*"), F.any_value("device")).first()
            if found is not None and found[0]:
                self._too_late(*found)
        finally:
            for frame in (rows, devices, values):
                frame.unpersist()

    def _end(self, time: str) -> str:
        """Return SQL for the end of the window that a time is in."""
        return f"({time} - pmod({time}, {self._size}L) + {self._size}L)"

    def _clock(self, files: list[File], rows: DataFrame) -> tuple[int, int | None]:
        """Return the clock of arrivals and the newest arrival, after a batch."""
        known = self._state.read(files).select("heard", "newest").first()
        clock, last = (0, None) if known is None else known
        first, newest = rows.agg(F.min("received"), F.max("received")).first() or (None, None)
        if newest is None:
            return clock, last
        if last is None or newest < last - _RESET:  # the receiver's clock went back
            last = first
        # No interval within a step is longer than it.
        row = rows.sparkSession.sql(
            f"""
            SELECT sum(greatest(begin - coalesce(before, {last}L) - {STEP}L, 0L)), max(finish)
            FROM (
                SELECT begin, finish, lag(finish) OVER (ORDER BY begin) AS before FROM (
                    SELECT min(received) AS begin, max(received) AS finish FROM {{rows}}
                    WHERE received > {last}L GROUP BY received div {STEP}L
                )
            )
            """,
            rows=rows,
        ).first()
        if row is None or row[1] is None:
            return clock, last
        return clock + row[1] - last - row[0], row[1]

    def _devices(self, files: list[File], rows: DataFrame, clock: int) -> DataFrame:
        """Return how far each device has come after a batch; `was` is how far it had before."""
        return rows.sparkSession.sql(
            f"""
            WITH together AS (
                SELECT coalesce(n.device, d.device) AS device, d.closed AS was,
                    greatest(d.newest, n.newest) AS newest,
                    IF(n.device IS NULL, d.heard, {clock}L) AS heard
                FROM {{devices}} d FULL JOIN (
                    SELECT device, max(time) AS newest FROM {{rows}} GROUP BY device
                ) n ON n.device = d.device
            ), reached AS (
                SELECT *, newest - {self._late}L - pmod(newest - {self._late}L, {self._size}L)
                    AS passed
                FROM together
            )
            SELECT *, greatest(was, passed,
                IF({clock}L - heard >= {self._quiet}L, {self._end("newest")}, NULL)) AS closed
            FROM reached
            """,
            devices=self._state.read(files), rows=rows,
        )  # fmt: skip

    def _values(self, files: list[File], rows: DataFrame, devices: DataFrame) -> DataFrame:
        """Return the values of each window that was open before, or has come since."""
        return rows.sparkSession.sql(
            f"""
            WITH fresh AS (
                SELECT r.device, quantity, unit, time - pmod(time, {self._size}L) AS start,
                    collect_list(value) AS values
                FROM {{rows}} r JOIN {{devices}} d ON r.device = d.device
                WHERE was IS NULL OR {self._end("time")} > was
                GROUP BY r.device, quantity, unit, time - pmod(time, {self._size}L)
            ), together AS (
                SELECT device, quantity, unit, start, flatten(collect_list(values)) AS values
                FROM (
                    SELECT device, quantity, unit, start, values FROM {{known}}
                    UNION ALL SELECT * FROM fresh
                ) GROUP BY device, quantity, unit, start
            )
            SELECT t.*, start + {self._size}L <= closed AS out
            FROM together t JOIN {{devices}} d ON t.device = d.device
            """,
            rows=rows, devices=devices, known=self._state.read(files),
        )  # fmt: skip

    def _out(self, values: DataFrame) -> DataFrame:
        """Return the windows that come out."""
        ranks = ", ".join(
            f"v[CAST(ceil({part}D * size(v) - 1e-9D) AS int) - 1] AS p{part * 100:.0f}"
            for part in PERCENTILES
        )
        return values.sparkSession.sql(
            f"""
            SELECT device, quantity, unit, timestamp_micros(start) AS start,
                timestamp_micros(start + {self._size}L) AS end, CAST(size(v) AS bigint) AS count,
                v[0] AS min, v[size(v) - 1] AS max,
                -- A sum of values near the largest double is past it.
                IF(abs(sum) < double('inf'), sum / size(v), v[0]) AS mean, {ranks},
                to_date(timestamp_micros(start)) AS day
            FROM (SELECT *, aggregate(v, 0D, (a, x) -> a + x) AS sum FROM (
                SELECT * EXCEPT (values), sort_array(values) AS v FROM {{values}} WHERE out
            ))
            """,
            values=values,
        )  # fmt: skip

    def _kept(
        self, values: DataFrame, devices: DataFrame, clock: int, last: int | None
    ) -> DataFrame:
        """Return the rows of the state."""
        nothing = "CAST(NULL AS string)"
        newest = "CAST(NULL AS bigint)" if last is None else f"{last}L"
        return values.sparkSession.sql(
            f"""
            SELECT device, quantity, unit, start, values, NULL AS newest, NULL AS heard,
                NULL AS closed, 'value' AS kind FROM {{values}} WHERE NOT out
            UNION ALL SELECT device, NULL, NULL, NULL, NULL, newest, heard, closed, 'device'
            FROM {{devices}}
            UNION ALL SELECT {nothing}, NULL, NULL, NULL, NULL, {newest}, {clock}L, NULL, 'clock'
            """,
            values=values, devices=devices,
        )  # fmt: skip
