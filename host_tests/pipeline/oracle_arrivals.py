"""Devices whose messages have no numbers: what their arrivals alone say.

What was lost cannot be counted without a boot and a number. What can: when a device was heard, how
often it usually is, and messages that the broker marked as repeated.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from flatmq_tools.pipeline.jobs.limits import QUIET_UNNUMBERED

_BURST = 1.0  # s; messages that come closer together are one sign of life
_DELAYS = [0.5, 0.95, 0.99]


def unnumbered(packs: DataFrame) -> DataFrame:
    """Return the arrivals of packs without boot and seq.

    Columns: device, timestamp, offset, delay (ms; null unless the message has a time of its
    own), copy (the broker sent a retained message, or DUP).
    """
    delay = (F.unix_micros("timestamp") - F.unix_micros("time")) / 1000
    return packs.where("reason is null and boot is null").select(
        "device", "timestamp", "offset", F.when(F.col("told"), delay).alias("delay"),
        (F.coalesce("retain", F.lit(False)) | F.coalesce("dup", F.lit(False))).alias("copy"),
        F.coalesce("retain", F.lit(False)).alias("retained"),
    )  # fmt: skip


def devices(arrivals: DataFrame) -> DataFrame:
    """Return one row per device from the rows of `unnumbered`.

    Columns: device, first, heard (null if everything that came was retained: nobody knows when
    it was sent), received, duplicates, delays, usual_s (the median interval), after_s (silent
    after that many seconds).
    """
    live = ~F.col("retained")
    order = Window.partitionBy("device", "retained").orderBy("timestamp", "offset")
    since = (F.unix_micros("timestamp") - F.unix_micros(F.lag("timestamp").over(order))) / 1e6
    interval = F.when(live & (since >= _BURST), since)
    found = (
        arrivals.withColumn("interval", interval)
        .groupBy("device")
        .agg(
            F.min("timestamp").alias("first"),
            F.max(F.when(live, F.col("timestamp"))).alias("heard"),
            F.count_if(~F.col("copy")).alias("received"),
            F.count_if("copy").alias("duplicates"),
            F.percentile_approx(F.when(live, F.col("delay")), _DELAYS, 10_000).alias("delays"),
            F.percentile_approx("interval", 0.5, 10_000).alias("usual_s"),
            F.percentile_approx("interval", 0.95, 10_000).alias("long_s"),
        )
    )
    fleet = found.agg(F.percentile_approx("long_s", 0.5, 10_000).alias("fleet_s"))
    return (
        found.crossJoin(F.broadcast(fleet))
        .withColumn("after_s", QUIET_UNNUMBERED * F.coalesce("long_s", "fleet_s"))
        .drop("long_s", "fleet_s")
    )
