"""The counts of boots, and how they are closed and opened again."""

from __future__ import annotations

import json
import sqlite3

import numpy as np

from ..jobs.limits import FAR, MOST
from . import records
from .groups import RANGE, Ints, Rows
from .records import CLOSED, OPEN, SILENCES, SPAN, SUMS, Records
from .values import known

_NEAR = """
WITH asked AS (
    SELECT json_extract(value, '$[0]') AS device, json_extract(value, '$[1]') AS boot
    FROM json_each(?)
), near AS (
    SELECT device, boot FROM asked UNION
    SELECT device, (SELECT max(boot) FROM closed_boots AS other
        WHERE other.device = asked.device AND other.boot < asked.boot) FROM asked UNION
    SELECT device, (SELECT min(boot) FROM closed_boots AS other
        WHERE other.device = asked.device AND other.boot > asked.boot) FROM asked
)
SELECT part, numbers, ranges, delays, silences
FROM near CROSS JOIN closed_boots USING (device, boot)
"""


def counts(boots: dict[str, Ints]) -> tuple[Ints, Ints, Ints]:
    """Return starts, lost and unheard of boots.

    Whoever heard an earlier boot was there when this one began, with number 1.
    """
    before = boots["before"]
    step = boots["boot"] - np.where(known(before), before, 0)
    begun = np.where(known(before), np.where(step > FAR, 1, step), 0)
    head = np.maximum(boots["lowest"] - 1, 0)
    missing = boots["highest"] - boots["lowest"] - (boots["received"] - 1)
    lost = np.minimum(missing, MOST) + np.where(begun > 0, np.minimum(head, MOST), 0)
    unheard = np.where(begun > 0, 0, np.minimum(head, MOST))
    return begun, np.maximum(lost, 0), unheard


def totals(boots: Records, sign: int = 1) -> Records:
    """Return what each boot adds to its device, or takes away: records of SUMS."""
    begun, lost, unheard = counts(boots.numbers)
    each = boots.numbers | {
        "boots": np.ones_like(begun), "reboots": begun, "lost": lost, "unheard": unheard
    }  # fmt: skip
    numbers = {name: sign * each[name] for name in SUMS.names} | {"device": boots["device"]}
    group, delays = boots.lists["delays"]
    signed = delays.copy()
    signed["n"] *= np.uint32(sign % (1 << 32))
    signed["sum"] *= sign
    return Records(SUMS, numbers, {"delays": (group, signed)})


def _add(db: sqlite3.Connection, closed: Records, sign: int) -> None:
    more = totals(closed, sign)
    pages = SUMS.pages(more["device"])
    Records.paged(db, SUMS, pages).and_these(more).summed("device").save(db, pages)


def near(db: sqlite3.Connection, device: Ints, boot: Ints) -> tuple[Records, Ints]:
    """Return the closed boots among these, and right before and after each; and their parts."""
    keys = json.dumps([*zip(device.tolist(), boot.tolist(), strict=True)])
    rows = db.execute(_NEAR, (keys,)).fetchall() if len(device) else []
    found = Records.of(CLOSED, [blobs for _, *blobs in rows])
    return found, np.array([part for part, *_ in rows], np.int64)


def ranges(db: sqlite3.Connection, device: int, boot: int) -> Rows:
    """Return the ranges of numbers that came of a boot."""
    key = np.array([device]), np.array([boot])
    for found in (Records.paged(db, OPEN, OPEN.pages(key[0])), near(db, *key)[0]):
        mine = found.take((found["device"] == device) & (found["boot"] == boot))
        if len(mine):
            return mine.lists["ranges"][1]
    return np.empty(0, RANGE)


def reopen(db: sqlite3.Connection, closed: Records, parts: Ints) -> Records:
    """Remove boots from the closed ones; return their silences.

    What was written of their parts is no longer right.
    """
    keys = [*zip(closed["device"].tolist(), closed["boot"].tolist(), strict=True)]
    db.executemany("DELETE FROM closed_boots WHERE device = ? AND boot = ?", keys)
    stale = [(part,) for part in parts.tolist()]
    db.executemany("UPDATE parts SET stale = stale + 1 WHERE part = ?", stale)
    _add(db, closed, -1)
    return silences_of(closed)


def silences_of(closed: Records) -> Records:
    """Return the silences of closed boots."""
    group, spans = closed.lists["silences"]
    numbers = {name: closed[name][group] for name in ("device", "boot")}
    return Records(SILENCES, numbers | {name: spans[name] for name in ("since", "until")}, {})


def close(db: sqlite3.Connection, boots: Records, which: list[tuple[int, Ints]]) -> None:
    """Make some of the open boots closed ones: the part, and places in `boots`, of several."""
    silences = Records.read(db, SILENCES)
    _, of = boots.including(silences["device"], silences["boot"])
    order = np.argsort(of, kind="stable")
    spans = np.empty(len(of), SPAN)
    for name in ("since", "until"):
        spans[name] = silences[name][order]
    whole = Records(CLOSED, boots.numbers, boots.lists | {"silences": (of[order], spans)})
    left = np.ones(len(boots), np.bool_)
    for part, at in which:
        left[at] = False
        closed = whole.take(np.sort(at))
        _add(db, closed, 1)
        every = np.arange(len(closed))
        names = ("part", "device", "boot")
        keys = [[part] * len(closed), *(closed[name].tolist() for name in names[1:])]
        rows = zip(*keys, *closed.packed(every, every + 1), strict=True)
        records.insert(db, CLOSED, rows, "", *names)
    boots.take(left).save(db, OPEN.pages(boots["device"][~left]))
    db.execute("DELETE FROM silences")
    silences.take(left[of]).append(db, lambda same: same)
