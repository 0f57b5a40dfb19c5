"""kill -9 of the pipeline's parts: nothing is missing, and nothing is there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import sizes
from flatmq_rigs.pipeline import crash, crash_tables
from flatmq_rigs.pipeline.processes import alive, command_line, family, kill
from pipeline.mqtt import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _tables(out: Path, numbers: list[int], offsets: list[int]) -> None:
    packs = [b'[{"bn":"crash/","n":"seq","v":%d}]' % n for n in numbers]
    raw = pa.table({"payload": pa.array(packs, pa.binary()), "offset": offsets})
    for name, table in {"raw": raw, "measurements": pa.table({"seq": numbers})}.items():
        (out / name / "batch=0").mkdir(parents=True)
        pq.write_table(table, out / name / "batch=0" / "part.parquet")
        write_deltalake(out / "delta" / name, table)


@pytest.mark.parametrize(
    ("numbers", "offsets", "raw", "measurements", "again"),
    [
        ([1, 2, 3], [0, 1, 2], (0, 0), (0, 0), 0),
        ([1, 3], [0, 1], (1, 0), (1, 0), 0),
        ([1, 2, 2, 3], [0, 1, 1, 2], (0, 1), (0, 1), 0),
        ([1, 2, 2, 3], [0, 1, 2, 3], (0, 0), (0, 1), 1),
    ],
)
def test_the_count_finds_what_is_wrong(
    numbers: list[int],
    offsets: list[int],
    raw: tuple[int, int],
    measurements: tuple[int, int],
    again: int,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    _tables(tmp_path, numbers, offsets)
    counts, delivered_again = crash_tables.Tables(str(tmp_path)).counted(3, spark)
    assert delivered_again == again
    for name, count in counts.items():
        wanted = raw if name.startswith("raw") else measurements
        assert (count.missing, count.twice) == wanted, name
    good = crash.Result(["jvm"], 3, 1, again, 1.0, counts).good
    assert good == (raw == measurements == (0, 0))


def test_the_report_says_what_was_found() -> None:
    counts = {f"raw: {reader}": crash_tables.Count(0, 0) for reader in crash_tables.READERS}
    counts["raw: Delta, Spark"] = crash_tables.Count(7, 5)
    one = crash.Result(["jvm"] * 8, 50_000, 8, 20, 99.0, counts, 3)
    assert not one.good
    text = crash.report([one], 50_000, 8)
    assert "| jvm | 50,000 | 8 | 0 · 0 | 0 · 0 | 0 · 0 | 7 · 5 | 20 | 3 | 99 |" in text
    assert "python -m flatmq_rigs crash --messages 50000 --kills 8 --part jvm`" in text


_START = "1: mosquitto version 2.0.11 running\n"
_PUBLISHED = (
    "1: Received PUBLISH from crash-publisher (d0, q1, r0, m{}, 'dev/a', ... (93 bytes))\n"
)
_SENT = "1: Sending PUBLISH to ingest (d0, q1, r0, m{}, 'dev/a', ... (93 bytes))\n"
_ANSWERED = "1: Sending PUBACK to crash-publisher (m{}, rc0)\n"
_TAKEN = "1: Received PUBACK from ingest (Mid: {}, RC:0)\n"


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ([(_PUBLISHED, 7), (_ANSWERED, 7)], 7),
        ([(_PUBLISHED, 7), (_SENT, 2), (_ANSWERED, 7)], 7),
        ([(_PUBLISHED, 7), (_SENT, 2), (_ANSWERED, 7), (_TAKEN, 1)], 7),
        ([(_PUBLISHED, 7), (_SENT, 2), (_ANSWERED, 7), (_TAKEN, 2)], None),
        ([(_PUBLISHED, 7)], None),
        ([(_PUBLISHED, 7), (_ANSWERED, 7), (_PUBLISHED, 8)], None),
        ([], None),
    ],
)
def test_the_broker_is_held_to_what_its_receiver_acknowledged(
    lines: list[tuple[str, int]], lost: int | None
) -> None:
    before = _START + _PUBLISHED.format(6) + _ANSWERED.format(6)
    log = before + _START + "".join(line.format(number) for line, number in lines)
    assert crash.last_words(log) == lost


def test_what_the_broker_lost_is_not_missing_and_anything_else_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    _tables(tmp_path, [1, 4], [0, 1])
    counts, _ = crash_tables.Tables(str(tmp_path)).counted(4, spark, lost={2})
    assert {count.missing for count in counts.values()} == {1}


# Of each kind one kill, in one run: the broker's and the compaction's cost no start of Spark. The
# ingest is killed at each of its lines in test_landing.py, the source in test_run.py, and what
# the end of Java means is in test_service.py.
AT_ONCE = crash.runs(("broker", "compaction", "driver"), 1, apart=False)
APART = crash.runs(crash.PARTS, 2)
KILLS = [(kills, "3.1.1") for kills in (APART if sizes.whole() else AT_ONCE)]
KILLS += [(["ingest"], "5"), (["source"], "5")] if sizes.whole() else []


@pytest.mark.parametrize(("kills", "version"), KILLS, ids=str)
def test_each_part_is_killed_and_every_message_is_there_once(
    kills: list[str], version: str, spark: SparkSession
) -> None:
    killed = []
    found = crash.run(
        kills, 500 * len(kills), spark, seed=1, version=version, on_kill=lambda: killed.append(1),
        here=not sizes.whole(),
    )  # fmt: skip
    assert len(killed) == len(kills)
    assert len(found.counts) == (2 if "store" in kills else 8) and found.good
    assert found.lost <= kills.count("broker")


@pytest.mark.proof
def test_a_run_that_is_told_to_end_leaves_nothing_behind() -> None:
    """It gets several signals: `timeout` sends two."""
    command = ["crash", "--messages", "100", "--kills", "1", "--part", "jvm"]
    program = subprocess.Popen(
        [sys.executable, "-m", "flatmq_rigs", *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seen: set[int] = set()

    def under_way() -> bool:
        seen.update(family(program.pid))
        runs = [pid for pid in seen if "pipeline run" in command_line(pid)]
        theirs = [pid for run in runs for pid in family(run)]
        return any("org.apache.spark.deploy" in command_line(pid) for pid in theirs)

    try:
        until(under_way)
        seen.update(family(program.pid))
        until(lambda: program.send_signal(signal.SIGTERM) or program.poll() is not None)
        assert program.returncode == 143
        until(lambda: not any(alive(pid) for pid in seen))
    finally:
        kill(*filter(alive, seen))
