"""Windows of event time: what is in which, what came too late, and what their figures are."""

import contextlib
import datetime
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from flatmq_tools.pipeline.delta import Delta
from flatmq_tools.pipeline.jobs import measurements, windows
from flatmq_tools.pipeline.jobs.limits import Bounds
from flatmq_tools.pipeline.jobs.parsing import Reads
from flatmq_tools.pipeline.notices import Notices
from flatmq_tools.pipeline.open_windows import State, Store, WindowsError, open_windows, step
from flatmq_tools.pipeline.state import taking
from pipeline.messages import START, Message, at, frame, pack, read, reading
from pipeline.messages import table as raw_table
from pipeline.mqtt import until
from pipeline.runs import Killed, Mortal, as_query

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


def test_texts_and_flags_are_in_none(spark: SparkSession) -> None:
    said = Message("dev/a/telemetry", b'[{"n":"a/door","vb":true},{"n":"a/says","vs":"x"}]')
    values = measurements.measurements(frame(spark, [said, reading("a", 1, 1, 70)]))
    found = windows.windows(values).toArrow()
    assert sorted(keyed(found)) == [("a", 60)]
    assert {*found["quantity"].to_pylist()} == {"chip/temp"}


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
    """With kills before a state is kept: batches are done again from the one before."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    sent: Counter[tuple[str, float]] = Counter()
    out: dict[tuple[str, float], dict[str, Any]] = {}
    values: dict[tuple[str, float], list[float]] = {}
    too_late = 0
    live = State()
    for n in range(180):  # more than are kept apart
        rows: list[Row] = []
        for _ in range(chance.randrange(12)):
            device = chance.choice("abcdef")
            now = n * 40.0 + chance.random() * 40
            time = now - chance.choice((0, 0, 30, 500, 700, 5000)) * chance.random()
            # That of a receiver whose clock is ahead: the others' arrivals then move no clock.
            arrival = now + chance.choice((0, 0, 0, *{"a": [7200], "b": [1800]}.get(device, [])))
            rows.append((device, time, arrival, chance.uniform(-50, 50)))
            sent[device, time // 60 * 60] += 1
            values.setdefault((device, time // 60 * 60), []).append(rows[-1][3])
        with Store(tmp_path / "windows.db") as store:
            before = store.load()
            assert sorted(before.open.tolist()) == sorted(live.open.tolist()), seed
            for kept, known in ((before.newest, live.newest), (before.heard, live.heard)):
                assert kept.tolist() == known.tolist(), seed
            assert (before.closed.tolist(), before.clock) == (live.closed.tolist(), live.clock)
            done = step(before, table(rows))
            again = step(live, table(rows))
            assert done.windows.equals(again.windows) and done.too_late == again.too_late, seed
            store.save("query", n, before, done)
        live = again.state
        found = keyed(done.windows)
        assert not found.keys() & out.keys(), seed
        out |= found
        too_late += done.too_late
    whole = Counter({key: row["count"] for key, row in out.items()})
    assert whole.total() + too_late + len(live.open) == sent.total(), seed
    assert whole.total() > 100 and too_late > 10, seed
    assert all(whole[key] <= sent[key] for key in whole), seed
    for key, row in out.items():
        if row["count"] == len(values[key]):
            check_figures(row, values[key])


def test_a_state_that_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    write = open_windows(tmp_path / "windows.db", Delta(tmp_path), lambda _: table([]), print)
    with as_query(spark), pytest.raises(WindowsError, match=r"windows\.db lacks the .* before 4"):
        write(spark.range(0), 4)


def test_the_state_of_a_large_fleet_is_kept_by_what_is_new(tmp_path: Path) -> None:
    """A batch writes its own values, not all that are open."""
    many = [(f"d{n % 5000}", n / 1000, n / 1000, 1.0) for n in range(50_000)]
    with Store(tmp_path / "windows.db") as store:
        before = State()
        for batch, rows in enumerate((many, [("d7", 51, 51, 1.0)])):
            done = step(before, table(rows))
            store.save("query", batch, before, done)
            before = done.state
        sizes = store.db.execute("SELECT length(rows) FROM parts ORDER BY batch").fetchall()
        assert sizes[0][0] > 1_000_000 and sizes[1][0] < 2_000
        assert len(store.load().open) == 50_001


HOUR, DAY, YEAR = 3600, 86_400, 365 * 86_400


def of(device: str, seq: int, received: float, time: float | None = None) -> Message:
    topic = f"dev/{device}/telemetry"
    return Message(topic, pack(device, 1, seq, time, 2000 + seq), received)


WILD = [
    of("future", 1, 1, 73 * YEAR),  # 2099
    of("future", 2, 2, HOUR + 60),
    of("past", 1, 3, -26 * YEAR),  # 2000
    of("past", 2, 4, -400 * DAY),
]
TAME = [
    of("ahead", 1, 10, 50 * 60),  # within the bounds: of its own windows alone
    of("flash", 1, 11, -200 * DAY),  # kept on flash for months
    of("a", 1, 12),
    of("b", 1, 13, 13),
]


def starts(windows: list[dict[str, Any]]) -> Counter[tuple[str, float]]:
    """Count the windows of a device by their start, in seconds after START."""
    utc = datetime.timezone.utc
    return Counter(
        (r["device"], (r["start"].replace(tzinfo=utc) - START).total_seconds()) for r in windows
    )


def test_windows_are_there_once_wherever_a_batch_is_cut_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A kill between any two of its steps, after which Spark does the batch again."""
    late: list[tuple[int, str]] = []

    def begun() -> tuple[Callable[[DataFrame, int], int], Mortal]:
        """As a run begins: nothing is known but what the disk has."""
        sink = Mortal(tmp_path / "windows")
        report = lambda count, device: late.append((count, device))  # noqa: E731
        return open_windows(tmp_path / "windows.db", sink, lambda b: b.toArrow(), report), sink

    batches = [
        [of("a", 1, 0), of("b", 1, 0, 0), of("ahead", 1, 0, 50 * 60)],
        [of("a", 2, 30), of("b", 2, 31, 31), of("ahead", 2, 40, 40)],
        [of("a", n + 1, 60.0 * n) for n in range(2, 13)],
        [of("b", 3, 730, 730), of("b", 4, 731, 59), of("a", 14, 780)],
        [of("b", 5, 732, 58)],
    ]
    frames = [measurements.measurements(frame(spark, batch)) for batch in batches]
    with as_query(spark):
        for n, rows_ in enumerate(frames):
            for when in ("before", "after") if n > 1 else ():
                write, sink = begun()
                sink.when = when
                with contextlib.suppress(Killed):
                    write(rows_, n)
            late.clear()
            for _ in range(2):  # the whole of it, and Spark dies before it notes that
                write, _ = begun()
                write(rows_, n)
            if n in (1, 4):  # of "ahead", and of b
                assert late == [(1, ["ahead", "b"][n // 4])]
    found = read(tmp_path / "windows")
    assert starts(found) == Counter([("a", 0.0), ("b", 0.0), ("a", 120.0)])
    counts = {row["device"]: row["count"] for row in found if row["start"].minute == 0}
    assert counts == {"a": 2, "b": 3}  # b's of 59 s came in time, that of 58 s did not


def test_bounds_are_options() -> None:
    batches = raw_table([*WILD, *TAME]).to_batches()
    for bounds, outside in (
        (Bounds(), 4),
        (Bounds(ahead=10 * 60), 5),
        (Bounds(ahead=2 * HOUR, behind=401 * DAY), 2),
        (Bounds(ahead=0, behind=0), 6),  # what has no time of its own is of its arrival
    ):
        keys = taking.taken(taking.Task("", Reads(), bounds, {}), batches).keys
        counts = [sum(keys[name].to_pylist()) for name in ("measurements", "out_of_time")]
        assert counts == [8 - outside, outside]


def test_a_notice_comes_now_and_then() -> None:
    notices = Notices(every=0.2)
    assert notices.lines() == []
    notices.add("cups are full", 2, "such as the blue one")
    assert notices.lines() == ["2 cups are full (such as the blue one)"]
    notices.add("cups are full", 1, "such as the red one")
    notices.add("cups are full", 3)
    found: list[str] = []
    until(lambda: found.extend(notices.lines()) or found)
    assert found == ["4 cups are full"] and notices.total == {"cups are full": 6}
