"""Times that cannot be spoil no window of another board, wherever a batch is cut off."""

from __future__ import annotations

import contextlib
import datetime
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from flatmq_tools.pipeline.jobs.limits import Bounds
from flatmq_tools.pipeline.jobs.parsing import Reads
from flatmq_tools.pipeline.state import taking
from pipeline.called import as_query
from pipeline.landed import read, table
from pipeline.messages import START, Message, frame, pack
from pipeline.mqtt import until

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
    from flatmq_tools.pipeline import sinks
    from flatmq_tools.pipeline.jobs.measurements import measurements
    from flatmq_tools.pipeline.open_windows import open_windows

    class Cut(Exception):
        pass

    class CutOff(sinks.Delta):
        """A sink that is killed before or after it writes."""

        when = ""

        def add(self, *batch: Any) -> int:
            if self.when == "before":
                raise Cut
            rows = super().add(*batch)
            if self.when == "after":
                raise Cut
            return rows

    late: list[tuple[int, str]] = []

    def begun() -> tuple[Callable[[DataFrame, int], int], CutOff]:
        """As a run begins: nothing is known but what the disk has."""
        sink = CutOff(tmp_path / "windows")
        report = lambda count, device: late.append((count, device))  # noqa: E731
        return open_windows(tmp_path / "windows.db", sink, lambda b: b.toArrow(), report), sink

    batches = [
        [of("a", 1, 0), of("b", 1, 0, 0), of("ahead", 1, 0, 50 * 60)],
        [of("a", 2, 30), of("b", 2, 31, 31), of("ahead", 2, 40, 40)],
        [of("a", n + 1, 60.0 * n) for n in range(2, 13)],
        [of("b", 3, 730, 730), of("b", 4, 731, 59), of("a", 14, 780)],
        [of("b", 5, 732, 58)],
    ]
    frames = [measurements(frame(spark, batch)) for batch in batches]
    with as_query(spark):
        for n, rows_ in enumerate(frames):
            for when in ("before", "after") if n > 1 else ():
                write, sink = begun()
                sink.when = when
                with contextlib.suppress(Cut):
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
    batches = table([*WILD, *TAME]).to_batches()
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
    from flatmq_tools.pipeline.notices import Notices

    notices = Notices(every=0.2)
    assert notices.lines() == []
    notices.add("cups are full", 2, "such as the blue one")
    assert notices.lines() == ["2 cups are full (such as the blue one)"]
    notices.add("cups are full", 1, "such as the red one")
    notices.add("cups are full", 3)
    found: list[str] = []
    until(lambda: found.extend(notices.lines()) or found)
    assert found == ["4 cups are full"] and notices.total == {"cups are full": 6}
