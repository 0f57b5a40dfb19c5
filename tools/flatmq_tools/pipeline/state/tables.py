"""The tables health, devices and gaps, from what is known of boots and devices.

docs/telemetry.md says what can be counted. Percentiles are those of distributions in bins that are
4 % wide.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..jobs.limits import MOST, QUIET, QUIET_S, QUIET_UNNUMBERED
from . import groups
from .boots import counts, silences_of, totals
from .groups import Ints
from .records import CLOSED, KNOWN, OPEN, SILENCES, SUMS, UNNUMBERED, Records
from .values import UNKNOWN, columns, known

_TIME = pa.timestamp("us", "UTC")
_DELAYS = ("delay_p50", "delay_p95", "delay_p99")
_PARTS = (0.5, 0.95, 0.99)
HEALTH = pa.schema(
    [
        ("device", pa.string()), ("boot", pa.int64()), ("first", _TIME), ("last", _TIME),
        *((name, pa.int64()) for name in
          ("received", "lost", "unheard", "duplicates", "reordered")),
        *((name, pa.float64()) for name in _DELAYS),
        ("reboots", pa.int64()), ("silent_s", pa.float64()), ("silent", pa.bool_()),
        ("status", pa.string()),
    ]
)  # fmt: skip
DEVICES = pa.schema(
    [
        ("device", pa.string()), ("boots", pa.int64()), ("reboots", pa.int64()),
        ("first", _TIME), ("heard", _TIME),
        *((name, pa.int64()) for name in
          ("received", "lost", "unheard", "duplicates", "reordered")),
        *((name, pa.float64()) for name in _DELAYS),
        ("usual_s", pa.float64()), ("silent_s", pa.float64()), ("silent", pa.bool_()),
        ("status", pa.string()), ("status_since", _TIME),
    ]
)  # fmt: skip
GAPS = pa.schema(
    [
        ("device", pa.string()), ("boot", pa.int64()), ("kind", pa.string()), ("since", _TIME),
        ("until", _TIME), ("missing", pa.int64()),
    ]
)  # fmt: skip
_DEVICE = ("id", "name", "status", "status_at")


class Devices:
    """The state of all devices at a moment.

    A device is silent after 3 of its usual intervals without a pack, or of the fleet's if it was
    heard only once; at least after a second.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT now FROM place").fetchone()
        self.now: int | None = None if row is None else row[0]
        """When the newest message came."""
        text = f"SELECT {', '.join(_DEVICE)} FROM devices ORDER BY id"
        rows = columns(db.execute(text).fetchall(), _DEVICE)
        self.ids = np.array(rows["id"], np.int64)
        self.names = pa.array(rows["name"], pa.string())
        self._status, self._status_at = rows["status"], rows["status_at"]
        self.asleep = np.array([s == "asleep" for s in self._status], np.bool_)
        numbered, others = (Records.paged(db, kind) for kind in (KNOWN, UNNUMBERED))
        at = self.position(numbered["device"])
        self.sent = np.zeros(len(self.ids), np.bool_)
        """Which have sent packs with numbers."""
        self.sent[at] = True
        self.arrived, self.newest, self._heard, self._first = (
            self._of(numbered, at, name) for name in ("arrived", "newest", "heard", "first")
        )
        self._usual = np.full(len(self.ids), np.nan)
        self._usual[at] = _intervals(numbered, (0.5,))[:, 0]
        self.after = QUIET * _or_of_fleet(self._usual)
        """s without a pack after which each is silent."""
        sums = Records.paged(db, SUMS).and_these(totals(Records.paged(db, OPEN)))
        sums, _ = sums.summed("device").including(self.ids)
        sums.numbers = {n: np.where(known(v), v, 0) for n, v in sums.numbers.items()}

        others = others.take(~self.sent[self.position(others["device"])])
        at = self.position(others["device"])
        parts = _intervals(others, (0.5, 0.95))
        self._usual[at], self.after[at] = parts[:, 0], QUIET_UNNUMBERED * _or_of_fleet(parts[:, 1])
        self.after = np.maximum(self.after, QUIET_S)
        self._heard[at], self._first[at] = others["heard"], others["first"]
        for name in ("received", "duplicates"):
            sums[name][at] = others[name]
        for name in ("reboots", "lost", "unheard", "reordered"):  # nobody knows
            sums[name][at] = UNKNOWN
        group, delays = others.lists["delays"]
        if len(delays):
            sums.lists["delays"] = groups.merged(sums.lists["delays"], (at[group], delays))
        self._sums = sums
        now = 0 if self.now is None else self.now
        heard = self._heard
        self.silent_s = np.where(known(heard), (now - heard) / 1e6, np.nan)
        self.silent = (self.silent_s > self.after) & ~self.asleep

    def _of(self, records: Records, at: Ints, name: str) -> Ints:
        found = np.full(len(self.ids), UNKNOWN)
        found[at] = records[name]
        return found

    def position(self, ids: Ints) -> Ints:
        """Return where devices with these numbers are."""
        return np.searchsorted(self.ids, ids)

    def status(self, positions: Ints) -> pa.Array:
        """Return the newest status of each; null if it has none."""
        return pa.array(self._status, pa.string()).take(pa.array(positions))

    def table(self) -> pa.Table:
        """Return the table devices."""
        sums = self._sums
        values: dict[str, Any] = {
            **{name: sums[name] for name in SUMS.names[1:]},
            **_delays(sums),
            "device": self.names,
            "first": self._first,
            "heard": self._heard,
            "usual_s": self._usual,
            "silent_s": self.silent_s,
            "silent": self.silent,
            "status": self._status,
            "status_since": self._status_at,
        }
        return _table(values, DEVICES)


def _intervals(records: Records, parts: tuple[float, ...]) -> NDArray[np.float64]:
    """Return percentiles of the intervals of devices, in s."""
    return groups.percentiles(*records.lists["intervals"], len(records), parts) / 1e6


def _delays(records: Records) -> dict[str, NDArray[np.float64]]:
    """Return the columns with percentiles of delays."""
    found = groups.percentiles(*records.lists["delays"], len(records), _PARTS) / 1000
    return dict(zip(_DELAYS, found.T, strict=True))


def _or_of_fleet(usual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the usual intervals, or the median of all where a device has none."""
    ranked = np.sort(usual[~np.isnan(usual)])
    fleet = ranked[(len(ranked) + 1) // 2 - 1] if len(ranked) else np.nan
    return np.where(np.isnan(usual), fleet, usual)


def of_open(db: sqlite3.Connection, devices: Devices) -> tuple[pa.Table, pa.Table]:
    """Return the tables health and gaps of the boots that may change.

    Silences that last are not among them.
    """
    return _tables(devices, Records.paged(db, OPEN), Records.read(db, SILENCES))


def of_part(db: sqlite3.Connection, devices: Devices, part: int) -> tuple[pa.Table, pa.Table]:
    """Return the same of the boots that were closed together."""
    boots = Records.read(db, CLOSED, "WHERE part = ? ORDER BY device, boot", (part,))
    return _tables(devices, boots, silences_of(boots))


def _tables(devices: Devices, boots: Records, silences: Records) -> tuple[pa.Table, pa.Table]:
    position = devices.position(boots["device"])
    gaps = [_lost(boots, devices, position), _silences(silences, devices)]
    return _health(boots, devices, position), pa.concat_tables(gaps)


def open_silences(devices: Devices) -> pa.Table:
    """Return the silences that last: rows of the table gaps."""
    now = devices.now
    arrived = devices.arrived
    if now is None:
        return GAPS.empty_table()
    lasting = (now - arrived) / 1e6 > devices.after
    at = np.flatnonzero(devices.sent & lasting & ~devices.asleep)
    return _gaps(
        devices, at, devices.newest[at], "silent", arrived[at], np.full(len(at), now), None
    )


def _health(boots: Records, devices: Devices, position: Ints) -> pa.Table:
    begun, lost, unheard = counts(boots.numbers)
    newest = devices.newest[position] == boots["boot"]
    values: dict[str, Any] = {
        **boots.numbers,
        **_delays(boots),
        "device": devices.names.take(pa.array(position)),
        "lost": lost,
        "unheard": unheard,
        "reboots": begun,
        "silent_s": np.where(newest, devices.silent_s[position], np.nan),
        "silent": pa.array(devices.silent[position], mask=~newest),
        "status": pc.if_else(pa.array(newest), devices.status(position), None),
    }
    return _table(values, HEALTH)


def _lost(boots: Records, devices: Devices, position: Ints) -> pa.Table:
    group, ranges = boots.lists["ranges"]
    same = np.flatnonzero(group[1:] == group[:-1])
    below, above = ranges[same], ranges[same + 1]
    between = (
        group[same], below["hi_at"], above["lo_at"], above["lo"] - below["hi"] - 1
    )  # fmt: skip
    # In front of the first of a boot, after the last of the boot before.
    at = np.flatnonzero(known(boots["before"]) & (boots["lowest"] > 1))
    first = (at, boots["before_at"][at], boots["lowest_at"][at], boots["lowest"][at] - 1)
    # Those that are no longer known one by one.
    old = np.flatnonzero(known(boots["old_missing"]) & (boots["old_missing"] > 0))
    more = (old, boots["old_since"][old], boots["old_until"][old], boots["old_missing"][old])
    of, since, until, missing = (
        np.concatenate(column) for column in zip(between, first, more, strict=True)
    )
    return _gaps(
        devices, position[of], boots["boot"][of], "lost", np.minimum(since, until),
        np.maximum(since, until), np.minimum(missing, MOST),
    )  # fmt: skip


def _silences(found: Records, devices: Devices) -> pa.Table:
    position = devices.position(found["device"])
    lasting = (found["until"] - found["since"]) / 1e6 > devices.after[position]
    some = found.take(lasting)
    return _gaps(
        devices, position[lasting], some["boot"], "silent", some["since"], some["until"], None
    )


def _gaps(
    devices: Devices, position: Ints, boot: Ints, kind: str, since: Ints, until: Ints,
    missing: Ints | None,
) -> pa.Table:  # fmt: skip
    values: dict[str, Any] = {
        "device": devices.names.take(pa.array(position)),
        "boot": boot,
        "kind": pa.array(np.full(len(boot), kind), pa.string()),
        "since": since,
        "until": until,
        "missing": pa.nulls(len(boot), pa.int64()) if missing is None else missing,
    }
    return _table(values, GAPS)


def _table(values: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.table([_array(values[field.name], field.type) for field in schema], schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    plain = pa.int64() if pa.types.is_timestamp(kind) else kind
    if isinstance(values, np.ndarray) and values.dtype == np.int64:
        return pa.array(values, plain, mask=~known(values)).cast(kind)
    return pa.array(values, plain, from_pandas=True).cast(kind)  # NaN becomes null
