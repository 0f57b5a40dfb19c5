"""Windows of event time: the figures of each quantity of a device, minute by minute."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PERCENTILES = (0.5, 0.95, 0.99)
_ACCURACY = 10_000


def windows(measurements: DataFrame, size: str = "1 minute") -> DataFrame:
    """Return statistics of the numbers in each window of time of the readings of a batch.

    Texts and flags have no mean and are left out. Of a stream, `pipeline.open_windows` makes
    windows, with the progress of time kept for each device.

    Columns: device, quantity, unit, start, end, count, min, max, mean, p50, p95, p99. A
    percentile is a value that was measured, by nearest rank; exact up to 10,000 different values
    in a window.
    """
    percentiles = F.percentile_approx("value", list(PERCENTILES), _ACCURACY)
    return (
        measurements.where("value is not null")
        .groupBy("device", "quantity", "unit", F.window("time", size).alias("window"))
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
