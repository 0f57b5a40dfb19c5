"""The figures of the report from the table raw: asked of Spark, through the jobs."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .. import progress
from ..jobs import measurements
from ..jobs.columns import MESSAGE
from ..jobs.health import Health
from ..mapping.mapping import Mapping
from . import figures as shared
from . import values
from .figures import (
    GAP_DEVICES,
    GAPS,
    NEWEST,
    RAW,
    Dead,
    Device,
    Figures,
    Gap,
    Heard,
    Moment,
    Reboot,
    ReportError,
    Value,
)  # fmt: skip
from .period import Period

_PACK = (
    "device", "boot", "seq", "time", "told", "records", "reason", "timestamp", "offset", "retain",
    "dup",
)  # fmt: skip
_EVERYTHING = Period()
_SECONDS = 200_000  # at most, for which arrivals are fetched one by one


def of_tables(
    spark: SparkSession, folder: Path, identity: str = "topic", mapping: Mapping | None = None,
    period: Period = _EVERYTHING,
) -> Figures:  # fmt: skip
    """Return the figures of the tables in `folder`. Raises ReportError and PeriodError.

    They are the Delta table raw, and the batches that `progress` keeps, if any. `identity` and
    `mapping` are as for `measurements.packs`.
    """
    newest = None
    if period.relative:
        found = table(spark, folder / RAW).agg(F.max("timestamp").alias("newest")).collect()[0]
        newest = None if found.newest is None else _utc(found.newest)
    since, until = period.of(newest)
    raw = table(spark, folder / RAW, since, until)
    figures = of_messages(raw, identity, mapping)
    values.out_of_time(figures, folder, since, until)
    if since is not None:
        # What was before is not known, and not unheard.
        figures.devices = [device._replace(unheard=0) for device in figures.devices]
    batches = shared.batches(progress.lines(folder), figures.since)
    figures.batches = shared.within(batches, figures.since, since, until)
    if figures.batches:
        _waited(figures, raw)
    return figures


def _waited(figures: Figures, raw: DataFrame) -> None:
    """The depth of the spool, of all that came."""
    width = max(1.0, figures.span / _SECONDS)
    came = sorted(
        (row.n, row["count"])
        for row in raw.groupBy(_bucket(width).alias("n")).count().collect()
    )  # fmt: skip
    start = figures.since.timestamp()
    ends = [(n + 1) * width - start for n, _ in came]
    shared.waited(figures, ends, [count for _, count in came])


def table(
    spark: SparkSession, folder: Path, since: datetime.datetime | None = None,
    until: datetime.datetime | None = None,
) -> DataFrame:  # fmt: skip
    """Return the messages of a stretch of time in a Delta table.

    If it is partitioned by day, only the days of the stretch are read. Raises ReportError.
    """
    files: list[str] = []
    if DeltaTable.is_deltatable(str(folder)):
        delta = DeltaTable(folder)
        by_day = delta.metadata().partition_columns == ["day"]
        days = _days(since, until) if by_day else []
        files = delta.file_uris(file_pruning_predicate=days or None)
    if not files:
        raise ReportError(
            f"{folder} has no messages: is it the folder that the jobs write to?"
            if since is None and until is None
            else f"{folder} has no messages between --since and --until"
        )
    schema = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
    rows = spark.read.schema(schema).parquet(*files)
    if since is not None:
        rows = rows.where(F.unix_micros("timestamp") >= _micros(since))
    if until is not None:
        rows = rows.where(F.unix_micros("timestamp") < _micros(until))
    return rows


def _days(
    since: datetime.datetime | None, until: datetime.datetime | None
) -> list[tuple[str, str, str]]:
    """The days of a stretch of time, as a filter of Delta."""
    found = []
    if since is not None:
        found.append(("day", ">=", f"{since:%Y-%m-%d}"))
    if until is not None:
        last = until - datetime.timedelta(microseconds=1)
        found.append(("day", "<=", f"{last:%Y-%m-%d}"))
    return found


def _micros(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1e6)


def of_messages(
    frame: DataFrame, identity: str = "topic", mapping: Mapping | None = None
) -> Figures:
    """Return the figures of a batch of messages. Raises ReportError if there are none."""
    # Parsed once, and kept on the disk: a driver has 1 GB of memory unless configured otherwise.
    parsed = measurements.packs(frame, identity=identity, mapping=mapping).select(*_PACK)
    packs = parsed.persist(StorageLevel.DISK_ONLY)
    try:
        with Health(frame, packs=packs) as health:
            return _asked(frame, packs, health)
    finally:
        packs.unpersist()


def _asked(frame: DataFrame, packs: DataFrame, health: Health) -> Figures:
    ends = frame.agg(
        F.min("timestamp").alias("since"), F.max("timestamp").alias("until"),
        F.count("*").alias("n"),
    ).collect()[0]  # fmt: skip
    if not ends.n:
        raise ReportError("there are no messages")
    figures = Figures(_utc(ends.since), _utc(ends.until), ends.n)
    start = figures.since
    figures.step = shared.steps(figures.span, figures.messages)
    rows = health.devices().collect()
    figures.devices = sorted((_device(row, start) for row in rows), key=lambda d: d.name)
    usual = (row.usual_s for row in rows if row.usual_s is not None)
    figures.wide = shared.wide(usual, figures.step)
    _over_time(figures, frame, health)
    _gaps(figures, health.gaps())
    figures.reboots = [
        Reboot(r.device, r.boot, _after(r["first"], start), r.reboots)
        for r in health.boots().where("reboots > 0").orderBy("first").collect()
    ]
    figures.newest = _newest(packs, start)
    counted = measurements.counted(packs.where("reason is not null"))
    figures.dead = [Dead(row.kind, row["count"]) for row in counted.collect()]
    return figures


def _gaps(figures: Figures, gaps: DataFrame) -> None:
    """All gaps of the devices that have most."""
    kept = gaps.persist(StorageLevel.DISK_ONLY)
    try:
        silence = (F.unix_micros("until") - F.unix_micros("since")) / 1e6
        of = kept.groupBy("device").agg(
            F.sum(F.coalesce("missing", F.lit(0))).alias("missing"),
            F.sum(F.when(F.col("kind") == "silent", silence).otherwise(0.0)).alias("silent"),
            F.min(F.when(F.col("kind") == "lost", F.col("until"))).alias("first"),
            F.max(F.when(F.col("kind") == "lost", F.col("until"))).alias("last"),
        )
        rows = of.collect()
        figures.paused = sum(row.silent > 0 for row in rows)
        ends = {
            row.device: (_after(row.first, figures.since), _after(row.last, figures.since))
            for row in rows if row.first is not None
        }  # fmt: skip
        figures.devices = shared.losing(figures.devices, ends)
        when = (F.floor(F.unix_micros("until") / (figures.step * 1e6)) + 0.5) * figures.step
        lost = kept.where("kind = 'lost'").groupBy(when.alias("at"))
        shared.losses(
            figures,
            ((row.at - figures.since.timestamp(), row.missing)
             for row in lost.agg(F.sum("missing").alias("missing")).collect()),
        )  # fmt: skip
        chosen = set()
        for name in ("missing", "silent"):
            most = sorted(rows, key=lambda r: (-r[name], r.device))[:GAP_DEVICES]
            chosen |= {row.device for row in most if row[name]}
        found = kept.where(F.col("device").isin(sorted(chosen)))
        order = (F.desc_nulls_last("missing"), "since")
        figures.gaps = [
            Gap(r.device, r.kind, _after(r.since, figures.since), _after(r.until, figures.since),
                r.missing)
            for r in found.orderBy(*order).limit(GAPS).collect()
        ]  # fmt: skip
    finally:
        kept.unpersist()


def _over_time(figures: Figures, frame: DataFrame, health: Health) -> None:
    """Messages and delays by `step`, boards by `wide`."""
    start = figures.since.timestamp()
    moment = _bucket(figures.step)
    counts = {row.n: row["count"] for row in frame.groupBy(moment.alias("n")).count().collect()}
    parts = [0.5, 0.95, 0.99]
    delay = F.percentile_approx("delay", parts, 10_000).alias("parts")
    told = health.heard.where("not copy and delay is not null")
    delays = {row.n: row.parts for row in told.groupBy(moment.alias("n")).agg(delay).collect()}
    first = int(start // figures.step)
    for n, at in enumerate(shared.begins(figures.since, figures.span, figures.step), first):
        p50, p95, p99 = delays.get(n, (None, None, None))
        figures.moments.append(Moment(at, counts.get(n, 0), p50, p95, p99))
    whole = told.agg(delay).collect()[0].parts
    figures.delays = tuple(whole) if whole else (None, None, None)
    by_device = health.heard.groupBy("device").agg(
        F.collect_set(_bucket(figures.wide)).alias("all")
    )  # fmt: skip
    every = [set(row["all"]) for row in by_device.collect()]
    firsts = [min(buckets) for buckets in every]
    first = int(start // figures.wide)
    for n, at in enumerate(shared.begins(figures.since, figures.span, figures.wide), first):
        heard = sum(n in buckets for buckets in every)
        figures.heard.append(Heard(at, heard, sum(begun <= n for begun in firsts)))


def _bucket(seconds: float) -> Any:
    """A stretch of so many seconds, counted from 1970."""
    return F.floor(F.unix_micros("timestamp") / (seconds * 1e6))


def _newest(packs: DataFrame, start: datetime.datetime) -> list[Value]:
    last = F.max_by(F.struct("unit", "value", "text", "flag", "time"), "time").alias("last")
    exploded = packs.where("reason is null").select(
        "device", F.explode("records").alias("record"), F.col("timestamp").alias("received")
    )
    readings = exploded.select("device", "received", "record.*")
    rows = (
        # A board whose clock is in another year would be the newest for years.
        measurements.in_time(readings, measurements.Bounds())
        .where("coalesce(string(value), text, string(flag)) is not null")
        .groupBy("device", "quantity")
        .agg(last)
        .select("device", "quantity", "last.*")
        .orderBy(F.desc("time"), "device", "quantity")
        .limit(NEWEST)
        .collect()
    )
    newest = []
    for row in rows:
        value = next(v for v in (row.value, row.text, row.flag) if v is not None)
        newest.append(Value(row.device, row.quantity, row.unit, value, _after(row.time, start)))
    return sorted(newest)


def _device(row: Any, start: datetime.datetime) -> Device:
    return Device(
        row.device, row.boots, row.reboots or 0, row.received, row.lost or 0, row.unheard or 0,
        row.duplicates, row.reordered or 0, row.delay_p50, row.delay_p95, row.delay_p99,
        None if row.heard is None else _after(row.heard, start),
        row.silent_s, row.silent, row.status,
    )  # fmt: skip


def _utc(local: datetime.datetime) -> datetime.datetime:
    """Spark gives a time of this machine, without its zone."""
    return local.astimezone(datetime.timezone.utc)


def _after(moment: datetime.datetime, start: datetime.datetime) -> float:
    return (_utc(moment) - start).total_seconds()
