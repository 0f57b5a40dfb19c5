"""The figures of the report from the state of a run: from sums, without Spark and without raw."""

from __future__ import annotations

import datetime
import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from .. import progress
from ..delta import Delta
from ..state import groups, history, tables
from ..state.boots import counts
from ..state.groups import Ints
from ..state.periods import Found, Periods
from ..state.records import CLOSED, OPEN, Records
from ..state.snapshots import parts as parts_of
from ..state.store import Store
from ..state.values import DAY, UNKNOWN
from . import figures as shared
from . import numbers, values
from .figures import (
    GAP_DEVICES,
    GAPS,
    Dead,
    Device,
    Figures,
    Gap,
    Heard,
    Moment,
    ReportError,
)  # fmt: skip
from .period import UTC, Period

_PARTS = (0.5, 0.95, 0.99)
_STATES = ("health.sqlite", "measurements.sqlite")
_Restarts = dict[str, tuple[int, float, float]]
_NEVER = 0, None, None
_EPOCH = datetime.datetime.fromtimestamp(0, UTC)


def of_state(
    folder: Path, period: Period,
    stretch: tuple[datetime.datetime | None, datetime.datetime | None] | None = None,
) -> Figures | None:  # fmt: skip
    """Return the figures of the tables in `folder` from the state of a run.

    None if no run has made a state there. If the tables are those of a `stretch` of time alone,
    so are the batches. Raises ReportError, PeriodError and StateError.
    """
    store = _furthest(folder / "state")
    if store is None:
        return None
    with store, store.reading() as db:
        asked = _Asked(db, store.file, period)
        figures = asked.figures
        asked.ask()
        figures.newest = values.newest(folder, figures)
        values.out_of_time(figures, folder, *asked.period)
        batches = shared.batches(progress.lines(folder), figures.since)
        stretch = stretch or asked.period
        figures.batches = shared.within(batches, figures.since, *stretch)
        if figures.batches:
            asked.waited()
        return figures


def _furthest(folder: Path) -> Store | None:
    """Return the state that has the newest message: it is that of the job that ran last."""
    found = [store for name in _STATES if (store := Store.of_run(folder / name))]
    found.sort(key=_now)
    for store in found[:-1]:
        store.close()
    return found[-1] if found else None


def _now(store: Store) -> int:
    place = store.place()
    return 0 if place is None or place.now is None else place.now


class _Asked:
    """The questions to a state, in one transaction.

    Times are microseconds since 1970, except those in the figures.
    """

    def __init__(self, db: sqlite3.Connection, file: Path, period: Period) -> None:
        self._db = db
        self._file = file
        self._whole = period.everything
        self._periods = Periods(db)
        self._steps = self._periods.steps
        ends = self._periods.ends()
        if ends is None:
            raise ReportError(f"{file} knows of no messages: `flatmq pipeline run` notes them")
        self.period = period.of(_moment(ends[1]))
        since, until = self.period
        low = ends[0] if since is None else max(_micros(since), ends[0])
        high = ends[1] + 1 if until is None else min(_micros(until), ends[1] + 1)
        nothing = ReportError("there are no messages between --since and --until")
        if low >= high:
            raise nothing
        self._now = high > ends[1]  # nothing came later
        self._low, self._high = self._steps.rounded(low, high)
        all_of_it = self._periods.found(self._steps.pieces(self._low, self._high), sets=False)
        messages = int(all_of_it.messages.sum())
        if all_of_it.first is None or all_of_it.last is None:
            raise nothing
        self.figures = Figures(_moment(all_of_it.first), _moment(all_of_it.last), messages)
        self._first, self._last = all_of_it.first, all_of_it.last
        none = np.zeros(len(all_of_it.group), np.int64)
        self.figures.delays = _delays(none, all_of_it, 1)[0]
        self._devices = tables.Devices(db)
        if not self._whole:
            self._remark(low, high)

    def _remark(self, low: int, high: int) -> None:
        """Say which steps the numbers are of, if these are not quite those that were asked."""
        begin, end = self._periods.of_devices(self._low, self._high)[0]
        if (begin, end) != (low, high):
            step = "hours" if begin % DAY or end % DAY else "days"
            self.figures.remarks.append(
                f"The numbers of devices are of whole {step}, from "
                f"{numbers.local(_moment(begin))} to {numbers.local(_moment(end))}."
            )

    def ask(self) -> None:
        """Fill the figures."""
        figures, span = self.figures, self.figures.span
        finest = self._steps.finest(self._low) / 1e6
        figures.step = max(shared.steps(span, figures.messages), finest)
        table = self._devices.table()
        usual = table["usual_s"].drop_null().to_pylist()
        figures.wide = shared.wide(usual, figures.step)
        self._moments()
        self._heard(table)
        boots = self._boots()
        restarts = self._restarts(boots)
        figures.devices = (
            self._all_devices(table, restarts) if self._whole
            else self._some_devices(table, boots, restarts)
        )  # fmt: skip
        self._gaps()
        self._dead()

    def waited(self) -> None:
        """Find the depth of the spool, if all that came by now is in the figures."""
        figures = self.figures
        if not self._now:
            return
        begin = self._first + round(min(batch.at for batch in figures.batches) * 1e6)
        low = max(begin // history.MINUTE * history.MINUTE, self._low)
        low, _ = self._steps.rounded(low, self._high)
        came = self._periods.found(self._steps.pieces(low, self._high, history.SECOND), sets=False)
        ends = ((came.end - self._first) / 1e6).tolist()
        shared.waited(figures, ends, came.messages.tolist())

    # Over time

    def _stretches(self, width: float) -> tuple[Found, Ints, list[float]]:
        """Return the steps that make up stretches of `width` seconds.

        With them, the stretch of each step, and when the stretches begin.
        """
        found = self._periods.found(
            self._steps.pieces(self._low, self._high, round(width * 1e6))
        )  # fmt: skip
        size = round(width * 1e6)
        begins = shared.begins(self.figures.since, self.figures.span, width)
        stretch = found.at // size - self._first // size
        # Steps without messages may begin before the first of them, or end after the last.
        return found, np.clip(stretch, 0, len(begins) - 1), begins

    def _moments(self) -> None:
        found, stretch, begins = self._stretches(self.figures.step)
        count = len(begins)
        messages = np.bincount(stretch, found.messages, count).astype(np.int64).tolist()
        delays = _delays(stretch[found.group], found, count)
        self.figures.moments = [
            Moment(at, number, *parts)
            for at, number, parts in zip(begins, messages, delays, strict=True)
        ]

    def _heard(self, table: pa.Table) -> None:
        found, stretch, begins = self._stretches(self.figures.wide)
        first = np.sort(table["first"].drop_null().cast(pa.int64()).to_numpy())
        bounds = np.searchsorted(stretch, np.arange(len(begins) + 1)).tolist()
        for n, at in enumerate(begins):
            sets = found.devices[bounds[n] : bounds[n + 1]]
            heard = len(np.unique(np.concatenate(sets))) if sets else 0
            end = self._first + round((at + self.figures.wide) * 1e6)
            self.figures.heard.append(Heard(at, heard, int(np.searchsorted(first, end))))

    # Devices

    def _all_devices(self, table: pa.Table, restarts: _Restarts) -> list[Device]:
        found = []
        for of in table.to_pylist():
            heard = of["heard"]
            _, since, until = restarts.get(of["device"], _NEVER)
            found.append(
                Device(
                    name=of["device"], boots=of["boots"], p50=of["delay_p50"], p95=of["delay_p95"],
                    p99=of["delay_p99"],
                    heard=None if heard is None else (heard - self.figures.since).total_seconds(),
                    restarted_since=since, restarted_until=until,
                    **{name: of[name] for name in ("silent_s", "silent", "status")},
                    **dict[str, Any]({name: of[name] or 0 for name in _SUMS}),
                )
            )  # fmt: skip
        return sorted(found, key=lambda device: device.name)

    def _some_devices(
        self, table: pa.Table, every: dict[str, Ints], restarts: _Restarts
    ) -> list[Device]:
        """The devices of a stretch of time: what was before it is neither lost nor unheard."""
        devices = self._devices
        _, pieces = self._periods.of_devices(self._low, self._high)
        inside = (every["first"] < self._high) & (every["last"] >= self._low)
        boots = Counter(every["device"][inside].tolist())
        names = devices.names.to_pylist()
        status, status_at = (table[name].to_pylist() for name in ("status", "status_since"))
        until = _moment(self._high)
        after = devices.after.tolist()
        found = {}
        for numbered in (True, False):
            sums = self._periods.devices(pieces, numbered)
            delays = groups.percentiles(*sums.lists["delays"], len(sums), _PARTS) / 1000
            positions = devices.position(sums["device"]).tolist()
            of = zip(*(sums[name].tolist() for name in _COUNTED), strict=True)
            rows = zip(
                sums["device"].tolist(), positions, sums["heard"].tolist(), of, delays.tolist(),
                strict=True,
            )  # fmt: skip
            for number, n, last, (received, lost, duplicates, reordered), parts in rows:
                heard = None if last == UNKNOWN else last
                if bool(devices.sent[n]) != numbered:
                    continue  # a board whose first messages had no numbers
                p50, p95, p99 = _nones(parts)
                silent_s = None if heard is None else (self._last - heard) / 1e6
                said = status[n] if status_at[n] is None or status_at[n] < until else None
                silent = silent_s is not None and silent_s > after[n] and said != "asleep"
                starts, *restarted = restarts.get(names[n], _NEVER)
                found[n] = Device(
                    names[n], boots.get(number, 0), starts, received, lost, 0,
                    duplicates, reordered, p50, p95, p99,
                    None if heard is None else (heard - self._first) / 1e6,
                    silent_s, silent, said, None, None, *restarted,
                )  # fmt: skip
        for n, at in enumerate(status_at):
            if n not in found and at is not None and _moment(self._low) <= at < until:
                found[n] = Device(
                    names[n], 0, 0, 0, 0, 0, 0, 0, None, None, None, None, None, False, status[n]
                )  # fmt: skip
        return sorted(found.values(), key=lambda device: device.name)

    def _restarts(self, boots: dict[str, Ints]) -> _Restarts:
        """Return how often each device has started again, and when the first and last time."""
        starts, first = counts(boots)[0], boots["first"]
        some = (starts > 0) & (first >= self._low) & (first < self._high)
        device, place = np.unique(boots["device"][some], return_inverse=True)
        number = np.bincount(place, starts[some], len(device)).astype(np.int64)
        since, until = np.full(len(device), np.inf), np.full(len(device), -np.inf)
        at = (first[some] - self._first) / 1e6
        np.minimum.at(since, place, at)
        np.maximum.at(until, place, at)
        names = self._devices.names.take(pa.array(self._devices.position(device)))
        rows = zip(number.tolist(), since.tolist(), until.tolist(), strict=True)
        return dict(zip(names.to_pylist(), rows, strict=True))

    def _boots(self) -> dict[str, Ints]:
        """Return the numbers of all boots."""
        both = [Records.bare(self._db, kind) for kind in (OPEN, CLOSED)]
        return {name: np.concatenate([each[name] for each in both]) for name in OPEN.names}

    def _gaps(self) -> None:
        devices = self._devices
        parts = [tables.of_open(self._db, devices)[1], tables.open_silences(devices)]
        known = self._db.execute("SELECT part, stale FROM parts").fetchall()
        # What the table has of closed boots need not be made again.
        table = Delta(self._file.parents[1] / "gaps").newest()
        there = parts_of(table)
        kept = [part for part, stale in known if part in there and not stale]
        if table is not None and kept:
            of_table = table.to_pyarrow_dataset()
            mine = of_table.to_table(tables.GAPS.names, filter=ds.field("part").isin(kept))
            parts.append(mine.cast(tables.GAPS))
        for part, _ in known:
            if part not in kept:
                parts.append(tables.of_part(self._db, devices, part)[1])
        gaps = pa.concat_tables(parts)
        since, until = (
            gaps[name].cast(pa.int64()).to_numpy().astype(np.int64) for name in ("since", "until")
        )
        if not self._whole:
            begin = np.where(gaps["missing"].is_null().to_numpy(), since, until)
            inside = (until >= self._low) & (begin < self._high)
            gaps, since, until = gaps.filter(pa.array(inside)), since[inside], until[inside]
        since, until = np.maximum(since, self._low), np.minimum(until, self._high)
        encoded = gaps["device"].combine_chunks().dictionary_encode()
        names, code = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
        missing = pc.fill_null(gaps["missing"], 0).to_numpy().astype(np.int64)
        silent = gaps["missing"].is_null().to_numpy()
        self.figures.paused = len(np.unique(code[silent]))
        self._losses(names, code[~silent], until[~silent], missing[~silent])
        chosen = np.zeros(len(names), np.bool_)
        ranked = np.argsort(np.array(names, np.str_), kind="stable")
        for each in (missing, (until - since) * silent):
            most = np.bincount(code, each, len(names))
            order = ranked[np.argsort(-most[ranked], kind="stable")][:GAP_DEVICES]
            chosen[order[most[order] > 0]] = True
        at = np.flatnonzero(chosen[code])
        at = at[np.lexsort((missing[at], -since[at], code[at]))]
        begins = np.searchsorted(code[at], code[at])
        at = at[np.arange(len(at)) - begins < GAPS]
        some = gaps.take(pa.array(at))
        ends = [((each[at] - self._first) / 1e6).tolist() for each in (since, until)]
        rows = zip(some["device"].to_pylist(), *ends, some["missing"].to_pylist(), strict=True)
        self.figures.gaps = sorted(map(Gap._make, rows), key=lambda gap: gap[:3])

    def _losses(self, names: list[str], code: Ints, until: Ints, missing: Ints) -> None:
        """Say when readings were found missing: of the fleet, and of each device."""
        at = (until - self._first) / 1e6
        begins = [moment.at for moment in self.figures.moments]
        losses = np.zeros(len(begins), np.int64)
        np.add.at(losses, np.maximum(np.searchsorted(begins, at, "right") - 1, 0), missing)
        self.figures.losses = losses.tolist()
        since, last = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        np.minimum.at(since, code, at)
        np.maximum.at(last, code, at)
        lost = {names[n]: (float(since[n]), float(last[n])) for n in np.unique(code).tolist()}
        for n, device in enumerate(self.figures.devices):
            if device.name in lost:
                first, end = lost[device.name]
                self.figures.devices[n] = device._replace(lost_since=first, lost_until=end)

    # Messages

    def _dead(self) -> None:
        days, ends = "", list[int]()
        if not self._whole:
            days = "WHERE day >= ? AND day < ?"
            ends = [self._low // DAY * DAY, self._high]
        rows = self._db.execute(
            f"SELECT kind, sum(messages) FROM dead {days} GROUP BY kind ORDER BY 2 DESC, 1", ends
        ).fetchall()
        for kind, messages in rows:
            topics = self._db.execute(
                "SELECT topic FROM dead_examples WHERE kind = ? AND at >= ? "
                'AND at < ? ORDER BY at DESC, "offset" DESC',
                (kind, self._low, self._high),
            )
            self.figures.dead.append(Dead(kind, messages, tuple(topic for (topic,) in topics)))


_COUNTED = ("received", "lost", "duplicates", "reordered")
_SUMS = ("reboots", "received", "lost", "unheard", "duplicates", "reordered")


def _delays(
    group: Ints, found: Found, count: int
) -> list[tuple[float | None, float | None, float | None]]:
    """p50, p95 and p99 in ms, of the delays of each group; None where there is none."""
    of, bins = groups.added(group, found.delays)
    parts: list[list[float]] = (groups.percentiles(of, bins, count, _PARTS) / 1000).tolist()
    return [(p50, p95, p99) for p50, p95, p99 in map(_nones, parts)]


def _nones(values: Sequence[float]) -> list[Any]:
    """NaN as None."""
    return [None if math.isnan(value) else value for value in values]


def _micros(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def _moment(at: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=at)
