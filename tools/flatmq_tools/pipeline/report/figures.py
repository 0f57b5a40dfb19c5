"""The figures of the report, from the raw table through the jobs."""

from __future__ import annotations

import bisect
import datetime
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .. import progress
from ..jobs import measurements
from ..jobs.columns import MESSAGE
from ..jobs.health import Health
from ..mapping.mapping import Mapping

RAW = "raw"
OUT_OF_TIME = "out_of_time"
_BUCKETS = 120  # at most, over the time that a picture shows
_FEW = 3
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)  # s
_DAY = 86400
_PACK = (
    "device", "boot", "seq", "time", "told", "records", "reason", "timestamp", "offset", "retain",
    "dup",
)  # fmt: skip
_SECONDS = 200_000  # at most, for which arrivals are fetched one by one
GAPS = 2000
"""The most gaps that are fetched, those with most missing first,"""
GAP_DEVICES = 20
"""of so many devices that lost most, and so many that were silent for longest."""
NEWEST = 500
"""The most values that are fetched, the newest first."""


class ReportError(RuntimeError):
    """There is nothing to report of; the text says what is missing."""


class Moment(NamedTuple):
    """A stretch of `Figures.step` seconds, from `at` seconds after the first message."""

    at: float
    messages: int
    p50: float | None
    """Delays in ms; None where no pack has a time of its own."""
    p95: float | None
    p99: float | None


class Heard(NamedTuple):
    """Boards in a stretch of `Figures.wide` seconds."""

    at: float
    heard: int
    known: int
    """By then."""


class Device(NamedTuple):
    """A row of `Health.devices`, times in seconds after the first message."""

    name: str
    boots: int
    reboots: int
    received: int
    lost: int
    unheard: int
    duplicates: int
    reordered: int
    p50: float | None
    p95: float | None
    p99: float | None
    heard: float | None
    silent_s: float | None
    silent: bool
    status: str | None

    @property
    def numbered(self) -> bool:
        """True if its packs have numbers; if not, it is not known what was lost."""
        return self.boots > 0 or not self.received

    @property
    def loss(self) -> float:
        """The part of its readings that was lost."""
        return self.lost / (self.received + self.lost) if self.lost else 0.0


class Gap(NamedTuple):
    """A row of `Health.gaps`."""

    device: str
    kind: str
    since: float
    until: float
    missing: int | None


class Reboot(NamedTuple):
    """A boot's first arrival, and the starts since the boot before."""

    device: str
    boot: int
    at: float
    starts: int


class Value(NamedTuple):
    """The newest of a quantity."""

    device: str
    quantity: str
    unit: str
    value: float | str | bool
    at: float


class Dead(NamedTuple):
    """Dead letters of a kind."""

    kind: str
    messages: int


class Batch(NamedTuple):
    """A micro-batch, from Spark's progress report."""

    query: str
    at: float
    seconds: float
    trigger: float | None
    rows: int
    spool: int | None
    """Messages that were received, and not in this batch or one before."""

    @property
    def late(self) -> bool:
        """It took longer than the trigger allows."""
        return self.trigger is not None and self.seconds > self.trigger


@dataclass
class Figures:
    """All of it. Times are seconds after `since`, unless they say otherwise."""

    since: datetime.datetime
    until: datetime.datetime
    messages: int = 0
    step: float = 1.0
    wide: float = 1.0
    moments: list[Moment] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    """Of the devices that have most,"""
    gappy: int = 0
    """of so many that have any."""
    reboots: list[Reboot] = field(default_factory=list)
    newest: list[Value] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    out_of_time: int = 0
    """Readings of the table out_of_time,"""
    out_of_time_of: str = ""
    """and the device that has most of them."""
    batches: list[Batch] = field(default_factory=list)
    delays: tuple[float | None, float | None, float | None] = (None, None, None)
    """p50, p95, p99 of all, in ms."""

    @property
    def span(self) -> float:
        """Seconds from the first message to the last."""
        return (self.until - self.since).total_seconds()


def of_tables(
    spark: SparkSession, folder: Path, identity: str = "topic", mapping: Mapping | None = None
) -> Figures:
    """Return the figures of the tables in `folder`. Raises ReportError.

    They are raw/ (Parquet, in whatever subfolders, or Delta), and the batches that `progress`
    keeps, if any. `identity` and `mapping` are as for `measurements.packs`.
    """
    raw = table(spark, folder / RAW)
    figures = of_messages(raw, identity, mapping)
    _out_of_time(figures, folder / OUT_OF_TIME)
    figures.batches = batches(progress.lines(folder), figures.since)
    if figures.batches and all(batch.spool is None for batch in figures.batches):
        _waited(figures, raw)
    return figures


def _out_of_time(figures: Figures, folder: Path) -> None:
    """Count the readings in a table that is there only if it has some."""
    if all(_is_hidden(file.relative_to(folder)) for file in folder.rglob("*.parquet")):
        return
    rows = ds.dataset(folder, format="parquet").to_table(["device"])
    counts = Counter(rows["device"].to_pylist())
    figures.out_of_time = rows.num_rows
    figures.out_of_time_of = counts.most_common(1)[0][0] if counts else ""


def _waited(figures: Figures, raw: DataFrame) -> None:
    """Find the depth of the spool where Spark read files, whose offsets it does not report.

    It is what was received when a batch began, without what is in the table with it. The end
    of the table is known, so progress may begin anywhere.
    """
    width = max(1.0, figures.span / _SECONDS)
    came = raw.groupBy(_bucket(figures.since, width).alias("n")).count().collect()
    received = list(accumulate(count for _, count in sorted((r.n, r["count"]) for r in came)))
    ends = sorted((r.n + 1) * width for r in came)
    taken = figures.messages
    for n, batch in reversed([*enumerate(figures.batches)]):
        if batch.query == RAW:
            known = bisect.bisect_right(ends, batch.at)
            waits = (received[known - 1] if known else 0) - taken
            figures.batches[n] = batch._replace(spool=max(waits, 0))
            taken -= batch.rows


def table(spark: SparkSession, folder: Path) -> DataFrame:
    """The messages in a folder of Parquet or Delta. ReportError."""
    if (folder / "_delta_log").is_dir():
        from deltalake import DeltaTable

        files = DeltaTable(folder).file_uris()
    else:
        found = folder.rglob("*.parquet")
        files = [str(f) for f in found if not _is_hidden(f.relative_to(folder))]
    if not files:
        raise ReportError(f"{folder} has no messages: is it the folder that the jobs write to?")
    schema = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
    return spark.read.schema(schema).parquet(*files)


def _is_hidden(path: Path) -> bool:
    """As Spark sees it: what is being written begins so."""
    return any(part[0] in "._" for part in path.parts)


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
    # So long that some messages come in each, where there are few.
    few = min(_FEW * figures.span / figures.messages, figures.span / 10)
    figures.step = step(max(figures.span / _BUCKETS, few))
    rows = health.devices().collect()
    figures.devices = sorted((_device(row, start) for row in rows), key=lambda d: d.name)
    usual = sorted(row.usual_s for row in rows if row.usual_s is not None)
    often = usual[len(usual) // 2] if usual else 0.0
    figures.wide = max(step(3 * often), figures.step)
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
        )
        rows = of.collect()
        figures.gappy = len(rows)
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
    start = figures.since
    moment = _bucket(start, figures.step)
    counts = {row.n: row["count"] for row in frame.groupBy(moment.alias("n")).count().collect()}
    parts = [0.5, 0.95, 0.99]
    delay = F.percentile_approx("delay", parts, 10_000).alias("parts")
    told = health.heard.where("not copy and delay is not null")
    delays = {row.n: row.parts for row in told.groupBy(moment.alias("n")).agg(delay).collect()}
    for n in range(math.floor(figures.span / figures.step) + 1):
        p50, p95, p99 = delays.get(n, (None, None, None))
        figures.moments.append(Moment(n * figures.step, counts.get(n, 0), p50, p95, p99))
    whole = told.agg(delay).collect()[0].parts
    figures.delays = tuple(whole) if whole else (None, None, None)
    wide = health.heard.groupBy("device").agg(
        F.collect_set(_bucket(start, figures.wide)).alias("all")
    )  # fmt: skip
    by_device = [sorted(row["all"]) for row in wide.collect()]
    for n in range(math.floor(figures.span / figures.wide) + 1):
        heard = sum(n in buckets for buckets in by_device)
        known = sum(buckets[0] <= n for buckets in by_device)
        figures.heard.append(Heard(n * figures.wide, heard, known))


def _bucket(start: datetime.datetime, seconds: float) -> Any:
    micros = F.unix_micros("timestamp") - round(start.timestamp() * 1e6)
    return F.floor(micros / (seconds * 1e6))


def step(at_least: float) -> float:
    """A round number of seconds, not below that."""
    for seconds in _STEPS:
        if seconds >= at_least:
            return float(seconds)
    return float(math.ceil(at_least / _DAY) * _DAY)


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
    values = []
    for row in rows:
        value = next(v for v in (row.value, row.text, row.flag) if v is not None)
        values.append(Value(row.device, row.quantity, row.unit, value, _after(row.time, start)))
    return sorted(values)


def _device(row: Any, start: datetime.datetime) -> Device:
    return Device(
        row.device, row.boots, row.reboots or 0, row.received, row.lost or 0, row.unheard or 0,
        row.duplicates, row.reordered or 0, row.delay_p50, row.delay_p95, row.delay_p99,
        None if row.heard is None else _after(row.heard, start),
        row.silent_s, row.silent, row.status,
    )  # fmt: skip


def batches(lines: Iterable[str], start: datetime.datetime) -> list[Batch]:
    """Return the micro-batches of `progress`.

    Each line is a StreamingQueryProgress of Spark, and has "triggerMs", the interval. A torn
    line, as after a kill, is passed over.
    """
    found: dict[tuple[str, int], Batch] = {}
    for line in lines:
        try:
            said = json.loads(line)
            at = datetime.datetime.fromisoformat(said["timestamp"].replace("Z", "+00:00"))
            trigger = said.get("triggerMs")
            batch = Batch(
                str(said.get("name") or "raw"),
                (at - start).total_seconds(),
                said["durationMs"].get("triggerExecution", said.get("batchDuration", 0)) / 1000,
                None if trigger is None else trigger / 1000,
                said["numInputRows"],
                _spool(said),
            )
            found[str(said.get("id")), said["batchId"]] = batch
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return sorted(found.values())


def _spool(said: dict[str, Any]) -> int | None:
    """Return how far the newest offset of the log is past the end of the batch.

    Returns None where the source has no log.
    """
    source: dict[str, Any] = next(iter(said.get("sources") or []), {})
    latest, end = (_offset(source.get(name)) for name in ("latestOffset", "endOffset"))
    return None if latest is None or end is None else max(latest - end, 0)


def _offset(said: Any) -> int | None:
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return None
    if isinstance(said, dict):
        said = said.get("offset")
    return said if isinstance(said, int) else None


def _utc(local: datetime.datetime) -> datetime.datetime:
    """Spark gives a time of this machine, without its zone."""
    return local.astimezone(datetime.timezone.utc)


def _after(moment: datetime.datetime, start: datetime.datetime) -> float:
    return (_utc(moment) - start).total_seconds()
