"""A query that drops copies: each reading once, whatever clock, order, crash or loss of state."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from flatmq_tools.pipeline import delta_batches, durable
from flatmq_tools.pipeline.delta_batches import Reader
from flatmq_tools.pipeline.jobs.parsing import Reads, mapped
from flatmq_tools.pipeline.report import from_state
from flatmq_tools.pipeline.report.period import Period
from flatmq_tools.pipeline.state import once
from flatmq_tools.pipeline.state.arrivals import State
from pipeline.messages import Message, count, land, read, reading
from pipeline.runs import Killed, Mortal, as_query

YEAR = 365 * 86400.0
HOUR = 3600.0


class Pipeline:
    """The table raw, and the query that makes measurements of it, with the checkpoint of Spark."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.raw = folder / "raw"
        self.state = folder / "state" / "measurements.sqlite"
        self.mapping = ""
        self.names: Sequence[str] = ("measurements", "out_of_time", "dead_letters")
        self._checkpoint = folder / "checkpoint"
        self._batches = 0
        self._done = 0

    def land(self, messages: Sequence[Message]) -> None:
        """Add a commit to raw."""
        land(self.folder, messages)
        self._batches += 1

    def run(self, kill: str = "") -> None:
        """Run the query in the batches of raw; `kill` it before or after one, or once included."""
        tables = {name: Mortal(self.folder / name) for name in self.names}
        for table in tables.values():
            table.when = kill
        mapping = mapped([self.mapping] if self.mapping else [])
        reads = Reads(mapping=mapping)
        work = once.Once(self.state, str(self.raw), self._checkpoint, tables, reads)

        def take(batch: DataFrame, number: int) -> None:
            work(batch, number)
            if kill == "included":
                raise Killed

        (self._checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        killed = pytest.raises(Killed) if kill else contextlib.nullcontext()
        with contextlib.closing(work), as_query(self.spark), killed:
            for n in range(self._done, self._batches):
                begin, end = self._place(n), self._place(n + 1)
                offset = json.dumps(end)
                (self._checkpoint / "offsets" / str(n)).write_text(f"v1\n{{}}\n{offset}")
                reader = Reader(str(self.raw), 1000)
                parts = reader.partitions(begin, end)
                units = [unit[:2] for part in parts for unit in part.units]
                take(self.spark.createDataFrame(units, delta_batches.UNIT).repartition(2), n)
                self._done = n + 1

    def _place(self, version: int) -> dict[str, object]:
        """Return the offset of a query behind the first commits of raw."""
        table = str(DeltaTable(str(self.raw)).metadata().id)
        return {"table": table, "version": version, "file": 0, "group": 0, "whole": False}

    def readings(self) -> Counter[tuple[str, int, int]]:
        rows = read(self.folder / "measurements", "device", "boot", "seq")
        return Counter((row["device"], row["boot"], row["seq"]) for row in rows)


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, tmp_path)


def once_each(readings: Iterable[tuple[str, int, int]]) -> Counter[tuple[str, int, int]]:
    return Counter(dict.fromkeys(readings, 1))


def test_a_clock_that_jumps_loses_nothing(pipeline: Pipeline) -> None:
    """The receiver's clock goes a year ahead and back; copies come a year apart."""
    pipeline.land([reading("a", 1, 1, 0), reading("a", 1, 2, 1)])
    pipeline.land([reading("a", 1, 3, YEAR)])
    pipeline.land([reading("a", 1, 4, 10), reading("b", 1, 1, 11), reading("a", 1, 1, 12)])
    pipeline.land([reading("a", 1, 2, 3 * YEAR), reading("b", 1, 1, 13), reading("a", 1, 5, 14)])
    pipeline.run()
    expected = [("a", 1, n) for n in range(1, 6)] + [("b", 1, 1)]
    assert pipeline.readings() == once_each(expected)


def test_a_crash_at_any_point_of_a_batch(pipeline: Pipeline) -> None:
    pipeline.land([reading("a", 1, 1, 0), reading("a", 1, 1, 1), reading("a", 1, 3, 2)])
    pipeline.run()
    for boot, kill in enumerate(("before", "after", "included"), 2):
        pipeline.land([reading("a", 1, 3, 3), reading("a", 1, 2, 4), reading("a", boot, 1, 5)])
        pipeline.run(kill)
    pipeline.land(
        [reading("a", 1, 2, 6), *(reading("a", b, n, 7) for b in (2, 3, 4) for n in (1, 2))]
    )
    pipeline.run()
    assert pipeline.readings() == once_each(
        [("a", 1, 1), ("a", 1, 2), ("a", 1, 3), *(("a", b, n) for b in (2, 3, 4) for n in (1, 2))]
    )
    # And each message is counted once.
    figures = from_state.of_state(pipeline.folder, Period())
    assert [(each.name, each.duplicates) for each in figures.devices] == [("a", 10)]


def test_what_spark_noted_is_on_the_disk_before_the_state_has_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no table is made of raw."""
    done: list[str] = []
    commit = State.commit
    monkeypatch.setattr(durable, "path", lambda path: done.append(path.name))
    monkeypatch.setattr(
        State, "commit", lambda self, *batch: (done.append("state"), commit(self, *batch))
    )
    pipeline.names = ()
    pipeline.land([reading("a", 1, 1, 0)])
    pipeline.run()
    assert done.index("offsets") < done.index("state")


def test_a_state_that_is_lost_is_made_again_of_raw(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed; it is damaged; it is that of an earlier day. Raw was merged meanwhile."""
    monkeypatch.setattr(once, "_ROWS", 6)  # in several steps
    pipeline.land([reading("a", 1, 1, 0), reading("b", 1, 1, 1)])
    pipeline.run()
    old = pipeline.state.read_bytes()
    n = 1
    for kept in (None, b"no database, and no space for one either" * 100, old):
        n += 1
        pipeline.land([reading("a", 1, n, n), reading("b", 1, 1, n), reading("a", 1, 1, n)])
        pipeline.run()
        for end in ("", "-wal", "-shm"):
            Path(f"{pipeline.state}{end}").unlink(missing_ok=True)
        if kept is not None:
            pipeline.state.write_bytes(kept)
    pipeline.land([reading("a", 1, each, 10 + each) for each in range(1, n + 2)])
    pipeline.run()
    expected = [("a", 1, each) for each in range(1, n + 2)] + [("b", 1, 1)]
    assert pipeline.readings() == once_each(expected)


COUNTER = """
[[rule]]
topic = "c/{device}"
format = "json"
seq = "n"
select = "v"
"""


def counted(number: int, received: float, value: float = 0.0, **more: Any) -> Message:
    """A message of a device that counts, and does not say when it has started again."""
    payload = json.dumps({"n": number, "v": value or received})
    return Message("c/d", payload.encode(), received, **more)


def test_numbers_that_start_again_begin_a_boot(pipeline: Pipeline) -> None:
    """After many messages and after few, with copies in between."""
    mapping = pipeline.folder / "counter.toml"
    mapping.write_text(COUNTER, "utf-8")
    pipeline.mapping = str(mapping)
    first = [counted(n, 10 * n) for n in range(1, 101)]
    # Sent again by the device at once, and by the broker later.
    copies = [first[99]._replace(at=1001), first[0]._replace(at=1002, dup=True)]
    retained = first[49]._replace(at=1003, retain=True)
    pipeline.land([*first[:70], first[3]._replace(at=701), *first[70:]])
    second = [counted(n, 1010 + 10 * n) for n in range(1, 101)]
    pipeline.land([*copies, retained, *second[:40]])
    pipeline.land([*second[40:], *(counted(n, 2020 + n) for n in (1, 2))])
    pipeline.run()
    pipeline.land([counted(n, 2030 + n) for n in (1, 3, 2)])
    # What it says does not change, and an hour has passed.
    pipeline.land([counted(n, 2 * HOUR + n, 7) for n in (1, 2)])
    pipeline.land([counted(n, 4 * HOUR + n, 7) for n in (1, 2)])
    pipeline.run()
    kept = {(boot, n) for boot in (1, 2) for n in range(1, 101)}
    kept |= {(3, 1), (3, 2), (4, 1), (4, 3), (4, 2), (5, 1), (5, 2), (6, 1), (6, 2)}
    assert pipeline.readings() == once_each([("d", *each) for each in kept])
    figures = from_state.of_state(pipeline.folder, Period())
    assert [(d.name, d.reboots, d.duplicates) for d in figures.devices] == [("d", 5, 4)]


def test_a_counter_of_16_bits_goes_round_and_late_numbers_belong_to_their_boot(
    pipeline: Pipeline,
) -> None:
    mapping = pipeline.folder / "counter.toml"
    mapping.write_text(COUNTER, "utf-8")
    pipeline.mapping = str(mapping)
    pipeline.land([counted(n, n - 65_000) for n in (65_533, 65_535, 65_534)])
    pipeline.land([counted(n, 1000 + n) for n in (0, 200, 1)])
    pipeline.run()
    kept = [(1, n) for n in (65_533, 65_534, 65_535)] + [(2, n) for n in (0, 1, 200)]
    assert pipeline.readings() == once_each([("d", *each) for each in kept])


def test_packs_without_identity_and_dead_letters_all_stay(pipeline: Pipeline) -> None:
    bare = Message("dev/b/telemetry", b'[{"n":"b/level","v":1}]', 6)
    pipeline.land([bare, bare, bare._replace(payload=b"no pack")])
    pipeline.land([bare, bare._replace(payload=b"no pack"), reading("a", 1, 1, 7)])
    # Far more copies than fit into the plan of a query.
    again = [reading("c", 1, n, 2000 + n) for n in range(1, 1202)]
    pipeline.land(again[:1200])
    pipeline.land([*again, *again])
    pipeline.run()
    assert pipeline.readings() == once_each([("c", 1, n) for n in range(1, 1202)]) + Counter(
        {("b", None, None): 3, ("a", 1, 1): 1}
    )
    assert count(pipeline.folder / "dead_letters") == 2
