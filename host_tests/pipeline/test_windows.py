"""Windows of event time: what is in which, what came too late, and what their figures are.

Spark's windows have one progress of time for all devices, `open_windows` one for each.
"""

from __future__ import annotations

import datetime
import math
import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from flatmq_tools.pipeline.jobs import measurements, windows
from flatmq_tools.pipeline.open_windows import State, Store, WindowsError, step
from pipeline.messages import Message, at, frame, reading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_UTC = datetime.timezone.utc
_US = pa.timestamp("us", tz="UTC")

# device, time and received in s after START, value
Row = tuple[str, float, float, float]


def table(rows: Sequence[Row]) -> pa.Table:
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


def keyed(found: pa.Table) -> dict[tuple[str, float], dict[str, Any]]:
    """Windows by device, and start in s after START."""
    return {(r["device"], (r["start"] - at(0)).total_seconds()): r for r in found.to_pylist()}


class Stream:
    """Batches one after the other, in memory."""

    def __init__(self) -> None:
        self.state = State()
        self.out: dict[tuple[str, float], dict[str, Any]] = {}
        self.too_late = 0

    def take(self, *rows: Row) -> set[tuple[str, float]]:
        """The windows that come out."""
        done = step(self.state, table([*rows]))
        self.state = done.state
        self.too_late += done.too_late
        found = keyed(done.windows)
        assert not found.keys() & self.out.keys()  # none a second time
        self.out |= found
        return {*found}


def check_figures(row: dict[str, Any], values: Sequence[float]) -> None:
    """A window has the figures of these values, percentiles by nearest rank."""
    ordered = sorted(values)
    assert (row["count"], row["min"], row["max"]) == (len(ordered), ordered[0], ordered[-1])
    assert math.isclose(row["mean"], statistics.fmean(ordered), abs_tol=1e-9)
    for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert row[name] == ordered[math.ceil(part * len(ordered) - 1e-9) - 1], name


# Spark's


def test_spark_and_the_state_make_the_same_windows(spark: SparkSession) -> None:
    """Of many windows at once: each is a device."""
    drawn = random.Random(2)
    samples = [
        [drawn.randint(-4000, 8500) / 100 for _ in range(drawn.choice([1, 2, 3, 19, 20, 40]))]
        for _ in range(60)
    ]
    rows: list[Row] = [
        (f"d{device}", n % 60, 30, value)
        for device, values in enumerate(samples)
        for n, value in enumerate(values)
    ]
    made = windows.windows(spark.createDataFrame(table(rows))).toArrow()
    everything = [*rows, *((f"d{n}", 700, 700, 0.0) for n in range(60))]
    done = step(State(), table(everything))
    for found in (keyed(made), keyed(done.windows)):
        assert len(found) == len(samples)
        for device, values in enumerate(samples):
            row = found[f"d{device}", 0.0]
            assert (row["quantity"], row["unit"], row["end"]) == ("t", "Cel", at(60))
            check_figures(row, values)


def test_texts_and_flags_are_in_none_and_windows_may_slide(spark: SparkSession) -> None:
    said = Message("dev/a/telemetry", b'[{"n":"a/door","vb":true},{"n":"a/says","vs":"x"}]')
    values = measurements.measurements(frame(spark, [said, reading("a", 1, 1, 70)]))
    found = windows.windows(values, size="1 minute", slide="20 seconds").toArrow()
    assert sorted(keyed(found)) == [("a", 20), ("a", 40), ("a", 60)]
    assert {*found["quantity"].to_pylist()} == {"chip/temp"}


def test_of_a_stream(streamed: Callable[..., list[object]]) -> None:
    """A window comes out when the newest reading is `late` past its end.

    What comes then is in none; what comes before is, once.
    """

    def job(messages: DataFrame) -> DataFrame:
        values = measurements.values(measurements.packs(messages), marked=True)
        return windows.windows(values, late="2 minutes")

    batches = [
        [reading("a", 1, 1, 0, temperature=100), reading("a", 1, 2, 20, temperature=200)],
        # A copy, and one that is late but not too late: the newest is of 2:50.
        [
            reading("a", 1, 6, 170),
            reading("a", 1, 2, 171, temperature=200),
            reading("a", 1, 3, 172, time=59, temperature=400),
        ],
        [reading("a", 1, 7, 200)],  # the first window is over: 3:20 - 2:00 > 1:00,
        [reading("a", 1, 10, 201)],  # which counts from the batch after
        [reading("a", 1, 4, 202, time=58, temperature=9999), reading("a", 1, 8, 600)],
        [reading("a", 1, 9, 601)],
    ]
    rows = streamed(job, batches)
    found = {
        (row.device, (row.start.astimezone(_UTC) - at(0)).total_seconds()): row for row in rows
    }  # type: ignore[attr-defined]
    first = found["a", 0.0]
    assert (first["count"], first["min"], first["max"], first["p50"]) == (3, 1.0, 4.0, 2.0)
    # The copy of 2:51 has the time of its arrival, as its pack has none, and is dropped by name.
    assert {key: row["count"] for key, row in found.items()} == {
        ("a", 0.0): 3, ("a", 120.0): 1, ("a", 180.0): 2,
    }  # fmt: skip


# Those of the state


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
    live = State()
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
        before = store.load(n - 1)
        assert sorted(map(str, before.values().to_pylist())) == sorted(
            map(str, live.values().to_pylist())
        ), seed
        done = step(before, table(rows))
        again = step(live, table(rows))
        assert done.windows.equals(again.windows) and done.too_late == again.too_late, seed
        live = again.state
        found = keyed(done.windows)
        assert not found.keys() & out.keys(), seed
        out |= found
        too_late += done.too_late
        if chance.random() < 0.3:  # killed within the write
            (folder / f".batch={n}-left").mkdir(parents=True)
        store.save(n, done)
        if chance.random() < 0.3:  # killed before Spark noted the batch: the same once more
            store.save(n, step(store.load(n - 1), table(rows)))
    whole = Counter({key: row["count"] for key, row in out.items()})
    opened = live.values()
    assert whole.total() + too_late + opened.num_rows == sent.total(), seed
    assert whole.total() > 100 and too_late > 10, seed
    assert all(whole[key] <= sent[key] for key in whole), seed
    for key, row in out.items():
        if row["count"] == len(values[key]):
            check_figures(row, values[key])
    kept = [path.name for path in folder.iterdir()]
    assert len(kept) <= 2 * 64 + 2 and not any(name.startswith(".") for name in kept), seed


def test_a_state_that_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(WindowsError, match=r"batch=4 is missing: .* made again from measurements"):
        store.load(4)
    store.save(0, step(store.load(-1), table([("a", 0, 0, 1.0)])))
    assert store.load(0).values().num_rows == 1
    store.clear()
    assert not tmp_path.exists()


def test_the_state_of_a_large_fleet_is_kept_by_what_is_new(tmp_path: Path) -> None:
    """A batch writes its own values, not all that are open."""
    store = Store(tmp_path)
    many = [(f"d{n % 5000}", n / 1000, n / 1000, 1.0) for n in range(50_000)]
    store.save(0, step(store.load(-1), table(many)))
    done = step(store.load(0), table([("d7", 51, 51, 1.0)]))
    store.save(1, done)
    sizes = [(tmp_path / f"batch={n}" / "values.arrow").stat().st_size for n in (0, 1)]
    assert sizes[0] > 1_000_000 and sizes[1] < 2_000
    assert store.load(1).values().num_rows == 50_001
    shutil.rmtree(tmp_path / "batch=0")
    with pytest.raises(FileNotFoundError):
        store.load(1)


def test_no_rows() -> None:
    done = step(State(), table([]))
    assert (done.windows.num_rows, done.too_late, done.state.last) == (0, 0, None)
    assert Store(Path("none")).load(-1).clock == 0
