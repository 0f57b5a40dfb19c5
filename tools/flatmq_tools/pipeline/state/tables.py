"""The tables health, devices and gaps, from what is known of boots and devices.

docs/telemetry.md says what can be counted. Percentiles are those of distributions in bins that are
4 % wide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..jobs.limits import MOST, QUIET, QUIET_S, QUIET_UNNUMBERED
from . import groups
from .counts import counts
from .groups import BIN, RANGE, Ints
from .values import columns, ints, known

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
OPEN = "boots.part IS NULL"
"""The boots that may change."""

_DEVICE = (
    "id", "name", "heard", "arrived", "newest", "usual", "delays", "boots", "reboots", "first",
    "received", "lost", "unheard", "duplicates", "reordered", "status", "status_at",
)  # fmt: skip
_UNNUMBERED = ("device", "first", "heard", "received", "duplicates", "delays", "intervals")
_BOOT = (
    "device", "boot", "first", "last", "received", "lowest", "lowest_at", "highest", "duplicates",
    "reordered", "before", "old_missing", "old_since", "old_until",
)  # fmt: skip


class Devices:
    """The state of all devices at a moment.

    A device is silent after 3 of its usual intervals without a pack, or of the fleet's if it was
    heard only once; at least after a second.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT now FROM place").fetchone()
        self.now: int | None = None if row is None else row[0]
        """When the newest message came."""
        found = db.execute(f"SELECT {', '.join(_DEVICE)} FROM devices ORDER BY id").fetchall()
        self._rows = columns(found, _DEVICE)
        self.ids = np.array(self._rows["id"], np.int64)
        self.names = pa.array(self._rows["name"], pa.string())
        self._usual = np.array(
            [np.nan if u is None else u for u in self._rows["usual"]], np.float64
        )
        self.after = QUIET * _or_of_fleet(self._usual)
        """s without a pack after which each is silent."""
        self.asleep = np.array([s == "asleep" for s in self._rows["status"]], np.bool_)
        self.arrived = ints(self._rows["arrived"])
        self.newest = ints(self._rows["newest"])
        heard = ints(self._rows["heard"])
        self.sent = known(heard)
        """Which have sent packs with numbers."""
        names = ", ".join(_UNNUMBERED)
        others = columns(
            db.execute(
                f"SELECT {names} FROM unnumbered WHERE device IN "
                "(SELECT id FROM devices WHERE heard IS NULL) ORDER BY device"
            ).fetchall(),
            _UNNUMBERED,
        )
        at = self.position(np.array(others["device"], np.int64))
        group, bins = groups.unpacked(others["intervals"], BIN)
        parts = groups.percentiles(group, bins, len(at), (0.5, 0.95)) / 1e6
        self._usual[at], self.after[at] = parts[:, 0], QUIET_UNNUMBERED * _or_of_fleet(parts[:, 1])
        self.after = np.maximum(self.after, QUIET_S)
        heard[at] = ints(others["heard"])
        now = 0 if self.now is None else self.now
        self.silent_s = np.where(known(heard), (now - heard) / 1e6, np.nan)
        self.silent = (self.silent_s > self.after) & ~self.asleep
        for name in ("first", "heard", "received", "duplicates", "delays"):
            for one, value in zip(at.tolist(), others[name], strict=True):
                self._rows[name][one] = value
        for name in ("reboots", "lost", "unheard", "reordered"):  # nobody knows
            for one in at.tolist():
                self._rows[name][one] = None

    def position(self, ids: Ints) -> Ints:
        """Return where devices with these numbers are."""
        return np.searchsorted(self.ids, ids)

    def status(self, positions: Ints) -> pa.Array:
        """Return the newest status of each; null if it has none."""
        return pa.array(self._rows["status"], pa.string()).take(pa.array(positions))

    def table(self) -> pa.Table:
        """Return the table devices."""
        rows = self._rows
        group, bins = groups.unpacked(rows["delays"], BIN)
        delays = groups.percentiles(group, bins, len(self.ids), _PARTS) / 1000
        values: dict[str, Any] = {name: rows[name] for name in DEVICES.names if name in rows}
        values |= {
            "device": self.names,
            **{name: _floats(delays[:, n]) for n, name in enumerate(_DELAYS)},
            "usual_s": _floats(self._usual),
            "silent_s": _floats(self.silent_s),
            "silent": self.silent,
            "status_since": rows["status_at"],
        }
        return _table(values, DEVICES)


def _or_of_fleet(usual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the usual intervals, or the median of all where a device has none."""
    ranked = np.sort(usual[~np.isnan(usual)])
    fleet = ranked[(len(ranked) + 1) // 2 - 1] if len(ranked) else np.nan
    return np.where(np.isnan(usual), fleet, usual)


def of_boots(
    db: sqlite3.Connection, devices: Devices, where: str = OPEN, values: Sequence[Any] = ()
) -> tuple[pa.Table, pa.Table]:
    """Return the tables health and gaps of some boots; without silences that last."""
    names = ", ".join(f"boots.{name}" for name in _BOOT)
    # The + has SQLite sort the few boots, and not look at all of them in their order.
    rows = db.execute(
        f"SELECT {names}, earlier.highest_at, seen.ranges, seen.delays FROM boots "
        "JOIN seen ON seen.id = boots.id "
        "LEFT JOIN boots AS earlier "
        "ON earlier.device = boots.device AND earlier.boot = boots.before "
        f"WHERE {where} ORDER BY +boots.device, boots.boot",
        values,
    ).fetchall()
    found = columns(rows, (*_BOOT, "before_at", "ranges", "delays"))
    boots = {name: ints(found[name]) for name in (*_BOOT, "before_at")}
    position = devices.position(boots["device"])
    health = _health(boots, found["delays"], devices, position)
    lost = _lost(boots, found["ranges"], devices, position)
    silent = _silences(db, devices, where, values)
    return health, pa.concat_tables([lost, silent])


def of_part(db: sqlite3.Connection, devices: Devices, part: int) -> tuple[pa.Table, pa.Table]:
    """Return the same of the boots that were closed together."""
    return of_boots(db, devices, "boots.part = ?", (part,))


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


def _health(
    boots: dict[str, Ints], blobs: list[bytes | None], devices: Devices, position: Ints
) -> pa.Table:
    begun, lost, unheard = counts(boots, boots["boot"])
    group, bins = groups.unpacked(blobs, BIN)
    delays = groups.percentiles(group, bins, len(blobs), _PARTS) / 1000
    newest = devices.newest[position] == boots["boot"]
    simple = ("boot", "first", "last", "received", "duplicates", "reordered")
    values: dict[str, Any] = {
        **{name: boots[name] for name in simple},
        "device": devices.names.take(pa.array(position)),
        "lost": lost,
        "unheard": unheard,
        "reboots": begun,
        **{name: _floats(delays[:, n]) for n, name in enumerate(_DELAYS)},
        "silent_s": _floats(np.where(newest, devices.silent_s[position], np.nan)),
        "silent": pa.array(devices.silent[position], mask=~newest),
        "status": _only(devices.status(position), newest),
    }
    return _table(values, HEALTH)


def _lost(
    boots: dict[str, Ints], blobs: list[bytes | None], devices: Devices, position: Ints
) -> pa.Table:
    group, ranges = groups.unpacked(blobs, RANGE)
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


def _silences(
    db: sqlite3.Connection, devices: Devices, where: str, values: Sequence[Any]
) -> pa.Table:
    names = ("device", "boot", "since", "until")
    rows = db.execute(
        f"SELECT {', '.join(f'silences.{name}' for name in names)} FROM boots "
        "CROSS JOIN silences ON silences.device = boots.device AND silences.boot = boots.boot "
        f"WHERE {where}",
        values,
    ).fetchall()
    found = {name: ints(column) for name, column in columns(rows, names).items()}
    position = devices.position(found["device"])
    lasting = (found["until"] - found["since"]) / 1e6 > devices.after[position]
    return _gaps(
        devices, position[lasting], found["boot"][lasting], "silent", found["since"][lasting],
        found["until"][lasting], None,
    )  # fmt: skip


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
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _floats(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def _only(values: pa.Array, where: NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(where), values, None)
