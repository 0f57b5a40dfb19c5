"""The past in the state: each second, minute, hour and day, and devices by hour and day.

Finer steps are kept for a shorter time, so that the file does not grow with the messages. A
report of a year reads days, one of an hour reads seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import groups
from .boots import counts
from .groups import SHORT, Bools, Ints, Rows
from .records import STEP, Records
from .records import STEPS as STEPS_OF_DEVICES
from .values import DAY, UNKNOWN

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


class Dead(NamedTuple):
    """A dead letter."""

    kind: str
    reason: str
    topic: str
    at: int
    offset: int


CAME = np.dtype([("first", "<i8"), ("last", "<i8"), ("messages", "<i8")])
"""How many messages came in a second, packs or not, and when the first and the last came."""


def came(at: Ints) -> Rows:
    """Return rows of CAME for messages that arrived at these times."""
    ranked = np.sort(at)
    second, begins, count = np.unique(ranked // SECOND, return_index=True, return_counts=True)
    rows = np.empty(len(second), CAME)
    rows["first"], rows["last"] = ranked[begins], ranked[begins + count - 1]
    rows["messages"] = count
    return rows


@dataclass
class Arrivals:
    """Packs of a batch, all with device, boot and seq or all without, in any order.

    Times are microseconds since 1970.
    """

    row: Ints
    """A number for each by which `Marked.copies` names it."""
    device: Ints
    """A position in `names`."""
    names: list[str]
    boot: Ints
    seq: Ints
    at: Ints
    offset: Ints
    delay: Ints
    timed: Bools
    """Whether the pack has a time of its own, and so a delay."""
    retained: Bools
    copy: Bools
    """Whether the broker marked it as retained, or as sent before."""

    @classmethod
    def of(cls, table: pa.Table) -> Arrivals:
        """Read a table with a column `row` and those of `taking.KEYS`."""
        devices = table["device"].combine_chunks().dictionary_encode()
        row, boot, seq, at, offset, delay = (
            pc.fill_null(table[name], 0).to_numpy().astype(np.int64, copy=False)
            for name in ("row", "boot", "seq", "at", "offset", "delay")
        )
        retained, again = (
            pc.fill_null(table[name], False).to_numpy().astype(np.bool_, copy=False)
            for name in ("retain", "dup")
        )
        return cls(
            row, devices.indices.to_numpy().astype(np.int64), devices.dictionary.to_pylist(),
            boot, seq, at, offset, delay, table["delay"].is_valid().to_numpy(),
            retained, retained | again,
        )  # fmt: skip

    def sorted(self) -> Arrivals:
        """In the order in which they arrived."""
        order = np.lexsort((self.offset, self.at))
        columns = ((n, v if n == "names" else v[order]) for n, v in vars(self).items())
        return Arrivals(**dict(columns))


def intervals(group: Ints, at: Ints, arrived: Ints) -> tuple[Ints, Bools]:
    """Return since when each interval lasts that ends with an arrival, and the last of a group.

    arrived  of each group: the last one before these, which are sorted by group
    """
    first = groups.starts(group)
    since = np.append(UNKNOWN, at[:-1])[: len(at)]
    since[first] = arrived[group[first]]
    return since, np.append(first[1:], True)[: len(at)]


class Packs(NamedTuple):
    """Packs of a batch, in any order."""

    device: Ints
    """Numbers of devices."""
    at: Ints
    delay: Ints
    counted: Bools
    """Whether the delay counts."""


# Sums of a batch


def steps_of(came: Rows, dead: Sequence[Dead], packs: Sequence[Packs]) -> list[Records]:
    """Return what a batch adds to steps of all widths."""
    dead_at = np.array([one.at for one in dead], np.int64)
    parts = [came["first"], *(each.at for each in packs), dead_at]
    kind = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    numbers = {
        "at": np.concatenate(parts), "messages": np.zeros_like(kind),
        "packs": ((kind > 0) & (kind <= len(packs))).astype(np.int64),
        "dead": (kind > len(packs)).astype(np.int64),
        "first": np.full(len(kind), _FAR_AWAY), "last": np.full(len(kind), UNKNOWN),
    }  # fmt: skip
    for name in ("messages", "first", "last"):
        numbers[name][kind == 0] = came[name]
    devices, delays = (np.concatenate([[], *parts]).astype(np.int64) for parts in (
        [each.device for each in packs], [each.delay[each.counted] for each in packs],
    ))  # fmt: skip
    at = np.flatnonzero(numbers["packs"])
    counted = np.concatenate([np.empty(0, np.bool_), *(each.counted for each in packs)])
    lists = {
        "devices": (at, devices),
        "delays": (at[counted], groups.shortened(groups.binned(delays))),
    }
    every = Records(STEP, numbers, lists)
    if not len(every):
        return []
    made = [_widened(every, SECOND)]
    count = len(made[0])
    if count > STEPS[SECOND]:
        made = [made[0].take(np.arange(count - STEPS[SECOND], count)), _widened(every, MINUTE)]
    for width in (MINUTE, HOUR, DAY)[len(made) - 1 :]:
        made.append(_widened(made[-1], width))
    return made


def _widened(fine: Records, width: int, *names: str) -> Records:
    """Return the sums of steps: in those of a width, of which none has the same in these names."""
    at = fine["at"] // width * width
    steps = {"width": np.full_like(at, width), "at": at}
    return Records(fine.kind, fine.numbers | steps, fine.lists).summed("width", "at", *names)


def hours_of(boots: Boots, bins: Rows, grown: Ints) -> Records:
    """Return what packs with numbers add to the hours of devices.

    bins   of the delay of each pack
    grown  by how much lost grows, for each boot: with what a new boot changes of boots that are
           not in the batch
    """
    order, packs = boots.by_group, boots.packs
    group, at = boots.group[order], packs.at[order]
    fresh, reordered, timed = (
        each[order] for each in (boots.fresh, boots.reordered, boots.fresh & packs.timed)
    )
    first = groups.starts(group, at // HOUR)
    segment = np.cumsum(first) - 1
    heads = np.flatnonzero(first)
    of_segment = group[heads]
    lost = _lost_by_segment(boots, segment[fresh], of_segment, packs.seq[order][fresh], grown)
    numbers = {
        "device": boots.now["device"][of_segment], "numbered": np.ones_like(heads),
        "first": np.minimum.reduceat(at, heads), "heard": np.maximum.reduceat(at, heads),
        "lost": lost, "unheard": np.zeros_like(heads),  # which nobody asks an hour for
    }  # fmt: skip
    for name, rows in (("received", fresh), ("duplicates", ~fresh), ("reordered", reordered)):
        numbers[name] = np.bincount(segment[rows], None, len(heads))
    return hours(at[heads], numbers, groups.added(segment[timed], bins[order][timed]))


def hours(at: Ints, numbers: dict[str, Ints], delays: tuple[Ints, Rows]) -> Records:
    """Return the hours in which something came at these times."""
    steps = {"width": np.full_like(at, HOUR), "at": at // HOUR * HOUR}
    return Records(STEPS_OF_DEVICES, numbers | steps, {"delays": delays})


def _lost_by_segment(boots: Boots, segment: Ints, group: Ints, seq: Ints, grown: Ints) -> Ints:
    """By how much lost of a boot grows in each hour of it: by what it is after each.

    `segment` and `seq` are of fresh packs, `group` is the boot of each segment.
    """
    count = len(group)
    received = np.bincount(segment, None, count)
    low, high = np.full(count, _FAR_AWAY), np.full(count, UNKNOWN)
    np.minimum.at(low, segment, seq)
    np.maximum.at(high, segment, seq)
    begins = groups.starts(group)
    position = np.arange(count) - np.maximum.accumulate(np.where(begins, np.arange(count), 0))
    # Of these `counts` makes what is lost.
    names = ("boot", "lowest", "highest", "received", "before")
    now = {name: boots.was[name].copy() for name in names}
    now["lowest"][boots.new], now["highest"][boots.new] = _FAR_AWAY, UNKNOWN
    now["received"][boots.new] = 0
    so_far = np.where(boots.new, 0, counts(now)[1])
    now["before"] = boots.now["before"]
    lost = np.zeros(count, np.int64)
    for turn in range(int(position.max(initial=-1)) + 1):
        at = np.flatnonzero(position == turn)
        of = group[at]
        now["received"][of] += received[at]
        now["lowest"][of] = np.minimum(now["lowest"][of], low[at])
        now["highest"][of] = np.maximum(now["highest"][of], high[at])
        after = counts({name: now[name][of] for name in now})[1]
        lost[at] = after - so_far[of]
        so_far[of] = after
    ends = np.flatnonzero(np.append(begins[1:], True)) if count else begins
    rest = grown.copy()
    np.subtract.at(rest, group, lost)
    lost[ends] += rest[group[ends]]
    return lost


def summed(steps: Records) -> Records:
    """Return steps of which no two have the same device."""
    return steps.summed("width", "at", "device", "numbered")


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


def unpacked_set(kept: bytes | None, more: Ints | None = None) -> Ints:
    """Return the device numbers of a set, and more of them, sorted."""
    if not kept or kept[:1] == _SPARSE:
        found = np.frombuffer(kept or _SPARSE, "<u4", offset=1).astype(np.int64)
    else:
        found = np.flatnonzero(np.unpackbits(np.frombuffer(kept, np.uint8, offset=1)))
    return found if more is None else groups.distinct(np.concatenate([found, more]))


# Into the file


def write(
    db: sqlite3.Connection,
    steps: Sequence[Records],
    hours: Sequence[Records],
    dead: Sequence[Dead],
) -> None:
    """Add what a batch adds, in the transaction that is open."""
    are_new = [_write_steps(db, each) for each in steps]
    _write_devices(db, hours)
    if dead:
        _write_dead(db, dead)
    if any(are_new):
        _prune(db)


def _write_steps(db: sqlite3.Connection, steps: Records) -> bool:
    """Add to steps of a width; return whether any is new."""
    bounds = {
        name: np.searchsorted(group, np.arange(len(steps) + 1)).tolist()
        for name, (group, _) in steps.lists.items()
    }
    rows, new = [], False
    numbers = [steps[name].tolist() for name in STEP.names]
    width = numbers[0][0]
    for n in range(max(len(steps) - STEPS[width], 0), len(steps)):
        _, at, messages, packs, dead, *ends = (column[n] for column in numbers)
        first, last = map(_time, ends)
        heard, delays = (
            each[bounds[name][n] : bounds[name][n + 1]] for name, (_, each) in steps.lists.items()
        )
        known = db.execute(
            "SELECT messages, packs, dead, first, last, devices, delays FROM steps "
            "WHERE width = ? AND at = ?", (width, at),
        ).fetchone()  # fmt: skip
        if known is None:
            new = True
        else:
            messages, packs, dead = messages + known[0], packs + known[1], dead + known[2]
            first = min((t for t in (first, known[3]) if t is not None), default=None)
            last = max((t for t in (last, known[4]) if t is not None), default=None)
            heard = unpacked_set(known[5], heard)
            both = np.concatenate([np.frombuffer(known[6], SHORT), delays])
            _, delays = groups.added(np.zeros(len(both), np.int64), both)
        kept = packed_set(heard), delays.tobytes()
        rows.append((width, at, messages, packs, dead, first, last, *kept))
    db.executemany("INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return new


def _time(found: int) -> int | None:
    return None if found in (_FAR_AWAY, UNKNOWN) else found


def _write_devices(db: sqlite3.Connection, every: Sequence[Records]) -> None:
    """Add to hours; they go into days and months once a later hour begins."""
    row = db.execute("SELECT until FROM folded").fetchone()
    until = _FAR_AGO if row is None else row[0]
    newest = until
    for more in every:
        more.append(db, summed)
        newest = max(newest, int(more["at"].max(initial=until)))
        _add_wider(db, more.take(more["at"] < until))
    if newest > until:
        which = "WHERE width = ? AND at >= ? AND at < ? ORDER BY at, page"
        _add_wider(db, Records.read(db, STEPS_OF_DEVICES, which, (HOUR, until, newest)))
        db.execute("DELETE FROM folded")
        db.execute("INSERT INTO folded VALUES (?)", (newest,))


def _add_wider(db: sqlite3.Connection, more: Records) -> None:
    for width in (DAY, MONTH):
        more = _widened(more, width, "device", "numbered")
        more.append(db, summed)


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
