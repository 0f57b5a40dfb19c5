"""The changes by a batch of packs: which are copies, and what is known of boots then."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ..jobs.limits import MOST
from . import counters, groups, history, unnumbered
from .counts import counts
from .groups import BIN, RANGE, Bools, Ints, Rows
from .history import Additions, Came, Packs
from .store import Place, Store, placed
from .unnumbered import Unnumbered
from .values import DAY, UNKNOWN, columns, ints, later

RANGES = 1000
"""Ranges of numbers that are known of a boot, at most; the highest stay."""
_KEPT = 2  # times the usual interval, from which a silence is kept: it may become shorter
_FEW = 64  # intervals of a device, all of which are kept
_SILENCES = 1000  # of a device; then the shorter half goes
_NAMES = 1_000_000  # of devices whose numbers are remembered
_MANY = 500  # names in one question
_NOTHING = -1

_BOOT = (
    "first", "last", "received", "lowest", "lowest_at", "highest", "highest_at", "duplicates",
    "reordered", "unsure", "floor", "old_missing", "old_since", "old_until", "before", "part",
)  # fmt: skip
SUMS = ("boots", "reboots", "received", "lost", "unheard", "duplicates", "reordered", "unsure")


@dataclass
class Arrivals:
    """The packs of a batch that have device, boot and seq, in any order.

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

    @classmethod
    def of(cls, table: pa.Table) -> Arrivals:
        """Read a table with the columns row, device, boot, seq, at, offset, delay."""
        devices = table["device"].combine_chunks().dictionary_encode()

        def ints(name: str) -> Ints:
            found: Ints = table[name].to_numpy().astype(np.int64, copy=False)
            return found

        timed = table["delay"].is_valid().to_numpy()
        delay = table["delay"].fill_null(0).to_numpy().astype(np.int64, copy=False)
        codes = devices.indices.to_numpy().astype(np.int64)
        return cls(
            ints("row"), codes, devices.dictionary.to_pylist(), ints("boot"), ints("seq"),
            ints("at"), ints("offset"), delay, timed,
        )  # fmt: skip

    def sorted(self) -> Arrivals:
        """In the order in which they arrived."""
        order = np.lexsort((self.offset, self.at))
        return Arrivals(
            self.row[order], self.device[order], self.names, self.boot[order], self.seq[order],
            self.at[order], self.offset[order], self.delay[order], self.timed[order],
        )  # fmt: skip


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

    copies: Ints
    """The rows of packs that came before."""
    unsure: int
    """Packs that may have come before: their boot has more gaps than are kept."""
    boots: Sequence[tuple[Any, ...]]
    seen: Sequence[tuple[Any, ...]]
    shifted: Sequence[tuple[int, int]]
    """The boots after new ones: which is before them now."""
    devices: Sequence[tuple[Any, ...]]
    silences: Sequence[tuple[Any, ...]]
    crossed: Sequence[tuple[float, int]]
    crowded: Sequence[int]
    statuses: Sequence[Status]
    now: int | None
    unnumbered: Sequence[tuple[Any, ...]] = ()
    counters: Sequence[counters.Row] = ()
    past: Additions = field(default_factory=Additions)


class State:
    """The arithmetic of batches over a Store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._ids: dict[str, int] = {}

    def mark(
        self, arrivals: Arrivals, statuses: Sequence[Status] = (), now: int | None = None,
        others: Unnumbered | None = None, came: Came | None = None,
    ) -> Marked:  # fmt: skip
        """Find the copies in a batch. The state does not change until `commit`.

        `others` are packs without numbers, and `came` says what all messages were.
        """
        with self.store.named():
            packs = Packs.none()
            if len(arrivals.row):
                boots = Boots(self, arrivals.sorted())
                marked = boots.marked(statuses, now)
                packs = boots.heard()
            else:
                nothing = np.empty(0, np.int64)
                marked = Marked(nothing, 0, (), (), (), (), (), (), (), statuses, now)
            if others is not None:
                ids = self.ids(others.names)
                marked.unnumbered = unnumbered.changed(self.store.db, ids, others)
                if len(others.at):
                    marked.past.devices.append(unnumbered.hours(ids, others))
                    packs = packs.and_these(unnumbered.delays(ids, others))
            marked.past.steps = history.steps_of(came or Came.nothing(), packs)
            marked.past.dead = () if came is None else came.dead
        return marked

    def numbered(self, keys: pa.Table) -> tuple[pa.Table, list[counters.Row]]:
        """Return packs whose boots are missing with their boots: see `counters`.

        The state does not change until the rows are committed, as those of `Marked`.
        """
        with self.store.named():
            devices = keys["device"].combine_chunks().dictionary_encode()
            ids = self.ids(devices.dictionary.to_pylist())[devices.indices.to_numpy()]
            return counters.numbered(self.store.db, keys, ids)

    def commit(self, marked: Marked, place: Place) -> None:
        """Include a batch in the state, and note that it is.

        Nothing happens if it is included already: a query that was stopped may finish its
        batch while the next one does it again.
        """
        with self.store.writing() as db:
            before = self.store.place()
            if before is not None and before.batch is not None and before[:2] == place[:2]:
                return
            _write(db, marked)
            history.write(db, marked.past)
            was = None if before is None else before.now
            placed(db, place._replace(now=later(was, marked.now)))

    def ids(self, names: Sequence[str]) -> Ints:
        """Return the numbers of devices, and give those that are new one."""
        if len(self._ids) > _NAMES:
            self._ids.clear()
        missing = [name for name in names if name not in self._ids]
        if missing:
            self._find(missing)
            new = [(name,) for name in missing if name not in self._ids]
            if new:
                with self.store.writing() as db:
                    db.executemany("INSERT INTO devices (name) VALUES (?)", new)
                self._find([name for (name,) in new])
        return np.fromiter((self._ids[name] for name in names), np.int64, len(names))

    def _find(self, names: Sequence[str]) -> None:
        for at in range(0, len(names), _MANY):
            some = names[at : at + _MANY]
            places = ", ".join("?" * len(some))
            found = f"SELECT name, id FROM devices WHERE name IN ({places})"
            self._ids.update(self.store.db.execute(found, some).fetchall())

    def forget_names(self) -> None:
        """Forget the numbers of devices, after the Store was cleared."""
        self._ids.clear()


class Boots:
    """The boots in a batch: groups of its packs, sorted by device and boot."""

    def __init__(self, state: State, packs: Arrivals) -> None:
        self.db = state.store.db
        self.packs = packs
        device = state.ids(packs.names)[packs.device]
        order = np.lexsort((packs.boot, device))
        first = groups.starts(device[order], packs.boot[order])
        self.group = np.empty(len(order), np.int64)
        self.group[order] = np.cumsum(first) - 1
        self.device = device[order][first]  # of each group
        self.boot = packs.boot[order][first]
        self.groups = len(self.boot)
        # Rows of packs by group, in the order of their arrival.
        self.by_group = order
        self.heads = np.flatnonzero(first)
        self._load()

    def _load(self) -> None:
        names = ", ".join(f"boots.{name}" for name in _BOOT)
        keys = json.dumps([*zip(self.device.tolist(), self.boot.tolist(), strict=True)])
        rows = self.db.execute(
            f"SELECT boots.id, seen.ranges, seen.delays, {names} FROM json_each(?) AS keys "
            "LEFT JOIN boots ON boots.device = json_extract(keys.value, '$[0]') "
            "AND boots.boot = json_extract(keys.value, '$[1]') "
            "LEFT JOIN seen ON seen.id = boots.id ORDER BY keys.key", (keys,),
        ).fetchall()  # fmt: skip
        found = columns(rows, ("id", "ranges", "delays", *_BOOT))
        self.id: list[int | None] = found["id"]
        self.new = np.array([one is None for one in self.id], np.bool_)
        self.was = {name: ints(found[name]) for name in _BOOT}
        self.range_group, self.ranges = groups.unpacked(found["ranges"], RANGE)
        self.delay_group, self.delays = groups.unpacked(found["delays"], BIN)

    def marked(self, statuses: Sequence[Status], now: int | None) -> Marked:
        """See `State.mark`."""
        fresh, unsure = self._fresh()
        self._is_fresh = fresh
        boots = self._boots(fresh, unsure)
        boots["before"], shifted = self._before()
        sums = self._sums(boots, shifted)
        hours = history.hours_of(self, fresh, self._is_reordered, boots["before"], sums)
        ids = self._numbers()
        range_group, ranges = self._ranges(fresh & ~unsure, boots)
        timed = np.flatnonzero(fresh & self.packs.timed)
        more_group, more = groups.bins(self.group[timed], self.packs.delay[timed])
        delay_group, delays = groups.merged((self.delay_group, self.delays), (more_group, more))
        seen = zip(
            ids,
            groups.packed(range_group, ranges, self.groups),
            groups.packed(delay_group, delays, self.groups),
            strict=True,
        )
        rows = zip(
            ids, self.device.tolist(), self.boot.tolist(),
            *(_nulls(boots[name]) for name in _BOOT[:-1]), strict=True,
        )  # fmt: skip
        devices = _Devices(self, fresh, boots["first"], sums, (more_group, more))
        return Marked(
            self.packs.row[~fresh], int(unsure.sum()), list(rows), list(seen), shifted,
            devices.rows(), devices.silences, devices.crossed, devices.crowded, statuses,
            now if now is not None else int(self.packs.at.max()),
            past=Additions(devices=[hours]),
        )  # fmt: skip

    def heard(self) -> Packs:
        """Return all packs, with the delays of those that are no copies; after `marked`."""
        packs = self.packs
        return Packs(self.device[self.group], packs.at, packs.delay, self._is_fresh & packs.timed)

    def _fresh(self) -> tuple[Bools, Bools]:
        """Return which packs did not come before, and of these which may have."""
        packs = self.packs
        order = np.lexsort((packs.seq, self.group))
        group, seq = self.group[order], packs.seq[order]
        first = groups.starts(group, seq)
        once = order[first]
        known = groups.inside(self.range_group, self.ranges, group[first], seq[first])
        fresh = np.zeros(len(order), np.bool_)
        fresh[once[~known]] = True
        floor = np.where(self.was["floor"] == UNKNOWN, _NOTHING, self.was["floor"])
        return fresh, fresh & (packs.seq <= floor[self.group])

    def _boots(self, fresh: Bools, unsure: Bools) -> dict[str, Ints]:
        packs, was, new = self.packs, self.was, self.new
        self._is_reordered = self._reordered(fresh)
        at, heads = packs.at[self.by_group], self.heads
        sums = {
            "received": fresh,
            "duplicates": ~fresh,
            "reordered": self._is_reordered,
            "unsure": unsure,
        }
        boots = {
            name: np.where(new, 0, was[name]) + np.bincount(self.group[rows], None, self.groups)
            for name, rows in sums.items()
        }
        low, high = np.minimum.reduceat(at, heads), np.maximum.reduceat(at, heads)
        boots["first"] = np.where(new, low, np.minimum(was["first"], low))
        boots["last"] = np.where(new, high, np.maximum(was["last"], high))
        for name in ("lowest", "lowest_at", "highest", "highest_at"):
            boots[name] = was[name].copy()
        rows = np.flatnonzero(fresh)
        rows = rows[np.lexsort((packs.seq[rows], self.group[rows]))]
        begins = groups.starts(self.group[rows])
        for name, ends in (("lowest", begins), ("highest", np.append(begins[1:], True))):
            if not len(rows):
                break
            end = rows[ends]
            group, seq = self.group[end], packs.seq[end]
            beyond = seq < was[name][group] if name == "lowest" else seq > was[name][group]
            better = new[group] | beyond
            boots[name][group[better]] = seq[better]
            boots[f"{name}_at"][group[better]] = packs.at[end][better]
        for name in ("floor", "old_missing", "old_since", "old_until"):
            boots[name] = was[name].copy()
        # One that comes below the floor may be one of the numbers that are missing there.
        late = np.bincount(self.group[unsure], None, self.groups)
        some = late > 0
        boots["old_missing"][some] = np.maximum(boots["old_missing"][some] - late[some], 0)
        return boots

    def _before(self) -> tuple[Ints, list[tuple[int, int]]]:
        """Return the boot before each, and the boots after new ones.

        Of the latter, it is their new one before, and their number.
        """
        before = self.was["before"].copy()
        of_same = self.device[1:] == self.device[:-1]
        below = np.where(of_same, self.boot[:-1], UNKNOWN)
        above = np.where(of_same, self.boot[1:], np.iinfo(np.int64).max)
        new = np.flatnonzero(self.new)
        keys = zip(self.device[new].tolist(), self.boot[new].tolist(), strict=True)
        rows = self.db.execute(
            "WITH new AS (SELECT key, json_extract(value, '$[0]') AS device, "
            "json_extract(value, '$[1]') AS boot FROM json_each(?)) "
            "SELECT boot, (SELECT max(boot) FROM boots WHERE device = new.device "
            "AND boot < new.boot), (SELECT id FROM boots WHERE device = new.device "
            "AND boot > new.boot ORDER BY boot LIMIT 1) FROM new ORDER BY key",
            (json.dumps([*keys]),),
        ).fetchall()
        before[new] = ints([last for _, last, _ in rows])
        shifted = []
        for one, (boot, _, following) in zip(new.tolist(), rows, strict=True):
            if following is None:
                continue
            text = "SELECT boot FROM boots WHERE id = ?"
            (later_boot,) = self.db.execute(text, (following,)).fetchone()
            if one == len(above) or later_boot < above[one]:
                shifted.append((boot, following))
        before[1:] = np.maximum(before[1:], below)
        return before, shifted

    def _sums(self, boots: dict[str, Ints], shifted: Sequence[tuple[int, int]]) -> dict[str, Ints]:
        """By how much the sums of devices grow, for each group."""
        counted = dict(zip(("reboots", "lost", "unheard"), counts(boots, self.boot), strict=True))
        was = {name: np.where(self.new, 0, self.was[name]) for name in SUMS if name in self.was}
        was |= {
            name: np.where(self.new, 0, old)
            for name, old in zip(counted, counts(self.was, self.boot), strict=True)
        }
        sums = {name: (counted | boots)[name] - was[name] for name in was}
        sums["boots"] = self.new.astype(np.int64)
        if shifted:
            text = "SELECT device, boot, lowest, highest, received, before FROM boots WHERE id = ?"
            rows = [self.db.execute(text, (number,)).fetchone() for _, number in shifted]
            found = columns(rows, ("device", "boot", "lowest", "highest", "received", "before"))
            then = {name: ints(values) for name, values in found.items()}
            now = {**then, "before": ints([before for before, _ in shifted])}
            # Any group of the device will do: they are added up.
            group = np.searchsorted(self.device, then["device"])
            for name, new, old in zip(
                counted, counts(now, then["boot"]), counts(then, then["boot"]), strict=True
            ):
                np.add.at(sums[name], group, new - old)
        return sums

    def _reordered(self, fresh: Bools) -> Bools:
        """Return which fresh packs came after one with a larger number."""
        order, heads = self.by_group, self.heads
        seq, group = self.packs.seq[order], self.group[order]
        before = np.where(self.new, _NOTHING, self.was["highest"])
        # The numbers by their ranks, so that a group's can be put above those of the one before.
        _, rank = np.unique(np.concatenate([seq, before]), return_inverse=True)
        rank, start = rank[: len(seq)], rank[len(seq) :]
        base = group * (len(seq) + len(before))
        highest = np.maximum.accumulate(np.maximum(rank, start[group]) + base)
        earlier = np.empty(len(seq), np.int64)
        earlier[1:] = highest[:-1]
        earlier[heads] = start + base[heads]
        found = np.zeros(len(seq), np.bool_)
        found[order] = rank + base < earlier
        return found & fresh

    def _numbers(self) -> list[int]:
        """The number of each boot; of new ones those that follow."""
        (most,) = self.db.execute("SELECT coalesce(max(id), 0) FROM boots").fetchone()
        numbers = []
        for known in self.id:
            if known is None:
                most += 1
            numbers.append(most if known is None else known)
        return numbers

    def _ranges(self, sure: Bools, boots: dict[str, Ints]) -> tuple[Ints, Rows]:
        """The ranges with the fresh packs, and no more of them in a boot than are kept."""
        packs = self.packs
        group, rows = groups.joined(
            self.range_group, self.ranges, self.group[sure], packs.seq[sure], packs.at[sure]
        )
        sizes = np.bincount(group, None, self.groups)
        ends = np.cumsum(sizes)
        keep = np.ones(len(rows), np.bool_)
        for one in np.flatnonzero(sizes > RANGES).tolist():
            begin = int(ends[one] - sizes[one])
            end = int(ends[one]) - RANGES  # the first that stays
            keep[begin:end] = False
            gone = rows[begin : end + 1]
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
        return group[keep], rows[keep]


class _Devices:
    """The changes of a batch to the devices in it."""

    def __init__(
        self, batch: Boots, fresh: Bools, firsts: Ints, sums: dict[str, Ints],
        delays: tuple[Ints, Rows],
    ) -> None:  # fmt: skip
        self._batch, self._fresh, self._delays = batch, fresh, delays
        self._firsts, self._sums = firsts, sums
        first = groups.starts(batch.device)
        self.of_group = np.cumsum(first) - 1
        self.id = batch.device[first]
        self.count = len(self.id)
        self.silences: list[tuple[Any, ...]] = []
        self.crossed: list[tuple[float, int]] = []
        self.crowded: list[int] = []

    def rows(self) -> list[tuple[Any, ...]]:
        """For the table devices; fills `silences` too."""
        known = self._batch.db.execute(
            "SELECT heard, arrived, newest, intervals, delays, silences FROM json_each(?) "
            "AS keys CROSS JOIN devices ON devices.id = keys.value ORDER BY keys.key",
            (json.dumps(self.id.tolist()),),
        ).fetchall()
        was = columns(known, ("heard", "arrived", "newest", "intervals", "delays", "silences"))
        packs = self._batch.packs
        device = self.of_group[self._batch.group]
        heard = np.full(self.count, UNKNOWN)
        np.maximum.at(heard, device, packs.at)
        more_group, more = self._delays
        delay_group, delays = groups.merged(
            groups.unpacked(was["delays"], BIN), (self.of_group[more_group], more)
        )
        arrived, newest, intervals, usual, kept = self._intervals(device, was)
        begins = np.flatnonzero(groups.starts(self._batch.device))
        first: list[int] = np.minimum.reduceat(self._firsts, begins).tolist()
        sums = [np.add.reduceat(self._sums[name], begins).tolist() for name in SUMS]
        return list(
            zip(
                (later(a, b) for a, b in zip(was["heard"], heard.tolist(), strict=True)),
                arrived, newest, usual, intervals,
                groups.packed(delay_group, delays, self.count),
                kept, first, first, *sums, self.id.tolist(),
                strict=True,
            )
        )  # fmt: skip

    def _intervals(
        self, device: Ints, was: dict[str, list[Any]]
    ) -> tuple[list[Any], list[Any], list[bytes], list[float | None], list[int]]:
        """Return for each device the last arrival, its boot, and the intervals.

        That is the distribution of intervals, their median in seconds, and how many
        silences are kept.
        """
        batch = self._batch
        rows = np.flatnonzero(self._fresh)
        rows = rows[np.argsort(device[rows], kind="stable")]
        group, at = device[rows], batch.packs.at[rows]
        first = groups.starts(group)
        arrived = ints(was["arrived"])
        since = np.empty(len(rows), np.int64)
        since[1:] = at[:-1]
        since[first] = arrived[group[first]]
        none = since == UNKNOWN
        wrong = ~none & (since - at > DAY)  # a clock that was wrong
        lasting = np.where(none | wrong, 0, np.maximum(at - since, 0))
        ends = rows[np.append(first[1:], True)] if len(rows) else rows
        newest = list(was["newest"])
        last = list(was["arrived"])
        for one, row in zip(device[ends].tolist(), ends.tolist(), strict=True):
            last[one] = later(last[one], int(batch.packs.at[row]))
            newest[one] = int(batch.boot[batch.group[row]])
        old_group, old = groups.unpacked(was["intervals"], BIN)
        bin_group, rows_ = groups.merged(
            (old_group, old), groups.bins(group[~none], lasting[~none])
        )
        median = groups.percentiles(bin_group, rows_, self.count, [0.5])[:, 0]
        usual = [None if math.isnan(value) else value / 1e6 for value in median.tolist()]
        n = np.bincount(bin_group, rows_["n"], self.count)
        before = np.bincount(old_group, old["n"], self.count)
        keep = ~none & ((n[group] <= _FEW) | (lasting > _KEPT * median[group]))
        keep &= lasting > 0
        boot = batch.boot[batch.group[rows]]
        self.silences = list(
            zip(
                self.id[group[keep]].tolist(), boot[keep].tolist(), since[keep].tolist(),
                at[keep].tolist(), strict=True,
            )
        )  # fmt: skip
        crossing = np.flatnonzero((before <= _FEW) & (n > _FEW) & (before > 0)).tolist()
        self.crossed = [(_KEPT * float(median[d]), int(self.id[d])) for d in crossing]
        kept = np.array(was["silences"], np.int64) + np.bincount(group[keep], None, self.count)
        self.crowded = self.id[kept > _SILENCES].tolist()
        return (
            last, newest, groups.packed(bin_group, rows_, self.count), usual, kept.tolist()
        )  # fmt: skip


def _write(db: sqlite3.Connection, marked: Marked) -> None:
    _reopen(db, marked)
    names = _BOOT[:-1]
    db.executemany(
        f"INSERT INTO boots (id, device, boot, {', '.join(names)}) "
        f"VALUES ({', '.join('?' * (3 + len(names)))}) "
        "ON CONFLICT (id) DO UPDATE SET part = NULL, "
        + ", ".join(f"{name} = excluded.{name}" for name in names),
        marked.boots,
    )
    db.executemany("UPDATE boots SET before = ?, part = NULL WHERE id = ?", marked.shifted)
    db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?)", marked.seen)
    sums = ", ".join(f"{name} = {name} + ?" for name in SUMS)
    db.executemany(
        "UPDATE devices SET heard = ?, arrived = ?, newest = ?, usual = ?, intervals = ?, "
        f"delays = ?, silences = ?, first = min(coalesce(first, ?), ?), {sums} WHERE id = ?",
        marked.devices,
    )
    db.executemany("INSERT INTO silences VALUES (?, ?, ?, ?)", marked.silences)
    db.executemany("DELETE FROM silences WHERE until - since <= ? AND device = ?", marked.crossed)
    for device in marked.crowded:
        db.execute(
            "DELETE FROM silences WHERE device = ?1 AND rowid NOT IN (SELECT rowid FROM silences "
            "WHERE device = ?1 ORDER BY until - since DESC LIMIT ?2)",
            (device, _SILENCES // 2),
        )
    for device in {device for _, device in marked.crossed} | {*marked.crowded}:
        db.execute(
            "UPDATE devices SET silences = "
            "(SELECT count(*) FROM silences WHERE device = ?1) WHERE id = ?1",
            (device,),
        )
    unnumbered.write(db, marked.unnumbered)
    counters.write(db, marked.counters)
    for told in marked.statuses:
        db.execute("INSERT OR IGNORE INTO devices (name) VALUES (?)", (told.device,))
        # An older one may come in a later batch, from another ingest.
        db.execute(
            "UPDATE devices SET status = ?1, status_at = ?2, status_offset = ?3 WHERE name = ?4 "
            "AND NOT coalesce((status_at > ?2 OR status_at = ?2 AND status_offset > ?3) "
            "AND status_at - ?2 <= ?5, 0)",
            (told.status, told.at, told.offset, told.device, DAY),
        )


def _reopen(db: sqlite3.Connection, marked: Marked) -> None:
    """Note that what was written of some closed boots is no longer right.

    They are those that change, and those after them, whose first gap may change too.
    """
    closed = db.execute("SELECT 1 FROM parts LIMIT 1").fetchone()
    if closed is None:
        return
    keys = [(device, boot) for _, device, boot, *_ in marked.boots]
    keys += [
        key
        for _, number in marked.shifted
        for key in db.execute("SELECT device, boot FROM boots WHERE id = ?", (number,))
    ]
    for key in keys:
        found = db.execute("SELECT part FROM boots WHERE device = ? AND boot = ?", key).fetchone()
        if found is None or found[0] is None:
            continue
        rows = db.execute(
            "SELECT id, part FROM boots WHERE device = ?1 AND (boot = ?2 OR before = ?2)", key
        ).fetchall()
        for number, part in rows:
            db.execute("UPDATE parts SET stale = stale + 1 WHERE part = ?", (part,))
            db.execute("UPDATE boots SET part = NULL WHERE id = ?", (number,))


def _nulls(values: Ints) -> list[int | None]:
    return [None if value == UNKNOWN else value for value in values.tolist()]
