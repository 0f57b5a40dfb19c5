"""Packs without boot and seq in the state: what their arrivals alone say of a device.

What was lost cannot be counted without a boot and a number. A device counts as one without
numbers as long as none of its packs had any.
"""

from __future__ import annotations

import sqlite3

import numpy as np

from . import groups, history
from .groups import Ints
from .history import Arrivals, Packs
from .records import STEPS, UNNUMBERED, Records
from .values import DAY, UNKNOWN, known, later, least

_BURST = 1_000_000  # us; messages that come closer together are one sign of life


def changed(db: sqlite3.Connection, ids: Ints, packs: Arrivals) -> Records:
    """Return the records of the pages of these devices after a batch.

    `ids` are the numbers of the devices in `packs.names`.
    """
    order = np.lexsort((packs.offset, packs.at))
    was = Records.paged(db, UNNUMBERED, UNNUMBERED.pages(ids[packs.device]))
    was, group = was.including(ids[packs.device[order]])
    by_device = np.argsort(group, kind="stable")
    order, group = order[by_device], group[by_device]
    at, delay = packs.at[order], packs.delay[order]
    live, copy = ~packs.retained[order], packs.copy[order]
    now = {name: values.copy() for name, values in was.numbers.items()}
    heads = np.flatnonzero(groups.starts(group))
    now["first"][group[heads]] = least(now["first"][group[heads]], at[heads])
    for name, rows in (("received", ~copy), ("duplicates", copy)):
        now[name] = np.maximum(now[name], 0) + np.bincount(group[rows], None, len(was))
    of, moment = group[live], at[live]
    since, ends = history.intervals(of, moment, now["arrived"])
    even = known(since) & (since - moment <= DAY) & (moment - since >= _BURST)
    for name in ("heard", "arrived"):
        now[name][of[ends]] = later(now[name][of[ends]], moment[ends])
    timed = live & packs.timed[order]
    lists = {}
    for name, of_value, values in (
        ("delays", group[timed], delay[timed]), ("intervals", of[even], (moment - since)[even])
    ):  # fmt: skip
        lists[name] = groups.merged(was.lists[name], (of_value, groups.binned(values)))
    return Records(UNNUMBERED, now, lists)


def hours(ids: Ints, packs: Arrivals) -> Records:
    """Return what the packs add to the hours of their devices."""
    live = ~packs.retained
    numbers = dict.fromkeys(STEPS.names, np.zeros_like(packs.at)) | {
        "device": ids[packs.device], "first": packs.at,
        "heard": np.where(live, packs.at, UNKNOWN), "received": (~packs.copy).astype(np.int64),
        "duplicates": packs.copy.astype(np.int64),
    }  # fmt: skip
    some = np.flatnonzero(live & packs.timed)
    bins = groups.shortened(groups.binned(packs.delay[some]))
    return history.summed(history.hours(packs.at, numbers, (some, bins)))


def delays(ids: Ints, packs: Arrivals) -> Packs:
    """Return all packs, with the delays of those that are no copies."""
    return Packs(ids[packs.device], packs.at, packs.delay, ~packs.copy & packs.timed)
