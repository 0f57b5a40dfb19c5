"""Windows of event time: the figures of each quantity of a device, minute by minute."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PERCENTILES = (0.5, 0.95, 0.99)
_ACCURACY = 10_000
MARKS = ("identity", "position")


def windows(
    measurements: DataFrame, size: str = "1 minute", slide: str | None = None,
    late: str = "10 minutes",
) -> DataFrame:  # fmt: skip
    """Return statistics of the numbers in each window of time of the readings.

    Windows of `size` begin every `slide`, by default `size`. Texts and flags have no mean and
    are left out.

    Columns: device, quantity, unit, start, end, count, min, max, mean, p50, p95, p99. A
    percentile is a value that was measured, by nearest rank; exact up to 10,000 different values
    in a window.

    Of the measurements table, as a batch, everything is in it. Of a stream, a window comes out
    (mode "append") when the newest reading of all devices is `late` past its end, and readings
    that come later than that are not in it: a single board whose clock is ahead makes those of all
    others late. `pipeline.open_windows` keeps the progress of time for each device instead.

    Spark allows one watermark a stream, and `once` has taken it: give this one the stream of the
    measurements table, or `values(packs(messages), marked=True)`, of which it drops the copies by
    itself: the state then holds the values of a window and of `late`.
    """
    numbers = measurements.where("value is not null")
    if numbers.isStreaming:
        numbers = numbers.withWatermark("time", late)
    if {*MARKS} <= {*numbers.columns}:
        if numbers.isStreaming:
            numbers = numbers.dropDuplicatesWithinWatermark([*MARKS])
        else:
            numbers = numbers.dropDuplicates([*MARKS])
    window = F.window("time", size, slide) if slide else F.window("time", size)
    percentiles = F.percentile_approx("value", list(PERCENTILES), _ACCURACY)
    return (
        numbers.groupBy("device", "quantity", "unit", window.alias("window"))
        .agg(
            F.count("*").alias("count"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.mean("value").alias("mean"),
            percentiles.alias("percentiles"),
        )
        .select(
            "device", "quantity", "unit",
            F.col("window.start").alias("start"), F.col("window.end").alias("end"),
            "count", "min", "max", "mean",
            *(F.col("percentiles")[n].alias(f"p{p * 100:.0f}") for n, p in enumerate(PERCENTILES)),
        )
    )  # fmt: skip
