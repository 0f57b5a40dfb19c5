"""The past in the state: each second, minute, hour and day, and devices by hour and day.

Finer steps are kept for a shorter time, so that the file does not grow with the messages. A
report of a year reads days, one of an hour reads seconds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import groups
from .counts import counts
from .groups import SHORT, Bools, Ints, Rows
from .values import DAY, UNKNOWN, columns, ints

if TYPE_CHECKING:
    from .arrivals import Boots

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
MONTH = 32 * DAY
"""Of devices alone, so that a year of them is read as fast as a month."""
STEPS = {SECOND: 7200, MINUTE: 2880, HOUR: 9600, DAY: 4000}
"""How many steps of each width are kept, the newest: of seconds and minutes those in which
something came."""
DEVICE_STEPS = {HOUR: 72, DAY: 400, MONTH: STEPS[DAY] // 32}
"""The same for steps of each device."""
KINDS = 100
"""Kinds of dead letters that are counted one by one in a day, at most,"""
OTHERS = "other reasons"
"""and the name of the rest."""
EXAMPLES = 3
"""The newest dead letters of a kind are kept as examples,"""
_EXAMPLES = 600  # and of all kinds so many
_SPARSE, _DENSE = b"\0", b"\1"
_FAR_AWAY = int(np.iinfo(np.int64).max)
_FAR_AGO = -(1 << 62)

SCHEMA = """
CREATE TABLE steps (
    width INTEGER NOT NULL, at INTEGER NOT NULL, messages INTEGER NOT NULL,
    packs INTEGER NOT NULL, dead INTEGER NOT NULL, first INTEGER, last INTEGER,
    devices BLOB, delays BLOB, PRIMARY KEY (width, at)
);
CREATE TABLE device_steps (
    width INTEGER NOT NULL, at INTEGER NOT NULL, device INTEGER NOT NULL,
    numbered INTEGER NOT NULL, first INTEGER, heard INTEGER, received INTEGER NOT NULL,
    lost INTEGER NOT NULL, unheard INTEGER NOT NULL, duplicates INTEGER NOT NULL,
    reordered INTEGER NOT NULL, delays BLOB, PRIMARY KEY (width, at, device, numbered)
) WITHOUT ROWID;
-- Hours of devices before it are in their days and months, too.
CREATE TABLE folded (until INTEGER NOT NULL);
CREATE TABLE dead (
    day INTEGER NOT NULL, kind TEXT NOT NULL, messages INTEGER NOT NULL,
    PRIMARY KEY (day, kind)
) WITHOUT ROWID;
CREATE TABLE dead_examples (
    kind TEXT NOT NULL, at INTEGER NOT NULL, "offset" INTEGER NOT NULL, topic TEXT NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (kind, at, "offset")
) WITHOUT ROWID;
"""
_STEP = (
    "at", "device", "numbered", "first", "heard", "received", "lost", "unheard", "duplicates",
    "reordered",
)  # fmt: skip


class Dead(NamedTuple):
    """A dead letter."""

    kind: str
    reason: str
    topic: str
    at: int
    offset: int


@dataclass
class Came:
    """All messages of a batch, packs or not: how many in each second.

    Times are microseconds since 1970.
    """

    at: Ints
    """Any time in the second."""
    messages: Ints
    first: Ints
    last: Ints
    dead: Sequence[Dead] = ()

    @classmethod
    def nothing(cls) -> Came:
        """Return no messages."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, none)

    @classmethod
    def together(cls, parts: Sequence[Came]) -> Came:
        """Return what came in all of these."""
        every = [cls.nothing(), *parts]
        at, messages, first, last = (
            np.concatenate([getattr(part, name) for part in every])
            for name in ("at", "messages", "first", "last")
        )
        return cls(at, messages, first, last, [dead for part in every for dead in part.dead])


@dataclass
class Packs:
    """Packs of a batch, in any order."""

    device: Ints
    """Numbers of devices."""
    at: Ints
    delay: Ints
    counted: Bools
    """Whether the delay counts."""

    @classmethod
    def none(cls) -> Packs:
        """Return no packs."""
        none = np.empty(0, np.int64)
        return cls(none, none, none, np.empty(0, np.bool_))

    def and_these(self, more: Packs) -> Packs:
        """Return these packs and more."""
        both = ((getattr(self, f.name), getattr(more, f.name)) for f in fields(self))
        return Packs(*(np.concatenate(each) for each in both))


@dataclass
class Steps:
    """Sums by steps of time; each array has one entry per step, unless it says otherwise."""

    width: int
    at: Ints
    sums: Ints
    """Messages, packs and dead letters: three rows."""
    first: Ints
    last: Ints
    step: Ints
    """With `device`: which devices were heard in a step; in any order, each pair once."""
    device: Ints
    group: Ints
    """With `delays`: the bins of a step, sorted."""
    delays: Rows


@dataclass
class DeviceSteps:
    """Sums by steps of time and device: one entry in each array per step and device."""

    width: int
    at: Ints
    device: Ints
    numbered: Ints
    first: Ints
    heard: Ints
    sums: Ints
    """Received, lost, unheard, duplicates and reordered: five rows."""
    group: Ints
    delays: Rows


@dataclass
class Additions:
    """The additions of a batch to the past."""

    steps: list[Steps] = field(default_factory=list)
    devices: list[DeviceSteps] = field(default_factory=list)
    dead: Sequence[Dead] = ()


# Sums of a batch


def steps_of(came: Came, packs: Packs) -> list[Steps]:
    """Return what a batch adds to steps of all widths."""
    dead_at = np.array([one.at for one in came.dead], np.int64)
    at = np.concatenate([came.at, packs.at, dead_at])
    if not len(at):
        return []
    sums = np.zeros((3, len(at)), np.int64)
    messages, end = len(came.at), len(came.at) + len(packs.at)
    sums[0, :messages] = came.messages
    sums[1, messages:end] = 1
    sums[2, end:] = 1
    first = np.full(len(at), _FAR_AWAY)
    last = np.full(len(at), UNKNOWN)
    first[:messages], last[:messages] = came.first, came.last
    timed = packs.counted
    delayed_at, delays = packs.at[timed], groups.binned(packs.delay[timed])
    seconds = _unique(at // SECOND)
    since = int(seconds[-STEPS[SECOND]]) * SECOND if len(seconds) > STEPS[SECOND] else UNKNOWN
    some, those, later = (each >= since for each in (at, packs.at, delayed_at))
    made = [
        _folded(
            SECOND, at[some], sums[:, some], first[some], last[some], packs.at[those],
            packs.device[those], delayed_at[later], delays[later],
        )
    ]  # fmt: skip
    if since != UNKNOWN:  # the seconds are not all there
        made.append(
            _folded(MINUTE, at, sums, first, last, packs.at, packs.device, delayed_at, delays)
        )
    for width in (HOUR, DAY) if len(made) > 1 else (MINUTE, HOUR, DAY):
        fine = made[-1]
        made.append(
            _folded(
                width, fine.at, fine.sums, fine.first, fine.last, fine.at[fine.step], fine.device,
                fine.at[fine.group], fine.delays,
            )
        )  # fmt: skip
    return made


def _folded(
    width: int, at: Ints, sums: Ints, first: Ints, last: Ints, heard_at: Ints, device: Ints,
    delayed_at: Ints, delays: Rows,
) -> Steps:  # fmt: skip
    number = at // width
    steps = _unique(number)
    of = np.searchsorted(steps, number)
    count = len(steps)
    whole = np.zeros((3, count), np.int64)
    earliest, latest = np.full(count, _FAR_AWAY), np.full(count, UNKNOWN)
    for n, values in enumerate(sums):
        whole[n] = np.bincount(of, values, count)
    np.minimum.at(earliest, of, first)
    np.maximum.at(latest, of, last)
    most = int(device.max(initial=0)) + 1
    pairs = _unique(np.searchsorted(steps, heard_at // width) * most + device)
    group, bins = groups.added(np.searchsorted(steps, delayed_at // width), delays)
    return Steps(
        width, steps * width, whole, earliest, latest, pairs // most, pairs % most, group, bins
    )


def _unique(values: Ints) -> Ints:
    """Return the values, sorted, each once: several times as fast as numpy's."""
    ranked = np.sort(values)
    return ranked[groups.starts(ranked)]


def hours_of(
    boots: Boots, fresh: Bools, reordered: Bools, before: Ints, totals: dict[str, Ints]
) -> DeviceSteps:
    """Return what packs with numbers add to the hours of devices.

    fresh, reordered  which packs did not come before, and which came after a larger number
    before            the boot before each, now
    totals            by how much lost and unheard grow, for each boot: with what a new boot
                      changes of boots that are not in the batch
    """
    order, packs = boots.by_group, boots.packs
    group, at, seq, delay = (
        each[order] for each in (boots.group, packs.at, packs.seq, packs.delay)
    )
    fresh, reordered, timed = (each[order] for each in (fresh, reordered, packs.timed))
    first = groups.starts(group, at // HOUR)
    segment = np.cumsum(first) - 1
    heads = np.flatnonzero(first)
    of_segment = group[heads]
    lost, unheard = _by_segment(boots, segment[fresh], of_segment, seq[fresh], before, totals)
    steps, of = _device_steps(HOUR, at[heads], boots.device[of_segment], np.ones_like(heads))
    mine = of[segment]
    for n, marks in ((0, fresh), (3, ~fresh), (4, reordered)):
        steps.sums[n] = np.bincount(mine[marks], None, len(steps.at))
    np.add.at(steps.sums[1], of, lost)
    np.add.at(steps.sums[2], of, unheard)
    np.minimum.at(steps.first, mine, at)
    np.maximum.at(steps.heard, mine, at)
    timed = fresh & timed
    steps.group, steps.delays = groups.bins(mine[timed], delay[timed])
    return steps


def _device_steps(width: int, at: Ints, device: Ints, numbered: Ints) -> tuple[DeviceSteps, Ints]:
    """Return steps of devices without sums, and which of them each row is in."""
    keys, of = np.unique(np.stack([at // width, device, numbered]), axis=1, return_inverse=True)
    count = keys.shape[1]
    steps = DeviceSteps(
        width, keys[0] * width, keys[1], keys[2], np.full(count, _FAR_AWAY),
        np.full(count, UNKNOWN), np.zeros((5, count), np.int64), *groups.bins(keys[0, :0], at[:0]),
    )  # fmt: skip
    return steps, of.reshape(-1)


def _by_segment(
    boots: Boots, segment: Ints, group: Ints, seq: Ints, before: Ints, totals: dict[str, Ints]
) -> tuple[Ints, Ints]:
    """By how much lost and unheard of a boot grow in each hour of it: what they are after each.

    `segment` and `seq` are of fresh packs, `group` is the boot of each segment.
    """
    count = len(group)
    received = np.bincount(segment, None, count)
    low, high = np.full(count, _FAR_AWAY), np.full(count, UNKNOWN)
    np.minimum.at(low, segment, seq)
    np.maximum.at(high, segment, seq)
    begins = groups.starts(group)
    position = np.arange(count) - np.maximum.accumulate(np.where(begins, np.arange(count), 0))
    names = ("lowest", "highest", "received", "before")  # of which `counts` makes what is lost
    now = {name: boots.was[name].copy() for name in names}
    now["lowest"][boots.new], now["highest"][boots.new] = _FAR_AWAY, UNKNOWN
    now["received"][boots.new] = 0
    _, was_lost, was_unheard = counts(now, boots.boot)
    so_far = {
        "lost": np.where(boots.new, 0, was_lost), "unheard": np.where(boots.new, 0, was_unheard)
    }  # fmt: skip
    now["before"] = before
    grown = {name: np.zeros(count, np.int64) for name in so_far}
    for turn in range(int(position.max(initial=-1)) + 1):
        at = np.flatnonzero(position == turn)
        of = group[at]
        now["received"][of] += received[at]
        now["lowest"][of] = np.minimum(now["lowest"][of], low[at])
        now["highest"][of] = np.maximum(now["highest"][of], high[at])
        _, lost, unheard = counts({name: now[name][of] for name in now}, boots.boot[of])
        for name, values in (("lost", lost), ("unheard", unheard)):
            grown[name][at] = values - so_far[name][of]
            so_far[name][of] = values
    ends = np.flatnonzero(np.append(begins[1:], True)) if count else begins
    for name, values in grown.items():
        rest = totals[name].copy()
        np.subtract.at(rest, group, values)
        values[ends] += rest[group[ends]]
    return grown["lost"], grown["unheard"]


def hours_of_others(packs: Packs, live: Bools, copy: Bools) -> DeviceSteps:
    """Return what packs without numbers add to the hours of devices.

    `live` are those that were not retained, `copy` those that the broker marked as sent
    before.
    """
    steps, of = _device_steps(HOUR, packs.at, packs.device, np.zeros_like(packs.at))
    steps.sums[0] = np.bincount(of[~copy], None, len(steps.at))
    steps.sums[3] = np.bincount(of[copy], None, len(steps.at))
    np.minimum.at(steps.first, of, packs.at)
    np.maximum.at(steps.heard, of[live], packs.at[live])
    steps.group, steps.delays = groups.bins(of[packs.counted], packs.delay[packs.counted])
    return steps


def _widened(fine: DeviceSteps, width: int) -> DeviceSteps:
    steps, of = _device_steps(width, fine.at, fine.device, fine.numbered)
    for row, values in zip(steps.sums, fine.sums, strict=True):
        np.add.at(row, of, values)
    np.minimum.at(steps.first, of, fine.first)
    np.maximum.at(steps.heard, of, fine.heard)
    steps.group, steps.delays = groups.added(of[fine.group], fine.delays)
    return steps


# Sets of devices


def packed_set(devices: Ints) -> bytes:
    """Return the bytes to keep of a set of device numbers, sorted.

    They are a bitmap, or the numbers if that is shorter.
    """
    if not len(devices):
        return _SPARSE
    most = int(devices[-1])
    if 4 * len(devices) <= most // 8 + 1:
        return _SPARSE + devices.astype("<u4").tobytes()
    marks = np.zeros(most + 1, np.bool_)
    marks[devices] = True
    return _DENSE + np.packbits(marks).tobytes()


def unpacked_set(kept: bytes | None) -> Ints:
    """Return the device numbers of a set, sorted; the opposite of `packed_set`."""
    if not kept:
        return np.empty(0, np.int64)
    if kept[:1] == _SPARSE:
        return np.frombuffer(kept, "<u4", offset=1).astype(np.int64)
    return np.flatnonzero(np.unpackbits(np.frombuffer(kept, np.uint8, offset=1)))


# Into the file


def write(db: sqlite3.Connection, additions: Additions) -> None:
    """Add what a batch adds, in the transaction that is open."""
    fresh = False
    for steps in additions.steps:
        fresh |= _write_steps(db, steps)
    _write_devices(db, additions.devices)
    if additions.dead:
        _write_dead(db, additions.dead)
    if fresh:
        _prune(db)


def _write_steps(db: sqlite3.Connection, steps: Steps) -> bool:
    """Add to steps; return whether any is new."""
    count = len(steps.at)
    begin = max(count - STEPS[steps.width], 0)
    order = np.lexsort((steps.device, steps.step))
    device = steps.device[order]
    ends = np.searchsorted(steps.step[order], np.arange(count + 1)).tolist()
    bins = np.searchsorted(steps.group, np.arange(count + 1)).tolist()
    rows, new = [], False
    for n in range(begin, count):
        at = int(steps.at[n])
        heard, delays = device[ends[n] : ends[n + 1]], steps.delays[bins[n] : bins[n + 1]]
        messages, packs, dead = steps.sums[:, n].tolist()
        first, last = _time(int(steps.first[n])), _time(int(steps.last[n]))
        known = db.execute(
            "SELECT messages, packs, dead, first, last, devices, delays FROM steps "
            "WHERE width = ? AND at = ?", (steps.width, at),
        ).fetchone()  # fmt: skip
        if known is None:
            new = True
        else:
            messages, packs, dead = messages + known[0], packs + known[1], dead + known[2]
            first = min((t for t in (first, known[3]) if t is not None), default=None)
            last = max((t for t in (last, known[4]) if t is not None), default=None)
            heard = np.union1d(unpacked_set(known[5]), heard)
            delays = _with(known[6], delays)
        kept = groups.shortened(delays).tobytes()
        rows.append((steps.width, at, messages, packs, dead, first, last, packed_set(heard), kept))
    db.executemany("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return new


def _with(kept: bytes | None, bins: Rows) -> Rows:
    """Return the sum of a distribution that was kept and another one."""
    if not kept:
        return bins
    rows = np.concatenate([groups.lengthened(np.frombuffer(kept, SHORT)), bins])
    return groups.added(np.zeros(len(rows), np.int64), rows)[1]


def _time(found: int) -> int | None:
    return None if found in (_FAR_AWAY, UNKNOWN) else found


def _write_devices(db: sqlite3.Connection, every: Sequence[DeviceSteps]) -> None:
    """Add to hours; they go into days and months once a later hour begins."""
    row = db.execute("SELECT until FROM folded").fetchone()
    until = _FAR_AGO if row is None else row[0]
    newest = until
    for hours in every:
        _add(db, hours)
        if len(hours.at):
            newest = max(newest, int(hours.at.max()))
            _add_wider(db, _some(hours, hours.at < until))
    if newest > until:
        _add_wider(db, _hours(db, until, newest))
        db.execute("DELETE FROM folded")
        db.execute("INSERT INTO folded VALUES (?)", (newest,))


def _some(steps: DeviceSteps, which: Bools) -> DeviceSteps:
    bins = which[steps.group]
    place = np.cumsum(which) - 1
    return DeviceSteps(
        steps.width, steps.at[which], steps.device[which], steps.numbered[which],
        steps.first[which], steps.heard[which], steps.sums[:, which],
        place[steps.group[bins]], steps.delays[bins],
    )  # fmt: skip


def _hours(db: sqlite3.Connection, since: int, until: int) -> DeviceSteps:
    """Return the hours that are kept from `since` up to `until`."""
    rows = db.execute(
        f"SELECT {', '.join(_STEP)}, delays FROM device_steps "
        "WHERE width = ? AND at >= ? AND at < ?", (HOUR, since, until),
    ).fetchall()  # fmt: skip
    found = columns(rows, (*_STEP, "delays"))
    at, device, numbered = (np.array(found[name], np.int64) for name in _STEP[:3])
    first = np.array([_FAR_AWAY if t is None else t for t in found["first"]], np.int64)
    sums = np.array([found[name] for name in _STEP[5:]], np.int64).reshape(5, -1)
    group, short = groups.unpacked(found["delays"], SHORT)
    return DeviceSteps(
        HOUR, at, device, numbered, first, ints(found["heard"]), sums, group,
        groups.lengthened(short),
    )  # fmt: skip


def _add_wider(db: sqlite3.Connection, hours: DeviceSteps) -> None:
    if len(hours.at):
        days = _widened(hours, DAY)
        _add(db, days)
        _add(db, _widened(days, MONTH))


def _add(db: sqlite3.Connection, steps: DeviceSteps) -> None:
    """Add to the steps of devices."""
    blobs = _delays(db, steps)
    lists = (
        steps.at.tolist(), steps.device.tolist(), steps.numbered.tolist(),
        *([_time(value) for value in each.tolist()] for each in (steps.first, steps.heard)),
        *steps.sums.tolist(), blobs,
    )  # fmt: skip
    # NULL is what min and max of SQLite return if one of their arguments is NULL.
    db.executemany(
        f"INSERT INTO device_steps VALUES ({steps.width}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO UPDATE SET "
        "first = coalesce(min(first, excluded.first), first, excluded.first), "
        "heard = coalesce(max(heard, excluded.heard), heard, excluded.heard), "
        "received = received + excluded.received, lost = lost + excluded.lost, "
        "unheard = unheard + excluded.unheard, duplicates = duplicates + excluded.duplicates, "
        "reordered = reordered + excluded.reordered, delays = coalesce(excluded.delays, delays)",
        zip(*lists, strict=True),
    )  # fmt: skip


def _delays(db: sqlite3.Connection, steps: DeviceSteps) -> list[bytes | None]:
    """Return the delays of each step, with those that are kept; None if none is added."""
    some = _unique(steps.group)
    known: list[bytes | None] = [None] * len(some)
    keys = np.stack([steps.at[some], steps.numbered[some]])
    for at, numbered in np.unique(keys, axis=1).T.tolist():
        mine = np.flatnonzero((keys[0] == at) & (keys[1] == numbered))
        rows = db.execute(
            "SELECT keys.key, delays FROM json_each(?) AS keys CROSS JOIN device_steps "
            "ON width = ? AND at = ? AND numbered = ? AND device = keys.value",
            (json.dumps(steps.device[some[mine]].tolist()), steps.width, at, numbered),
        )
        for n, blob in rows:
            known[mine[n]] = blob
    old_group, old = groups.unpacked(known, SHORT)
    place = np.searchsorted(some, steps.group)
    group, bins = groups.merged((old_group, groups.lengthened(old)), (place, steps.delays))
    found: list[bytes | None] = [None] * len(steps.at)
    blobs = groups.packed(group, groups.shortened(bins), len(some))
    for n, blob in zip(some.tolist(), blobs, strict=True):
        found[n] = blob
    return found


def _write_dead(db: sqlite3.Connection, dead: Sequence[Dead]) -> None:
    known: dict[int, set[str]] = {}
    sums: dict[tuple[int, str], int] = {}
    newest: dict[str, list[Dead]] = {}
    for one in dead:
        day = one.at // DAY * DAY
        if day not in known:
            rows = db.execute("SELECT kind FROM dead WHERE day = ?", (day,))
            known[day] = {kind for (kind,) in rows}
        kinds = known[day]
        kind = one.kind if one.kind in kinds or len(kinds) < KINDS else OTHERS
        kinds.add(kind)
        sums[day, kind] = sums.get((day, kind), 0) + 1
        newest.setdefault(kind, []).append(one)
    db.executemany(
        "INSERT INTO dead VALUES (?, ?, ?) ON CONFLICT DO UPDATE "
        "SET messages = messages + excluded.messages",
        [(day, kind, count) for (day, kind), count in sums.items()],
    )
    for kind, every in newest.items():
        last = sorted(every, key=lambda one: (one.at, one.offset))[-EXAMPLES:]
        db.executemany(
            "INSERT OR REPLACE INTO dead_examples VALUES (?, ?, ?, ?, ?)",
            [(kind, one.at, one.offset, one.topic, one.reason) for one in last],
        )
        db.execute(
            'DELETE FROM dead_examples WHERE kind = ?1 AND (at, "offset") NOT IN '
            '(SELECT at, "offset" FROM dead_examples WHERE kind = ?1 '
            'ORDER BY at DESC, "offset" DESC LIMIT ?2)',
            (kind, EXAMPLES),
        )
    db.execute(
        "DELETE FROM dead_examples WHERE at < (SELECT at FROM dead_examples "
        "ORDER BY at DESC LIMIT 1 OFFSET ?)",
        (_EXAMPLES,),
    )


def _prune(db: sqlite3.Connection) -> None:
    """Remove the steps that are not kept, so that those of a width have no holes.

    They are counted and not measured by a clock, because one that is wrong would remove all
    others.
    """
    for width, kept in STEPS.items():
        oldest = _oldest(db, width, kept)
        if oldest is not None:
            db.execute("DELETE FROM steps WHERE width = ? AND at < ?", (width, oldest))
    for width, kept in DEVICE_STEPS.items():
        of = min(width, DAY)
        oldest = _oldest(db, of, kept * (width // of))
        if oldest is not None:
            db.execute(
                "DELETE FROM device_steps WHERE width = ? AND at < ?",
                (width, oldest // width * width),
            )
    oldest = _oldest(db, DAY, DEVICE_STEPS[DAY])
    if oldest is not None:
        db.execute("DELETE FROM dead WHERE day < ?", (oldest,))


def _oldest(db: sqlite3.Connection, width: int, kept: int) -> int | None:
    """The oldest step that is kept; None if there are not more of them."""
    row = db.execute(
        "SELECT at FROM steps WHERE width = ? ORDER BY at DESC LIMIT 1 OFFSET ?",
        (width, kept - 1),
    ).fetchone()
    found: int | None = None if row is None else row[0]
    return found
