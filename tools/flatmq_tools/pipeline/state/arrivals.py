"""The changes by a batch of packs: which are copies, and what is known of boots then."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ..jobs.limits import MOST
from . import boots as closed_boots
from . import counters, groups, history, unnumbered
from .boots import counts
from .groups import Bools, Ints, Rows
from .history import Arrivals, Dead, Packs
from .records import KNOWN, OPEN, SILENCES, UNNUMBERED, Records
from .store import Place, StateError, Store, placed
from .values import DAY, UNKNOWN, ints, known, later, least

RANGES = 1000
"""Ranges of numbers that are known of a boot, at most; the highest stay."""
_KEPT = 2  # times the usual interval, from which a silence is kept: it may become shorter
_FEW = 64  # intervals of a device, all of which are kept
_SILENCES = 1000  # of a device; then the shorter half goes
_NAMES = 1_000_000  # of devices whose numbers are remembered
_NOTHING = -1


@dataclass
class Status:
    """The newest status of a device in a batch."""

    device: str
    status: str | None
    at: int
    offset: int


@dataclass
class Marked:
    """The meaning of a batch that is not yet written to the state."""

    again: Callable[[], Marked]
    """Mark the batch once more."""
    before: Place | None
    """The batch that was included last."""
    closed: list[tuple[int]]
    """The parts of closed boots: if they are others now, the batch has to be marked again."""
    statuses: Sequence[Status]
    now: int | None
    copies: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The rows of packs that came before."""
    unsure: int = 0
    """Packs that may have come before: their boot has more gaps than are kept."""
    boots: Boots | None = None
    unnumbered: Records | None = None
    counters: Sequence[counters.Row] = ()
    steps: list[Records] = field(default_factory=list)
    hours: list[Records] = field(default_factory=list)
    dead: Sequence[Dead] = ()


class State:
    """The arithmetic of batches over a Store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._ids: dict[str, int] = {}

    def mark(
        self, arrivals: Arrivals, statuses: Sequence[Status] = (), now: int | None = None,
        others: Arrivals | None = None, came: Rows | None = None, dead: Sequence[Dead] = (),
    ) -> Marked:  # fmt: skip
        """Find the copies in a batch. The state does not change until `commit`.

        `others` are packs without numbers, and `came` counts all messages: rows of CAME.
        """
        came = history.came(arrivals.at[:0]) if came is None else came
        ids = [self.ids(names) for names in (arrivals.names, others.names if others else ())]

        def mark() -> Marked:
            db = self.store.db
            marked = Marked(mark, self.store.place(), _parts(db), statuses, now)
            packs: list[Packs] = []
            if len(arrivals.row):
                boots = Boots(db, ids[0], arrivals.sorted())
                marked.copies, marked.unsure = boots.packs.row[~boots.fresh], boots.unsure
                marked.boots = boots
                marked.hours.append(boots.hours)
                packs.append(boots.heard())
                if now is None:
                    marked.now = int(arrivals.at.max())
            if others is not None and len(others.at):
                marked.unnumbered = unnumbered.changed(db, ids[1], others)
                marked.hours.append(unnumbered.hours(ids[1], others))
                packs.append(unnumbered.delays(ids[1], others))
            marked.steps, marked.dead = history.steps_of(came, dead, packs), dead
            return marked

        with self.store.reading():
            return mark()

    def numbered(self, keys: pa.Table) -> tuple[pa.Table, list[counters.Row]]:
        """Return packs whose boots are missing with their boots: see `counters`.

        The state does not change until the rows are committed, as those of `Marked`.
        """
        devices = keys["device"].combine_chunks().dictionary_encode()
        ids = self.ids(devices.dictionary.to_pylist())[devices.indices.to_numpy()]
        with self.store.reading() as db:
            return counters.numbered(db, keys, ids)

    def commit(self, marked: Marked, place: Place) -> None:
        """Include a batch in the state, and note that it is.

        Nothing happens if it is included already: a query that was stopped may finish its
        batch while the next one does it again.
        """
        with self.store.writing() as db:
            before = self.store.place()
            if before is not None and before.batch is not None and before[:2] == place[:2]:
                return
            if before != marked.before:
                raise StateError(f"{self.store.file}: another query goes on with it")
            if marked.closed != _parts(db):
                rows = marked.counters
                marked = marked.again()
                marked.counters = rows
            _write(db, marked)
            history.write(db, marked.steps, marked.hours, marked.dead)
            [now] = later(ints([None if before is None else before.now]), ints([marked.now]))
            placed(db, place._replace(now=None if now == UNKNOWN else int(now)))

    def ids(self, names: Sequence[str]) -> Ints:
        """Return the numbers of devices, and give those that are new one."""
        if len(self._ids) > _NAMES:
            self._ids.clear()
        missing = sorted({name for name in names if name not in self._ids})
        if missing:
            found: dict[str, int] = {}
            with self.store.writing() as db:
                for name in missing:
                    db.execute("INSERT OR IGNORE INTO devices (name) VALUES (?)", (name,))
                    row = db.execute("SELECT id FROM devices WHERE name = ?", (name,))
                    (found[name],) = row.fetchone()
            self._ids.update(found)
        return np.fromiter((self._ids[name] for name in names), np.int64, len(names))

    def clear(self) -> None:
        """Forget everything."""
        self.store.clear()
        self._ids.clear()


def _parts(db: sqlite3.Connection) -> list[tuple[int]]:
    return db.execute("SELECT part FROM parts").fetchall()


class Boots:
    """The boots of a batch, and those whose first gap may change with them.

    Its packs are in the order in which they arrived.
    """

    def __init__(self, db: sqlite3.Connection, ids: Ints, packs: Arrivals) -> None:
        self.packs = packs
        device = ids[packs.device]
        order = np.lexsort((packs.boot, device))
        first = groups.starts(device[order], packs.boot[order])
        self.by_group, self.heads = order, np.flatnonzero(first)
        """Packs by their boot, and where those of each begin."""
        keys = device[order][first], packs.boot[order][first]
        ids = keys[0][groups.starts(keys[0])]
        self._pages = KNOWN.pages(ids)
        self._devices, self._of = Records.paged(db, KNOWN, self._pages).including(ids)
        boots = self._loaded(db, *keys)
        self.was, self.present = boots.including(*keys)
        """All boots as they were, and the places of those in the batch."""
        self.new = ~known(self.was["received"])
        self.of_device = np.searchsorted(self._devices["device"], self.was["device"])
        self.group = np.empty(len(order), np.int64)
        self.group[order] = self.present[np.cumsum(first) - 1]
        """The place of the boot of each pack."""
        self._mark()

    def _loaded(self, db: sqlite3.Connection, device: Ints, boot: Ints) -> Records:
        boots = Records.paged(db, OPEN, self._pages)
        top = self._devices["top"][np.searchsorted(self._devices["device"], device)]
        # The highest boot of a device is open, and nothing is behind it.
        some = known(top) & (boot != top)
        self._closed, self._parts = closed_boots.near(db, device[some], boot[some])
        boots.numbers["closed"] = np.full(len(boots), UNKNOWN)
        self._closed.numbers["closed"] = np.arange(len(self._closed))
        if not len(self._closed):
            return boots
        boots = boots.and_these(self._closed)
        return boots.take(np.lexsort((boots["boot"], boots["device"])))

    def _mark(self) -> None:
        packs, order, was = self.packs, self.by_group, self.was
        floor = was["floor"]
        new, group, ranges = groups.joined(
            *was.lists["ranges"], self.group[order], packs.seq[order], packs.at[order], floor
        )
        self.fresh = np.empty(len(order), np.bool_)
        self.fresh[order] = new
        """Which packs did not come before."""
        unsure = self.fresh & (packs.seq <= floor[self.group])
        self.unsure = int(np.count_nonzero(unsure))
        self.reordered = self._reordered()
        bins = groups.binned(packs.delay)
        timed = self.fresh & packs.timed
        delays = groups.merged(was.lists["delays"], (self.group[timed], bins[timed]))
        numbers = self._numbers(group, ranges, unsure)
        group, ranges = self._kept(group, ranges, numbers)
        lists = {"ranges": (group, ranges), "delays": delays}
        self.now = Records(OPEN, numbers, lists)
        self.hours = history.hours_of(self, groups.shortened(bins), self._grown())
        self._heard()

    def heard(self) -> Packs:
        """Return all packs, with the delays of those that are no copies."""
        packs = self.packs
        counted = self.fresh & packs.timed
        return Packs(self.now["device"][self.group], packs.at, packs.delay, counted)

    def _numbers(self, group: Ints, ranges: Rows, unsure: Bools) -> dict[str, Ints]:
        packs, was, new = self.packs, self.was, self.new
        now = dict(was.numbers)
        count = len(was)
        for name, rows in (
            ("received", self.fresh), ("duplicates", ~self.fresh), ("reordered", self.reordered),
        ):  # fmt: skip
            now[name] = np.where(new, 0, was[name]) + np.bincount(self.group[rows], None, count)
        at, mine = packs.at[self.by_group], self.present
        now["first"], now["last"] = was["first"].copy(), was["last"].copy()
        now["first"][mine] = least(was["first"][mine], np.minimum.reduceat(at, self.heads))
        now["last"][mine] = np.maximum(was["last"][mine], np.maximum.reduceat(at, self.heads))
        begins = groups.starts(group)
        ends = np.append(begins[1:], True)[: len(group)]
        # The lowest number of a boot that has a floor is not in a range.
        lowest = begins & ~known(was["floor"])[group]
        for name, end, some in (("lo", "lowest", lowest), ("hi", "highest", ends)):
            for part in ("", "_at"):
                now[end + part] = now[end + part].copy()
                now[end + part][group[some]] = ranges[name + part][some]
        for row in np.flatnonzero(unsure).tolist():
            one = self.group[row]
            if packs.seq[row] < now["lowest"][one]:
                now["lowest"][one], now["lowest_at"][one] = packs.seq[row], packs.at[row]
        # One that comes below the floor may be one of the numbers that are missing there.
        late = np.bincount(self.group[unsure], None, count)
        missing = was["old_missing"]
        now["old_missing"] = np.where(late > 0, np.maximum(missing - late, 0), missing)
        # The boot before is another one if that is new, and its highest number may be.
        same = now["device"][1:] == now["device"][:-1]
        touched = np.zeros(count, np.bool_)
        touched[self.present] = True
        follows = 1 + np.flatnonzero(same & (new[1:] | touched[:-1]))
        for name, of in (("before", "boot"), ("before_at", "highest_at")):
            now[name] = now[name].copy()
            now[name][follows] = now[of][follows - 1]
        return now

    def _grown(self) -> Ints:
        """By how much lost grows, for each boot.

        What a new boot changes of those that are not in the batch counts for one that is.
        """
        then, now = counts(self.was.numbers)[1], counts(self.now.numbers)[1]
        grown = now - np.where(self.new, 0, then)
        others = np.ones(len(self.now), np.bool_)
        others[self.present] = False
        moved = np.flatnonzero(others & (grown != 0))
        device = self.now["device"]
        to = self.present[np.searchsorted(device[self.present], device[moved])]
        np.add.at(grown, to, grown[moved])
        return grown

    def _reordered(self) -> Bools:
        """Return which fresh packs came after one with a larger number."""
        group, seq = self.group[self.by_group], self.packs.seq[self.by_group]
        highest = np.where(self.new, _NOTHING, self.was["highest"])
        first = np.zeros(len(seq), np.bool_)
        first[self.heads] = True
        before = np.append(0, seq[:-1])
        before[first] = highest[group[first]]
        # Most boots have none, and need no more than that.
        odd = np.zeros(len(highest), np.bool_)
        odd[group[seq < before]] = True
        some = np.flatnonzero(odd[group])
        found = np.zeros(len(seq), np.bool_)
        if not len(some):
            return found
        group, seq, first = group[some], seq[some], first[some]
        # The numbers by their ranks, so that a group's can be put above those of the one before.
        _, rank = np.unique(np.concatenate([seq, before[some]]), return_inverse=True)
        rank, start = rank[: len(seq)], rank[len(seq) :]
        base = np.cumsum(first) * 2 * len(seq)
        earlier = np.maximum.accumulate(start + base)
        found[self.by_group[some]] = rank + base < earlier
        return found & self.fresh

    def _kept(
        self, group: Ints, ranges: Rows, boots: dict[str, Ints]
    ) -> tuple[Ints, Rows]:  # fmt: skip
        """The ranges of boots, and no more of them in a boot than are kept."""
        sizes = np.bincount(group, None, len(self.was))
        many = np.flatnonzero(sizes > RANGES).tolist()
        if not many:
            return group, ranges
        for name in ("floor", "old_missing", "old_since", "old_until"):
            boots[name] = boots[name].copy()
        ends = np.cumsum(sizes)
        keep = np.ones(len(ranges), np.bool_)
        for one in many:
            begin = int(ends[one] - sizes[one])
            end = int(ends[one]) - RANGES  # the first that stays
            keep[begin:end] = False
            gone = ranges[begin : end + 1]
            missing = gone["lo"][1:] - gone["hi"][:-1] - 1
            since = np.minimum(gone["hi_at"][:-1], gone["lo_at"][1:])
            until = np.maximum(gone["hi_at"][:-1], gone["lo_at"][1:])
            total = min(int(np.minimum(missing, MOST).sum()), MOST)
            if boots["floor"][one] != UNKNOWN:
                # The gap below the lowest range, too, which was none of these before.
                total += int(boots["old_missing"][one])
                since = np.append(since, boots["old_since"][one])
                until = np.append(until, boots["old_until"][one])
            boots["floor"][one] = int(gone["lo"][-1]) - 1
            boots["old_missing"][one] = min(total, MOST)
            boots["old_since"][one], boots["old_until"][one] = since.min(), until.max()
        return group[keep], ranges[keep]

    # Devices

    def _heard(self) -> None:
        """Note when devices were heard, and their intervals."""
        packs, order, devices, of = self.packs, self.by_group, self._devices, self._of
        now = {name: values.copy() for name, values in devices.numbers.items()}
        group = self.of_device[self.group[order]]
        heads = np.flatnonzero(groups.starts(group))
        at = packs.at[order]
        now["heard"][of] = later(now["heard"][of], np.maximum.reduceat(at, heads))
        now["first"][of] = least(now["first"][of], np.minimum.reduceat(at, heads))
        np.maximum.at(now["top"], group, packs.boot[order])
        if len(heads) < len(self.heads):  # devices with several boots
            order = np.argsort(self.of_device[self.group], kind="stable")
        order = order[self.fresh[order]]
        group, at, boot = self.of_device[self.group[order]], packs.at[order], packs.boot[order]
        since, ends = history.intervals(group, at, now["arrived"])
        none = ~known(since)
        wrong = ~none & (since - at > DAY)  # a clock that was wrong
        lasting = np.where(none | wrong, 0, np.maximum(at - since, 0))
        last = group[ends]
        now["arrived"][last] = later(now["arrived"][last], at[ends])
        now["newest"][last] = boot[ends]
        intervals = groups.merged(
            devices.lists["intervals"], (group[~none], groups.binned(lasting[~none]))
        )
        self._devices = Records(KNOWN, now, {"intervals": intervals})
        few, median = _usual(self._devices)
        keep = ~none & (lasting > 0) & (few[group] | (lasting > _KEPT * median[group]))
        spans = {
            "device": now["device"][group], "boot": boot, "since": since, "until": at,
        }  # fmt: skip
        self._silences = Records(SILENCES, {n: each[keep] for n, each in spans.items()}, {})

    # Into the file

    def write(self, db: sqlite3.Connection) -> None:
        """Write the boots, and their devices."""
        self._devices.save(db, self._pages)
        changed = np.zeros(len(self.now), np.bool_)
        for name in OPEN.names:
            changed |= self.now[name] != self.was[name]
        of_closed = self.was["closed"]
        kept = ~known(of_closed) | changed
        boots = self.now if kept.all() else self.now.take(kept)
        boots.save(db, self._pages)
        opened = of_closed[known(of_closed) & changed]
        more = closed_boots.reopen(db, self._closed.take(opened), self._parts[opened])
        self._silences.and_these(more).append(db, lambda every: _unusual(db, every))


def _usual(devices: Records) -> tuple[Bools, Rows]:
    """Return of which devices few intervals are known, and the median of each, in us."""
    group, bins = devices.lists["intervals"]
    few = np.bincount(group, bins["n"], len(devices)) <= _FEW
    return few, groups.percentiles(group, bins, len(devices), [0.5])[:, 0]


def _unusual(db: sqlite3.Connection, silences: Records) -> Records:
    """Return the silences that are to be kept, now that more is known of their devices."""
    devices = Records.paged(db, KNOWN, KNOWN.pages(silences["device"]))
    few, median = _usual(devices)
    of = np.searchsorted(devices["device"], silences["device"])
    lasting = silences["until"] - silences["since"]
    keep = np.flatnonzero(few[of] | (lasting > _KEPT * median[of]))
    keep = keep[np.lexsort((-lasting[keep], of[keep]))]
    begins = np.flatnonzero(groups.starts(of[keep]))
    size = np.diff(np.append(begins, len(keep)))
    rank = np.arange(len(keep)) - np.repeat(begins, size)
    return silences.take(keep[(rank < _SILENCES // 2) | np.repeat(size <= _SILENCES, size)])


def _write(db: sqlite3.Connection, marked: Marked) -> None:
    if marked.boots is not None:
        marked.boots.write(db)
    if marked.unnumbered is not None:
        marked.unnumbered.save(db, UNNUMBERED.pages(marked.unnumbered["device"]))
    db.executemany("INSERT OR REPLACE INTO counters VALUES (?, ?, ?)", marked.counters)
    for told in marked.statuses:
        db.execute("INSERT OR IGNORE INTO devices (name) VALUES (?)", (told.device,))
        # An older one may come in a later batch, from another ingest.
        db.execute(
            "UPDATE devices SET status = ?1, status_at = ?2, status_offset = ?3 WHERE name = ?4 "
            "AND NOT coalesce((status_at > ?2 OR status_at = ?2 AND status_offset > ?3) "
            "AND status_at - ?2 <= ?5, 0)",
            (told.status, told.at, told.offset, told.device, DAY),
        )
