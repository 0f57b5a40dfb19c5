"""The tables health, devices and gaps as they must be, of all events of a fleet at once.

Of packs that arrived at the same time, the one that comes first in the list is the first and the
others are copies. Of devices whose packs have no numbers, arrivals alone say something: when they
were heard, how often they usually are, and which packs the broker marked as repeated.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from flatmq_tools.pipeline.jobs.limits import FAR, MOST, QUIET, QUIET_S, QUIET_UNNUMBERED
from pipeline.messages import at

_STATUS = 32  # characters of a status that are kept
_BURST = 1.0  # s; packs without numbers that come closer together are one sign of life
_PARTS = {"delay_p50": 0.5, "delay_p95": 0.95, "delay_p99": 0.99}

Row = dict[str, Any]


class Event(NamedTuple):
    """A pack, delayed by so many ms, without numbers if `seq` is -1; or a status if it is None."""

    at: float
    device: str
    boot: int = 0
    seq: int | None = None
    delay: float | None = None
    status: str = ""


def rank(values: Iterable[float | None], part: float) -> float | None:
    """Return a percentile: the nearest rank of the values that are known."""
    known = sorted(value for value in values if value is not None)
    return known[math.ceil(part * len(known)) - 1] if known else None


def seconds(since: float, until: float) -> float:
    """Return the time between two events as one in microseconds has it."""
    return (at(until) - at(since)).total_seconds()


def delays(events: Iterable[Event]) -> Row:
    """Return the percentiles of their delays, in ms."""
    values = [event.delay for event in events]
    return {name: rank(values, part) for name, part in _PARTS.items()}


class _Device:
    """All that came of a device, in the order of arrival."""

    def __init__(self, events: Sequence[Event]) -> None:
        statuses = [event for event in events if event.seq is None]
        self.status = (statuses[-1].status[:_STATUS] or None) if statuses else None
        self.status_since = at(statuses[-1].at) if statuses else None
        packs = [event for event in events if event.seq is not None]
        self.packs = [event for event in packs if event.seq != -1]
        self.first = list({(pack.boot, pack.seq): pack for pack in self.packs[::-1]}.values())
        self.first.reverse()  # each number as it came first
        self.first.sort(key=lambda pack: pack.at)
        self.plain = [] if self.packs else packs
        self.live = [pack for pack in self.plain if pack.status != "retain"]
        arrivals = self.first or self.live
        self.since = [(a.at, b.at, b.boot) for a, b in itertools.pairwise(arrivals)]
        lengths = [seconds(a, b) for a, b, _ in self.since]
        if self.plain:
            lengths = [length for length in lengths if length >= _BURST]
        self.usual = rank(lengths, 0.5)
        self.long = rank(lengths, 0.95)
        heard = self.packs or self.live
        self.heard = heard[-1].at if heard else None


def tables(events: Sequence[Event]) -> dict[str, pa.Table]:
    """Return the three tables of these events, which are in the order of their arrival."""
    of: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        of[event.device].append(event)
    fleet = {name: _Device(sent) for name, sent in of.items()}
    usual = rank((one.usual for one in fleet.values() if one.packs), 0.5)
    longest = rank((one.long for one in fleet.values() if one.plain), 0.5)
    now = max(event.at for event in events)
    found: dict[str, list[Row]] = {"health": [], "devices": [], "gaps": []}
    for name, one in fleet.items():
        own, of_all = (one.usual, usual) if one.packs else (one.long, longest)
        after = of_all if own is None else own
        after = math.inf if after is None else after * (QUIET if one.packs else QUIET_UNNUMBERED)
        after = max(after, QUIET_S)
        silent_s = None if one.heard is None else seconds(one.heard, now)
        asleep = one.status == "asleep"
        silence = {
            "silent_s": silent_s,
            "silent": silent_s is not None and silent_s > after and not asleep,
            "status": one.status,
        }
        boots = [{"device": name, **row} for row in _boots(one)]
        newest = one.first[-1].boot if one.first else None
        for row in boots:
            known = silence if row["boot"] == newest else dict.fromkeys(silence)
            found["health"].append({**row, **known})
        found["devices"].append({"device": name, **_device(one, boots), **silence,
                                 "status_since": one.status_since})  # fmt: skip
        found["gaps"] += [{"device": name, **row} for row in _lost(one)]
        spans = [*one.since] if one.packs else []
        if one.packs and not asleep:
            spans.append((one.first[-1].at, now, newest))
        found["gaps"] += [
            {"device": name, "boot": boot, "kind": "silent", "since": at(a), "until": at(b),
             "missing": None}
            for a, b, boot in spans if seconds(a, b) > after
        ]  # fmt: skip
    return {name: pa.Table.from_pylist(rows) for name, rows in found.items()}


def _boots(one: _Device) -> list[Row]:
    """Return the rows of its boots, as far as they are about the boot alone."""
    rows: list[Row] = []
    before = None
    for boot in sorted({pack.boot for pack in one.packs}):
        packs = [pack for pack in one.packs if pack.boot == boot]
        first = [pack for pack in one.first if pack.boot == boot]
        seqs = [pack.seq or 0 for pack in first]
        # Whoever heard an earlier boot was there when this one began, with number 1.
        reboots = 0 if before is None else 1 if boot - before > FAR else boot - before
        missing = min(max(seqs) - min(seqs) - len(seqs) + 1, MOST)
        head = min(max(min(seqs) - 1, 0), MOST)
        highest = itertools.accumulate(seqs, max)
        rows.append(
            {
                "boot": boot, "first": at(packs[0].at), "last": at(packs[-1].at),
                "received": len(first), "lost": missing + (head if reboots else 0),
                "unheard": 0 if reboots else head, "duplicates": len(packs) - len(first),
                "reordered": sum(seq < most for seq, most in zip(seqs, highest, strict=True)),
                **delays(first), "reboots": reboots,
            }
        )  # fmt: skip
        before = boot
    return rows


def _device(one: _Device, boots: list[Row]) -> Row:
    """Return what is known of a device besides its silence; without numbers some is not."""
    sums = {name: sum(row[name] for row in boots) for name in (
        "reboots", "received", "lost", "unheard", "duplicates", "reordered",
    )}  # fmt: skip
    if one.plain:
        copies = sum(bool(pack.status) for pack in one.plain)
        sums = {**dict.fromkeys(sums), "received": len(one.plain) - copies, "duplicates": copies}
    packs = one.packs or one.plain
    return {
        "boots": len(boots), "reboots": sums.pop("reboots"),
        "first": at(packs[0].at) if packs else None,
        "heard": None if one.heard is None else at(one.heard),
        **sums, **delays(one.first or one.live), "usual_s": one.usual,
    }  # fmt: skip


def _lost(one: _Device) -> list[Row]:
    """Return the gaps of numbers, each between the arrivals of the packs around it."""
    rows = []
    ordered = sorted(one.first, key=lambda pack: (pack.boot, pack.seq))
    for before, pack in itertools.pairwise(ordered):
        last = before.seq if before.boot == pack.boot else 0
        missing = (pack.seq or 0) - (last or 0) - 1
        if missing > 0:
            since, until = sorted((before.at, pack.at))
            rows.append({"boot": pack.boot, "kind": "lost", "since": at(since), "until": at(until),
                         "missing": missing})  # fmt: skip
    return rows
