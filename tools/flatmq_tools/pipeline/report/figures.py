"""The figures of the report."""

from __future__ import annotations

import bisect
import datetime
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from ..tables import FOLLOWERS

RAW = "raw"
BUCKETS = 120
"""The most stretches of time that a picture shows."""
_FEW = 3
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)  # s
_DAY = 86400
GAPS = 20
"""The most gaps of a device that are fetched, the newest,"""
GAP_DEVICES = 20
"""of so many devices that lost most, and so many that were silent for longest."""
NEWEST = 5000
"""The most values that are fetched, the newest first."""


class ReportError(RuntimeError):
    """There is nothing to report of; the text says what is missing."""


class Moment(NamedTuple):
    """A stretch of `Figures.step` seconds.

    It begins a whole number of steps after 1970, so the first one may begin before the first
    message: its `at` is negative then.
    """

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
    lost_since: float | None = None
    """Between which arrivals readings were found missing, first and last."""
    lost_until: float | None = None
    restarted_since: float | None = None
    """The first arrivals of boots that began with a restart, of the first and the last."""
    restarted_until: float | None = None

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
    since: float
    until: float
    missing: int | None
    """None if the device was silent."""


class OutOfTime(NamedTuple):
    """Readings of a device in the table out_of_time."""

    device: str
    readings: int
    since: float
    """When the first of them came."""


class Value(NamedTuple):
    """The newest of a quantity."""

    device: str
    quantity: str
    unit: str
    value: float | str | bool
    at: float


class Band(NamedTuple):
    """Devices in a stretch of time: percentiles of the means of each of them."""

    low: float
    """The lowest of them,"""
    p10: float
    p50: float
    p90: float
    high: float
    """and the highest."""


class Quantity(NamedTuple):
    """A measured value: its means in stretches of time; None where a stretch has none."""

    name: str
    unit: str
    devices: int
    bands: list[Band | None]
    """Empty if there are the curves of all devices, and these are few."""
    curves: dict[str, list[float | None]]
    """By device: of all devices, or of some of them."""


@dataclass
class Measured:
    """Measured values over time, a point for each `step` seconds from `at`."""

    at: float
    step: float
    quantities: list[Quantity] = field(default_factory=list)
    left_out: int = 0
    """Quantities, those of fewest devices, for which there was no room."""
    devices: int = 0
    """So many devices have values, """
    curves_of: int = 0
    """and so many of them have all their curves here."""


class Dead(NamedTuple):
    """Dead letters of a kind."""

    kind: str
    messages: int
    topics: tuple[str, ...] = ()
    """Of the newest of them, if they are kept."""


class Batch(NamedTuple):
    """A micro-batch, from Spark's progress report."""

    query: str
    at: float
    seconds: float
    trigger: float | None
    rows: int
    spool: int | None = None
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
    losses: list[int] = field(default_factory=list)
    """Readings found missing in each of the moments."""
    heard: list[Heard] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    """Of the devices that have most, in the order of time."""
    paused: int = 0
    """Devices that were silent for a while."""
    newest: list[Value] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    out_of_time: list[OutOfTime] = field(default_factory=list)
    """Those with most readings first."""
    measured: Measured | None = None
    """None if there is no table measurements."""
    batches: list[Batch] = field(default_factory=list)
    delays: tuple[float | None, float | None, float | None] = (None, None, None)
    """p50, p95, p99 of all, in ms."""
    remarks: list[str] = field(default_factory=list)
    """What a reader has to know of the numbers: sentences."""

    @property
    def span(self) -> float:
        """Seconds from the first message to the last."""
        return (self.until - self.since).total_seconds()


def steps(span: float, messages: int) -> float:
    """Return the seconds of a stretch of the charts: so long that some messages come in each."""
    few = min(_FEW * span / max(messages, 1), span / 10)
    return step(max(span / BUCKETS, few))


def wide(usual: Iterable[float], at_least: float) -> float:
    """Return the seconds in which a board that is not silent is heard, by the usual intervals."""
    ranked = sorted(usual)
    often = ranked[len(ranked) // 2] if ranked else 0.0
    return max(step(3 * often), at_least)


def begins(since: datetime.datetime, span: float, width: float) -> list[float]:
    """Return when stretches of `width` seconds begin, in seconds after `since`, up to `span`."""
    first = since.timestamp() // width * width - since.timestamp()
    return [first + n * width for n in range(math.floor((span - first) / width) + 1)]


def waited(figures: Figures, ends: Sequence[float], came: Sequence[int]) -> None:
    """Find the depth of the spool: what the jobs that read the table raw have still to read.

    It is what was received when a batch began, without what is in the table with it. The end
    of the table is known, so progress may begin anywhere.

    ends  of stretches of time, in seconds after the first message, sorted
    came  messages in each
    """
    received = [*accumulate(came)]
    taken = figures.messages
    received = [count + taken - received[-1] for count in received] if received else []
    for n, batch in reversed([*enumerate(figures.batches)]):
        if batch.query in FOLLOWERS[RAW]:
            known = bisect.bisect_right(ends, batch.at)
            waits = (received[known - 1] if known else 0) - taken
            figures.batches[n] = batch._replace(spool=max(waits, 0))
            taken -= batch.rows


def step(at_least: float) -> float:
    """A round number of seconds, not below that."""
    for seconds in _STEPS:
        if seconds >= at_least:
            return float(seconds)
    return float(math.ceil(at_least / _DAY) * _DAY)


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
                str(said.get("name") or "measurements"),
                (at - start).total_seconds(),
                said["durationMs"].get("triggerExecution", said.get("batchDuration", 0)) / 1000,
                None if trigger is None else trigger / 1000,
                said["numInputRows"],
            )
            found[str(said.get("id")), said["batchId"]] = batch
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return sorted(found.values())


def within(
    batches: Sequence[Batch], start: datetime.datetime, since: datetime.datetime | None,
    until: datetime.datetime | None,
) -> list[Batch]:  # fmt: skip
    """Return the batches of a stretch of time; their times are seconds after `start`."""
    low = -math.inf if since is None else (since - start).total_seconds()
    high = math.inf if until is None else (until - start).total_seconds()
    return [batch for batch in batches if low <= batch.at < high]
