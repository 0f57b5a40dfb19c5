"""Windows of event time: what is in which, what came too late, and what their figures are."""

from __future__ import annotations

import datetime
import math
import statistics
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from flatmq_tools.pipeline.jobs import measurements, windows
from pipeline.messages import START, Message, frame, reading

HUNDREDTHS = st.integers(-4000, 8500)


def seconds(moment: datetime.datetime) -> float:
    return moment.astimezone(datetime.timezone.utc).timestamp() - START.timestamp()


def of(rows: list[object]) -> dict[tuple[str, float], object]:
    return {(row.device, seconds(row.start)): row for row in rows}  # type: ignore[attr-defined]


def test_the_figures_of_a_window(spark: SparkSession) -> None:
    """Of many windows at once: each is a device."""
    samples: list[list[int]] = []

    @settings(max_examples=60)
    @given(st.lists(HUNDREDTHS, min_size=1, max_size=40))
    def take(values: list[int]) -> None:
        samples.append(values)

    take()
    messages = [
        reading(f"d{device}", 1, n + 1, 30 + n / 1000, time=n % 60, temperature=value)
        for device, values in enumerate(samples)
        for n, value in enumerate(values)
    ]
    table = windows.windows(measurements.measurements(frame(spark, messages)))
    found = of(table.collect())
    assert len(found) == len(samples)
    for device, hundredths in enumerate(samples):
        values = sorted(value / 100 for value in hundredths)
        row = found[f"d{device}", 0.0]
        assert (row.quantity, row.unit, seconds(row.end)) == ("chip/temp", "Cel", 60)
        assert (row["count"], row["min"], row["max"]) == (len(values), values[0], values[-1])
        assert math.isclose(row["mean"], statistics.fmean(values), abs_tol=1e-9)
        for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert row[name] == values[math.ceil(part * len(values) - 1e-9) - 1], name


def test_texts_and_flags_are_in_none(spark: SparkSession) -> None:
    said = Message("dev/a/telemetry", b'[{"n":"a/door","vb":true},{"n":"a/says","vs":"x"}]')
    table = measurements.measurements(frame(spark, [said, reading("a", 1, 1, 1)]))
    assert [row.quantity for row in windows.windows(table).collect()] == ["chip/temp"]


def test_sliding(spark: SparkSession) -> None:
    table = measurements.measurements(frame(spark, [reading("a", 1, 1, 70)]))
    found = windows.windows(table, size="1 minute", slide="20 seconds").collect()
    assert sorted(seconds(row.start) for row in found) == [20, 40, 60]


def test_of_a_stream(streamed: Callable[..., list[object]]) -> None:
    """A window comes out when the newest reading is `late` past its end.

    What comes then is in none; what comes before is, once.
    """

    def job(messages: DataFrame) -> DataFrame:
        values = measurements.values(measurements.packs(messages), marked=True)
        return windows.windows(values, late="2 minutes")

    batches = [
        [reading("a", 1, 1, 0, temperature=100), reading("a", 1, 2, 20, temperature=200)],
        # A copy, and one that is late but not too late: the newest is of 2:50.
        [
            reading("a", 1, 6, 170),
            reading("a", 1, 2, 171, temperature=200),
            reading("a", 1, 3, 172, time=59, temperature=400),
        ],
        [reading("a", 1, 7, 200)],  # the first window is over: 3:20 - 2:00 > 1:00,
        [reading("a", 1, 10, 201)],  # which counts from the batch after
        [reading("a", 1, 4, 202, time=58, temperature=9999), reading("a", 1, 8, 600)],
        [reading("a", 1, 9, 601)],
    ]
    found = of(streamed(job, batches))
    first = found["a", 0.0]
    assert (first["count"], first["min"], first["max"], first["p50"]) == (3, 1.0, 4.0, 2.0)
    # The copy of 2:51 has the time of its arrival, as its pack has none, and is dropped by name.
    assert {key: row["count"] for key, row in found.items()} == {
        ("a", 0.0): 3, ("a", 120.0): 1, ("a", 180.0): 2,
    }  # fmt: skip
