"""kill -9 of the pipeline's parts: nothing is missing, and nothing is there twice."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import sizes
from flatmq_rigs.pipeline import crash, crash_tables

NONE, MISSING, TWICE = (0, 0), (1, 0), (0, 1)


@pytest.mark.parametrize(
    ("numbers", "offsets", "lost", "raw", "measurements", "again"),
    [
        ([1, 2, 3], [0, 1, 2], (), NONE, NONE, 0),
        ([1, 3], [0, 1], (), MISSING, MISSING, 0),
        ([1, 3], [0, 1], (2,), NONE, NONE, 0),
        ([1, 2, 2, 3], [0, 1, 1, 2], (), TWICE, TWICE, 0),
        ([1, 2, 2, 3], [0, 1, 2, 3], (), NONE, TWICE, 1),
    ],
)
def test_the_count_finds_what_is_wrong(
    numbers: list[int], offsets: list[int], lost: tuple[int, ...], raw: tuple[int, int],
    measurements: tuple[int, int], again: int, spark: SparkSession, tmp_path: Path,
) -> None:  # fmt: skip
    packs = [b'[{"bn":"crash/","n":"seq","v":%d}]' % n for n in numbers]
    messages = pa.table({"payload": pa.array(packs, pa.binary()), "offset": offsets})
    for name, table in {"raw": messages, "measurements": pa.table({"seq": numbers})}.items():
        write_deltalake(tmp_path / name, table)
    counts, delivered_again = crash_tables.Tables(str(tmp_path)).counted(3, spark, lost)
    assert delivered_again == again and len(counts) == 4
    for name, count in counts.items():
        expected = raw if name.startswith("raw") else measurements
        assert (count.missing, count.twice) == expected, name
    found = crash.Result(["jvm"], 3, 1, again, 1.0, counts)
    assert found.good == (raw == measurements == NONE)
    cell = f"{raw[0] + measurements[0]} · {raw[1] + measurements[1]}"
    row = f"| jvm | 3 | 1 | {' | '.join([cell] * 2)} | {again} | 0 | 1 |"
    assert row in crash.report([found], 3, 1)


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
        ([(_PUBLISHED, 7), (_SENT, 2), (_ANSWERED, 7), (_TAKEN, 1)], 7),
        ([(_PUBLISHED, 7), (_SENT, 2), (_ANSWERED, 7), (_TAKEN, 2)], None),
        ([(_PUBLISHED, 7), (_ANSWERED, 7), (_PUBLISHED, 8)], None),
        ([], None),
    ],
)
def test_the_broker_is_held_to_what_its_receiver_acknowledged(
    lines: list[tuple[str, int]], lost: int | None
) -> None:
    start = "1: mosquitto version 2.0.11 running\n"
    before = start + _PUBLISHED.format(6) + _ANSWERED.format(6)
    log = before + start + "".join(line.format(number) for line, number in lines)
    assert crash.last_words(log) == lost


# The ingest and the log are killed at each of their lines in test_landing.py, a batch at each of
# its steps in test_once.py, what the end of Java means is in test_service.py, and
# `python -m flatmq_rigs crash` kills each part, at MQTT 3.1.1.
HERE = [(["broker", "compaction"], "3.1.1")]
APART = [(["ingest"], "5"), (["driver"], "5")]


@pytest.mark.parametrize(("kills", "version"), HERE + APART * sizes.whole(), ids=str)
def test_each_part_is_killed_and_every_message_is_there_once(
    kills: list[str], version: str, spark: SparkSession
) -> None:
    killed = []
    found = crash.run(
        kills, 500 * len(kills), spark, seed=1, version=version, on_kill=lambda: killed.append(1),
        here=version == "3.1.1",
    )  # fmt: skip
    assert len(killed) == len(kills)
    assert len(found.counts) == 4 and found.good
    assert found.lost <= kills.count("broker")
