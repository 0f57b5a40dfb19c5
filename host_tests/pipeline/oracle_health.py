"""The tables health, devices and gaps as they must be: asked of Spark, of all messages at once.

Of packs that arrived at the same time, the one with the lower `offset` is the first and the others
are copies.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from flatmq_tools.pipeline.jobs.columns import messages
from flatmq_tools.pipeline.jobs.limits import FAR, MOST, QUIET
from flatmq_tools.pipeline.jobs.measurements import packs as parsed
from pipeline import oracle_arrivals as arrivals

_TOPICS = r"^dev/[^/+#]*/status(?![\s\S])"
_STATUS = 32  # characters of a status that are kept
_BOOT = ("device", "boot")
_COUNTS = ("received", "lost", "unheard", "duplicates", "reordered")


class Health:
    """The packs of some messages and what they show: `boots`, `devices` and `gaps`.

    status  regular expression of the topics of statuses; the second level names the device
    packs   what `measurements.packs` makes of the messages, if that is there already
    """

    def __init__(
        self, frame: DataFrame, status: str = _TOPICS, packs: DataFrame | None = None
    ) -> None:
        self._messages = messages(frame)
        self._now = F.broadcast(self._messages.agg(F.max("timestamp").alias("now")))
        self._status = self._newest_status(status)
        if packs is None:
            packs = parsed(frame)
        self._unnumbered = arrivals.unnumbered(packs)
        self.packs = self._marked(packs)
        """One row a pack that came: device, boot, seq, timestamp, offset, delay (ms; null where
        the pack has no time of its own), and copy, reordered."""
        self._kept: dict[str, DataFrame] | None = None

    def __enter__(self) -> Health:
        self.packs = self.packs.persist(StorageLevel.DISK_ONLY)  # of however many there are
        self._unnumbered = self._unnumbered.persist(StorageLevel.DISK_ONLY)
        self._kept = {}
        return self

    def __exit__(self, *_: object) -> None:
        for frame in (self._kept or {}).values():
            frame.unpersist()
        self._kept = None
        self.packs.unpersist()
        self._unnumbered.unpersist()

    def _once(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """Return what several tables are made of; inside the context manager, make it once."""
        if self._kept is None:
            return make()
        if name not in self._kept:
            self._kept[name] = make().persist()
        return self._kept[name]

    def _newest_status(self, topics: str) -> DataFrame:
        newest = F.struct("timestamp", "offset")
        # Whatever it is: `decode` would end the query for bytes that are not UTF-8.
        text = F.substring(F.make_valid_utf8(F.col("payload").cast("string")), 1, _STATUS)
        told = F.max_by(F.struct(text.alias("status"), F.col("timestamp").alias("since")), newest)
        return (
            self._messages.where(F.col("topic").rlike(topics))
            .groupBy(F.get(F.split("topic", "/"), F.lit(1)).alias("device"))
            .agg(told.alias("told"))
            .where("device is not null")
            .select(
                "device",
                F.when(F.col("told.status") != "", F.col("told.status")).alias("status"),
                F.col("told.since").alias("status_since"),
            )
        )

    def _marked(self, packs: DataFrame) -> DataFrame:
        arrival = ("timestamp", "offset")
        same = Window.partitionBy(*_BOOT, "seq").orderBy(*arrival)
        before = Window.partitionBy(*_BOOT).orderBy(*arrival).rowsBetween(
            Window.unboundedPreceding, -1
        )  # fmt: skip
        delay = (F.unix_micros("timestamp") - F.unix_micros("time")) / 1000
        return (
            packs.where("reason is null and boot is not null")
            .select(
                *_BOOT, "seq", *arrival, F.when(F.col("told"), delay).alias("delay"),
                (F.row_number().over(same) > 1).alias("copy"),
            )
            .withColumn("highest", F.max("seq").over(before))
            .withColumn("reordered", F.expr("not copy and seq < coalesce(highest, 0)"))
            .drop("highest")
        )  # fmt: skip

    def _first(self) -> DataFrame:
        return self.packs.where(~F.col("copy"))

    def _boots(self) -> DataFrame:
        """Per boot, without what is known of the device."""
        return self._once("boots", self._made_boots)

    def _made_boots(self) -> DataFrame:
        once = ~F.col("copy")
        delays = F.percentile_approx(F.when(once, F.col("delay")), [0.5, 0.95, 0.99], 10_000)
        boots = self.packs.groupBy(*_BOOT).agg(
            F.min("timestamp").alias("first"),
            F.max("timestamp").alias("last"),
            F.count_if(once).alias("received"),
            F.min("seq").alias("lowest"),
            F.max("seq").alias("highest"),
            F.count_if("copy").alias("duplicates"),
            F.count_if("reordered").alias("reordered"),
            delays.alias("delays"),
        )
        # Boots count up, whatever order their readings came in.
        of_device = Window.partitionBy("device").orderBy("boot")
        step = F.col("boot") - F.lag("boot").over(of_device)
        starts = F.when(step.isNull(), 0).when(step > FAR, 1).otherwise(step)
        # Whoever heard an earlier boot was there when this one began, with number 1.
        whole = F.col("starts") > 0
        most = F.lit(MOST)
        missing = F.col("highest") - F.col("lowest") - (F.col("received") - 1)
        missing = F.least(missing, most)
        head = F.least(F.greatest(F.col("lowest") - 1, F.lit(0)), most)
        return (
            boots.withColumn("starts", starts)
            .withColumn("lost", missing + F.when(whole, head).otherwise(0))
            .withColumn("unheard", F.when(whole, 0).otherwise(head))
        )

    def boots(self) -> DataFrame:
        return (
            self._boots()
            .join(self._known(), "device")
            .select(
                *_BOOT, "first", "last", "received", "lost", "unheard", "duplicates", "reordered",
                *_percentiles("delays"), F.col("starts").alias("reboots"),
                *(F.when(F.col("boot") == F.col("newest"), F.col(name)).alias(name)
                  for name in ("silent_s", "silent", "status")),
            )
        )  # fmt: skip

    def _known(self) -> DataFrame:
        """Per device with packs: its last one, how long it is silent, and its status."""
        intervals = self._intervals()
        order = F.when(~F.col("copy"), F.struct("timestamp", "offset"))
        last = self.packs.groupBy("device").agg(
            F.max("timestamp").alias("heard"), F.max_by("boot", order).alias("newest")
        )
        return (
            last.join(intervals, "device")
            .join(self._status, "device", "left")
            .crossJoin(self._now)
            .select(
                "device", "heard", "newest", "usual_s", "status", "status_since",
                _seconds("heard", "now").alias("silent_s"),
                F.coalesce(
                    (_seconds("heard", "now") > F.col("after_s"))
                    & ~F.col("status").eqNullSafe("asleep"),
                    F.lit(False),
                ).alias("silent"),
            )
        )  # fmt: skip

    def _arrivals(self) -> DataFrame:
        """The first arrivals with the one before, of any boot: since, until."""
        order = Window.partitionBy("device").orderBy("timestamp", "offset")
        return self._first().select(
            *_BOOT,
            F.lag("timestamp").over(order).alias("since"),
            F.col("timestamp").alias("until"),
        )

    def _intervals(self) -> DataFrame:
        """Per device: usual_s, the median time between packs, and after_s, when it is silent."""
        return self._once("intervals", self._made_intervals)

    def _made_intervals(self) -> DataFrame:
        own = self._arrivals().groupBy("device").agg(
            F.percentile_approx(_seconds("since", "until"), 0.5, 10_000).alias("usual_s")
        )  # fmt: skip
        fleet = own.agg(F.percentile_approx("usual_s", 0.5, 10_000).alias("fleet_s"))
        after = QUIET * F.coalesce("usual_s", "fleet_s")
        return own.crossJoin(F.broadcast(fleet)).select(
            "device", "usual_s", after.alias("after_s")
        )

    def _without_numbers(self) -> DataFrame:
        """Devices of which no pack has numbers, with what their arrivals say."""
        numbered = self.packs.select("device").distinct()
        found = arrivals.devices(self._unnumbered.join(numbered, "device", "left_anti"))
        silent = _seconds("heard", "now")
        awake = ~F.col("status").eqNullSafe("asleep")
        return found.join(self._status, "device", "left").crossJoin(self._now).select(
            "device", "first", "heard", "received", "duplicates", "delays", "usual_s",
            silent.alias("silent_s"), ((silent > F.col("after_s")) & awake).alias("silent"),
        )  # fmt: skip

    def devices(self) -> DataFrame:
        """Return one row per device that sent a pack or a status.

        Columns: device, boots (that were heard), reboots, first, heard (the last pack),
        received, lost, unheard, duplicates, reordered, delay_p50, delay_p95, delay_p99
        (ms), usual_s (the median interval), silent_s, silent, status, status_since.
        `arrivals` says what these are for devices whose packs have no numbers; they have
        no boots, and null for reboots, lost, unheard and reordered.
        """
        delays = self._first().groupBy("device").agg(
            F.percentile_approx("delay", [0.5, 0.95, 0.99], 10_000).alias("delays")
        )  # fmt: skip
        sums = self._boots().groupBy("device").agg(
            F.count("*").alias("boots"), F.sum("starts").alias("reboots"),
            F.min("first").alias("first"),
            *(F.sum(name).alias(name) for name in _COUNTS),
        )  # fmt: skip
        packs = sums.join(delays, "device").join(
            self._known().drop("newest", "status", "status_since"), "device"
        )
        packs = packs.unionByName(self._without_numbers(), allowMissingColumns=True)
        joined = packs.join(self._status, "device", "full")
        counts = ("boots", "reboots", *_COUNTS)
        zero = {name: F.coalesce(F.col(name), F.lit(0)).alias(name) for name in counts}
        unknown = F.col("boots").isNull() & F.col("first").isNotNull()
        for name in ("reboots", "lost", "unheard", "reordered"):
            zero[name] = F.when(~unknown, zero[name]).alias(name)
        return joined.select(
            "device", zero["boots"], zero["reboots"], "first", "heard", zero["received"],
            zero["lost"], zero["unheard"], zero["duplicates"], zero["reordered"],
            *_percentiles("delays"), "usual_s", "silent_s",
            F.coalesce("silent", F.lit(False)).alias("silent"), "status", "status_since",
        )  # fmt: skip

    def gaps(self) -> DataFrame:
        """Return what is missing, and when: device, boot, kind, since, until, missing.

        "lost": `missing` numbers, between the arrivals of the one before (of the boot before,
        where they are its first) and the one after. "silent": longer without a pack than a silent
        board may be; `missing` is null. The last ends now.
        """
        arrival = Window.partitionBy("device").orderBy("boot", "seq")
        before = {c: F.lag(c).over(arrival) for c in ("boot", "seq", "timestamp")}
        same = F.col("boot") == F.col("before.boot")
        missing = F.when(same, F.col("seq") - F.col("before.seq") - 1).otherwise(F.col("seq") - 1)
        lost = (
            self._first()
            .withColumn("before", F.struct(*(value.alias(c) for c, value in before.items())))
            .where("before.boot is not null")
            .withColumn("missing", missing)
            .where("missing > 0")
            .select(
                *_BOOT, F.lit("lost").alias("kind"),
                F.least("before.timestamp", "timestamp").alias("since"),
                F.greatest("before.timestamp", "timestamp").alias("until"), "missing",
            )
        )  # fmt: skip
        newest = F.max_by("boot", F.struct("timestamp", "offset")).alias("boot")
        open_end = (
            self._first()
            .groupBy("device")
            .agg(newest, F.max("timestamp").alias("since"))
            .crossJoin(self._now)
            .withColumnRenamed("now", "until")
            # One that is asleep is not silent; whether it slept before is not known.
            .join(self._status, "device", "left")
            .where("not (status <=> 'asleep')")
            .select(*_BOOT, "since", "until")
        )
        silent = (
            self._arrivals()
            .union(open_end)
            .join(self._intervals(), "device")
            .where(_seconds("since", "until") > F.col("after_s"))
            .select(
                *_BOOT, F.lit("silent").alias("kind"), "since", "until",
                F.lit(None).cast("bigint").alias("missing"),
            )
        )  # fmt: skip
        return lost.union(silent)


def _seconds(since: str, until: str) -> Column:
    return (F.unix_micros(until) - F.unix_micros(since)) / 1e6


def _percentiles(column: str) -> list[Column]:
    return [F.col(column)[n].alias(f"delay_p{p}") for n, p in enumerate((50, 95, 99))]
