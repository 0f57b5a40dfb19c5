"""Packs without boot and seq in the state: what their arrivals alone say of a device.

What was lost cannot be counted without a boot and a number. A device counts as one without
numbers as long as none of its packs had any.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import groups, history
from .groups import BIN, Bools, Ints
from .history import DeviceSteps, Packs
from .values import DAY, columns, ints, known, later

_BURST = 1_000_000  # us; messages that come closer together are one sign of life
_KEPT = ("first", "heard", "arrived", "received", "duplicates", "delays", "intervals")


@dataclass
class Unnumbered:
    """The packs of a batch without boot and seq, in any order."""

    device: Ints
    """A position in `names`."""
    names: list[str]
    at: Ints
    offset: Ints
    delay: Ints
    timed: Bools
    retained: Bools
    copy: Bools
    """Whether the broker marked it as retained, or as sent before."""

    @classmethod
    def of(cls, table: pa.Table) -> Unnumbered:
        """Read a table with the columns device, at, offset, delay, retain, dup."""
        devices = table["device"].combine_chunks().dictionary_encode()
        retained, again = (
            pc.fill_null(table[name], False).to_numpy().astype(np.bool_)
            for name in ("retain", "dup")
        )
        return cls(
            devices.indices.to_numpy().astype(np.int64),
            devices.dictionary.to_pylist(),
            table["at"].to_numpy().astype(np.int64),
            table["offset"].to_numpy().astype(np.int64),
            pc.fill_null(table["delay"], 0).to_numpy().astype(np.int64),
            table["delay"].is_valid().to_numpy(),
            retained,
            retained | again,
        )


def changed(db: sqlite3.Connection, ids: Ints, packs: Unnumbered) -> list[tuple[Any, ...]]:
    """Return the rows of the table unnumbered after a batch.

    `ids` are the numbers of the devices in `packs.names`.
    """
    if not len(packs.at):
        return []
    device = ids[packs.device]
    order = np.lexsort((packs.offset, packs.at, device))
    device, at, live = device[order], packs.at[order], ~packs.retained[order]
    first = groups.starts(device)
    group, heads = np.cumsum(first) - 1, np.flatnonzero(first)
    numbers = device[first].tolist()
    count = len(numbers)
    text = f"SELECT {', '.join(_KEPT)} FROM unnumbered WHERE device = ?"
    nothing = (None,) * len(_KEPT)
    was = columns([db.execute(text, (one,)).fetchone() or nothing for one in numbers], _KEPT)
    copy = packs.copy[order]
    received = np.bincount(group[~copy], None, count) + np.maximum(ints(was["received"]), 0)
    duplicates = np.bincount(group[copy], None, count) + np.maximum(ints(was["duplicates"]), 0)
    earliest = np.minimum.reduceat(at, heads).tolist()
    arrived = ints(was["arrived"])
    of_live, at_live = group[live], at[live]
    begins = groups.starts(of_live)
    since = np.empty(len(at_live), np.int64)
    since[1:] = at_live[:-1]
    since[begins] = arrived[of_live[begins]]
    even = known(since) & (since - at_live <= DAY) & (at_live - since >= _BURST)
    ends = np.append(begins[1:], True)[: len(at_live)]
    newest: list[int | None] = [None] * count
    for one, moment in zip(of_live[ends].tolist(), at_live[ends].tolist(), strict=True):
        newest[one] = moment
    timed = live & packs.timed[order]
    return list(
        zip(
            numbers,
            (b if a is None else min(a, b) for a, b in zip(was["first"], earliest, strict=True)),
            (later(a, b) for a, b in zip(was["heard"], newest, strict=True)),
            (later(a, b) for a, b in zip(was["arrived"], newest, strict=True)),
            received.tolist(),
            duplicates.tolist(),
            _more(was["delays"], group[timed], packs.delay[order][timed], count),
            _more(was["intervals"], of_live[even], (at_live - since)[even], count),
            strict=True,
        )
    )


def hours(ids: Ints, packs: Unnumbered) -> DeviceSteps:
    """Return what the packs add to the hours of their devices."""
    live = ~packs.retained
    counted = Packs(ids[packs.device], packs.at, packs.delay, live & packs.timed)
    return history.hours_of_others(counted, live, packs.copy)


def delays(ids: Ints, packs: Unnumbered) -> Packs:
    """Return all packs, with the delays of those that are no copies."""
    return Packs(ids[packs.device], packs.at, packs.delay, ~packs.copy & packs.timed)


def _more(blobs: Sequence[bytes | None], group: Ints, values: Ints, count: int) -> list[bytes]:
    """Return distributions with more values."""
    of, rows = groups.merged(groups.unpacked(blobs, BIN), groups.bins(group, values))
    return groups.packed(of, rows, count)


def write(db: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Put rows of `changed` into the state."""
    db.executemany("INSERT OR REPLACE INTO unnumbered VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
