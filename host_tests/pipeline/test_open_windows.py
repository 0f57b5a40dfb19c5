"""Windows with the progress of time of each device: what comes out when, once, after kills too."""

from __future__ import annotations

import datetime
import math
import random
import shutil
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flatmq_tools.pipeline import open_windows
from flatmq_tools.pipeline.open_windows import State, Step, Store, WindowsError, step

UTC = datetime.timezone.utc
START = datetime.datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = 60_000_000
SIZES = (MINUTE, 10 * MINUTE)
_US = pa.timestamp("us", tz="UTC")

# device, time and received in s after START, value
Row = tuple[str, float, float, float]


def table(rows: list[Row]) -> pa.Table:
    def at(seconds: float) -> datetime.datetime:
        return START + datetime.timedelta(seconds=seconds)

    return pa.table(
        {
            "device": pa.array([r[0] for r in rows], pa.string()),
            "quantity": pa.array(["t"] * len(rows), pa.string()),
            "unit": pa.array(["Cel"] * len(rows), pa.string()),
            "time": pa.array([at(r[1]) for r in rows], _US),
            "value": pa.array([r[3] for r in rows], pa.float64()),
            "received": pa.array([at(r[2]) for r in rows], _US),
        }
    )


class Stream:
    """Batches one after the other, in memory."""

    def __init__(self) -> None:
        self.state = State(*SIZES)
        self.out: dict[tuple[str, float], dict[str, Any]] = {}
        self.too_late = 0

    def take(self, *rows: Row) -> set[tuple[str, float]]:
        """The windows that come out: device, and start in s after START."""
        done = step(self.state, table([*rows]))
        self.state = done.state
        self.too_late += done.too_late
        found = came(done)
        assert not found.keys() & self.out.keys()  # none a second time
        self.out |= found
        return {*found}


def came(done: Step) -> dict[tuple[str, float], dict[str, Any]]:
    rows = done.windows.to_pylist()
    return {(r["device"], (r["start"] - START).total_seconds()): r for r in rows}


def test_a_device_speaks_for_itself_alone() -> None:
    """The clock of one is an hour ahead: the readings of others come into their windows."""
    stream = Stream()
    stream.take(("ahead", 0, 0, 1.0), ("b", 0, 0, 1.0), ("c", 10, 10, 1.0))
    assert stream.take(("ahead", 3600, 20, 2.0)) == {("ahead", 0.0)}
    assert stream.take(("b", 50, 50, 3.0)) == set()
    assert stream.take(("b", 659, 659, 1.0)) == set()
    assert stream.take(("b", 660, 660, 1.0)) == {("b", 0.0)}  # 10 minutes past its end
    assert stream.out["b", 0.0]["count"] == 2 and stream.too_late == 0
    # Of the one that is ahead all is too late until its clock is right again: none of the others.
    stream.take(("ahead", 700, 700, 9.0), ("c", 59, 700, 2.0))
    assert stream.too_late == 1
    assert stream.take(("c", 700, 700, 1.0)) == {("c", 0.0)}
    assert stream.out["c", 0.0]["max"] == 2.0


def test_what_a_board_kept_on_flash_is_in_its_windows() -> None:
    """It was away for a day, and sends in order what it kept."""
    stream = Stream()
    stream.take(("a", 0, 0, 1.0))
    others = [("b", 60.0 * n, 60.0 * n, 1.0) for n in range(1440)]
    for row in others:
        stream.take(row)
    assert ("a", 0.0) in stream.out  # after an hour of silence
    stream.take(*(("a", 60.0 * n, 86_400.0, float(n)) for n in range(1, 1440)))
    assert stream.too_late == 0
    assert {start for device, start in stream.out if device == "a"} == {
        60.0 * n for n in range(1429)
    }


def test_silence_is_counted_in_arrivals_and_not_by_a_clock_that_steps() -> None:
    stream = Stream()
    stream.take(("a", 0, 0, 1.0), ("b", 0, 0, 1.0))
    day = 86_400.0
    # The receiver's clock goes a day forward, and back: nobody is silent for that.
    stream.take(("b", 30, day, 1.0))
    stream.take(("a", 31, day + 1, 2.0))
    stream.take(("b", 32, 32, 1.0))
    assert stream.out == {} and stream.too_late == 0
    # The receiver was away for a day, or nothing was sent.
    assert stream.take(("b", 40, 2 * day, 1.0)) == set()
    # An hour in which b sends twice a minute, and a nothing.
    came_at = None
    for n in range(130):
        if ("a", 0.0) in stream.take(("b", 41 + n, 2 * day + 30 * n, 1.0)):
            came_at = n
    assert came_at is not None and 115 <= came_at <= 121
    assert stream.out["a", 0.0]["count"] == 2
    # What comes after that is too late for this window, and for no other.
    stream.take(("a", 50, 2 * day + 4000, 1.0), ("a", 61, 2 * day + 4000, 1.0))
    assert stream.too_late == 1


def test_by_chance_each_value_is_in_one_window_or_too_late_or_open(tmp_path: Path) -> None:
    """With kills: the state goes through the store, and batches are done again from it."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    store, folder = Store(tmp_path / "state"), tmp_path / "state"
    sent: Counter[tuple[str, float]] = Counter()
    out: dict[tuple[str, float], dict[str, Any]] = {}
    values: dict[tuple[str, float], list[float]] = {}
    too_late = 0
    live = State(*SIZES)
    batches = 180  # more than are kept apart
    for n in range(batches):
        rows: list[Row] = []
        for _ in range(chance.randrange(12)):
            device = chance.choice("abcdef")
            now = n * 40.0 + chance.random() * 40
            time = now - chance.choice((0, 0, 30, 500, 700, 5000)) * chance.random()
            arrival = now + chance.choice((0, 0, 0, 7200 * (device == "a")))
            rows.append((device, time, arrival, chance.uniform(-50, 50)))
            sent[device, time // 60 * 60] += 1
            values.setdefault((device, time // 60 * 60), []).append(rows[-1][3])
        before = store.load(n - 1, *SIZES)
        assert sorted(map(str, before.values().to_pylist())) == sorted(
            map(str, live.values().to_pylist())
        ), seed
        done = step(before, table(rows))
        again = step(live, table(rows))
        assert done.windows.equals(again.windows) and done.too_late == again.too_late, seed
        live = again.state
        found = came(done)
        assert not found.keys() & out.keys(), seed
        out |= found
        too_late += done.too_late
        if chance.random() < 0.3:  # killed within the write
            (folder / f".batch={n}-left").mkdir(parents=True)
        store.save(n, done)
        if chance.random() < 0.3:  # killed before Spark noted the batch: the same once more
            store.save(n, step(store.load(n - 1, *SIZES), table(rows)))
    whole = Counter({key: row["count"] for key, row in out.items()})
    opened = live.values()
    assert whole.total() + too_late + opened.num_rows == sent.total(), seed
    assert whole.total() > 100 and too_late > 10, seed
    assert all(whole[key] <= sent[key] for key in whole), seed
    for key, row in out.items():
        if row["count"] == len(values[key]):
            ordered = sorted(values[key])
            assert (row["min"], row["max"]) == (ordered[0], ordered[-1]), seed
            assert math.isclose(row["mean"], statistics.fmean(ordered), abs_tol=1e-9), seed
            for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                assert row[name] == ordered[math.ceil(part * len(ordered) - 1e-9) - 1], seed
    kept = [path.name for path in folder.iterdir()]
    assert len(kept) <= 2 * 64 + 2 and not any(name.startswith(".") for name in kept), seed


def test_a_state_that_is_missing_or_of_other_windows(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(WindowsError, match=r"batch=4 is missing: .* made again from measurements"):
        store.load(4, *SIZES)
    store.save(0, step(store.load(-1, *SIZES), table([("a", 0, 0, 1.0)])))
    with pytest.raises(WindowsError, match="another size"):
        store.load(0, 2 * MINUTE, 10 * MINUTE)
    assert store.load(0, *SIZES).values().num_rows == 1
    store.clear()
    assert not tmp_path.exists()


def test_the_state_of_a_large_fleet_is_kept_by_what_is_new(tmp_path: Path) -> None:
    """A batch writes its own values, not all that are open."""
    store = Store(tmp_path)
    many = [(f"d{n % 5000}", n / 1000, n / 1000, 1.0) for n in range(50_000)]
    store.save(0, step(store.load(-1, *SIZES), table(many)))
    done = step(store.load(0, *SIZES), table([("d7", 51, 51, 1.0)]))
    store.save(1, done)
    sizes = [(tmp_path / f"batch={n}" / "values.arrow").stat().st_size for n in (0, 1)]
    assert sizes[0] > 1_000_000 and sizes[1] < 2_000
    assert store.load(1, *SIZES).values().num_rows == 50_001
    shutil.rmtree(tmp_path / "batch=0")
    with pytest.raises(FileNotFoundError):
        store.load(1, *SIZES)


def test_no_rows() -> None:
    done = step(State(*SIZES), table([]))
    assert (done.windows.num_rows, done.too_late, done.state.last) == (0, 0, None)
    assert open_windows.Store(Path("none")).load(-1, *SIZES).clock == 0
