"""`flatmq pipeline run`: from a broker to all tables, and what it says when it cannot."""

import json
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flatmq_tools import ports
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import (
    delta_batches,
    delta_files,
    log,
    maintenance,
    notices,
    run,
    service,
)
from flatmq_tools.pipeline.in_use import lock
from flatmq_tools.pipeline.jobs import measurements
from flatmq_tools.pipeline.landing import Landing
from flatmq_tools.pipeline.metrics import served
from flatmq_tools.pipeline.progress import lines, write
from flatmq_tools.pipeline.run import Plan
from flatmq_tools.pipeline.state import taking
from flatmq_tools.pipeline.state.snapshots import Snapshots
from pipeline.messages import START, Message, count, land, land_boards, pack, read, reading
from pipeline.mqtt import PATIENCE, broker, publish, until
from pipeline.runs import Panic, said, shared, started, typed
from pipeline.test_landing import scraped
from pipeline.test_receive import raw


def _pack(device: str, seq: int) -> tuple[str, bytes]:
    return f"dev/{device}/telemetry", pack(device, 7, seq, temperature=2050 + 100 * seq)


def test_from_a_broker_to_every_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metrics say what came, too. No pandas is needed: `pip install flatmq[pipeline]`."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    port = ports.free_port()
    now = time.time() - START.timestamp()
    # The second reading closes the window of the first one, and not the clock of the future.
    timed = {"w": [pack("w", 1, seq, now + t) for seq, t in ((1, -3600), (2, -1800))]}
    timed["future"] = [pack("future", 1, 1, now + 73 * 365 * 86_400)]
    with (
        broker() as there,
        started(spark, Plan(tmp_path), there) as running,
        served(("127.0.0.1", port), running.metrics),
    ):
        sent = [_pack("a", n) for n in (1, 2, 4)] + [_pack("b", n) for n in (1, 1, 2)]
        publish(there, [*sent, ("dev/c/telemetry", b"no pack"), ("dev/a/status", b"online")])
        publish(there, [("dev/n/telemetry", b'[{"n":"t","v":NaN},{"n":"u","v":1}]')])
        for device, packs in timed.items():
            publish(there, [(f"dev/{device}/telemetry", each) for each in packs])
        until(lambda: running.look() or running.rows >= 12)
        until(lambda: running.look() or count(tmp_path / "windows"))
        running.finish()
        metrics = scraped(port)

    assert Counter(row["payload"] for row in read(tmp_path / "raw"))[sent[3][1]] == 2
    assert len(read(tmp_path / "raw")) == 12
    measured = {
        (row["device"], row["seq"]): row["value"]
        for row in read(tmp_path / "measurements") if row["device"] != "n"
    }  # fmt: skip
    assert measured == {
        ("a", 1): 21.5, ("a", 2): 22.5, ("a", 4): 24.5, ("b", 1): 21.5, ("b", 2): 22.5,
        ("w", 1): 21.5, ("w", 2): 21.5,
    }  # fmt: skip
    (outside,) = read(tmp_path / "out_of_time")
    assert outside["device"] == "future"
    assert outside.keys() == read(tmp_path / "measurements")[0].keys()
    of_n = [row for row in read(tmp_path / "measurements") if row["device"] == "n"]
    assert {row["quantity"]: row["value"] for row in of_n} == {"t": None, "u": 1.0}
    line, null = sorted(running.notices.lines(), key=lambda line: "null" in line)
    assert line.startswith("1 reading") and "a time too far from" in line
    assert null.startswith("1 values are null") and null.endswith("(such as n: t)")
    (window,) = read(tmp_path / "windows")
    assert (window["device"], window["count"]) == ("w", 1)
    (dead,) = read(tmp_path / "dead_letters")
    assert dead["payload"] == b"no pack" and "not JSON" in str(dead["reason"])
    health = {row["device"]: (row["lost"], row["duplicates"]) for row in read(tmp_path / "health")}
    assert health == {"a": (1, 0), "b": (0, 1), "w": (0, 0), "future": (0, 0)}
    assert '"name": "measurements"' in (tmp_path / "progress.jsonl").read_text()
    silent = [row["silent"] for row in read(tmp_path / "devices")]
    batches = metrics["flatmq_run_batch_seconds_count measurements"]
    assert batches >= 1
    for name, value in (
        ("rows_written_total raw", 12),
        ("rows_written_total measurements", 9), ("dead_letters_total", 1), ("devices", 5),
        ("devices_silent", sum(silent)), ("paused", 0),
        ("batch_seconds_bucket +Inf measurements", batches),
    ):  # fmt: skip
        assert metrics[f"flatmq_run_{name}"] == value, name
    assert metrics["flatmq_ingest_messages_landed_total"] == 12
    assert metrics["flatmq_run_batch_seconds_sum measurements"] > 0


# Topic names as bytes and as text, and why a message with one is a dead letter.
BROKEN = [
    (b"dev/x/+", "dev/x/+", "topic name: wildcards are not allowed"),
    (b"dev/#", "dev/#23", "topic name: wildcards are not allowed"),
    (b"dev/+/telemetry", "dev/+/telemetry", "topic name: wildcards are not allowed"),
    (b"dev/\0/telemetry", "dev/#00/telemetry", "topic name: U+0000 is not allowed"),
    (b"", "", "topic name: empty"),
    (b"dev/\xff\xfe/telemetry", "dev/#FF#FE/telemetry", "topic name: not UTF-8"),
]
TWICE = b"\x03\0\1a\x03\0\1b"  # Content Type


def test_each_batch_is_in_all_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Dead letters and odd times reach their tables after batches that have none."""
    batches = [
        [reading("a", 1, 1, 0)],
        [reading("a", 1, 2, 1), reading("a", 1, 1, 2)],
        [Message("dev/a/telemetry", b"torn", 3), reading("a", 1, 3, 4)],
        [reading("a", 1, 4, 5, time=-400 * 86_400.0), reading("a", 1, 5, 6)],
    ]
    wanted = [(1, 0, 0), (2, 0, 0), (3, 1, 0), (4, 1, 1)]
    with started(spark, Plan(tmp_path, jobs=["measurements"], trigger=0.1)) as running:
        for batch, rows in zip(batches, wanted, strict=True):
            land(tmp_path, batch)
            running.finish()
            tables = ("measurements", "dead_letters", "out_of_time")
            assert tuple(count(tmp_path / table) for table in tables) == rows
        # Messages that break a rule of MQTT, as some brokers pass on, and a good one.
        good = pack("a", 2, 1)
        with log.Writer(tmp_path / "log") as writer:
            for name, _, _ in BROKEN:
                writer.append(raw(name, b"", good, 0x32, b"\0\1"), 1, 0)
            for name, block in ((b"any/topic", TWICE), (b"dev/a/telemetry", b"")):
                carried = bytes((len(block),)) + block
                writer.append(raw(name, carried, good, 0x32, b"\0\1"), 1, 0, 5)
            writer.rotate()
            Landing(writer, str(tmp_path)).land()
        running.finish()
    dead = [*((text, why) for _, text, why in BROKEN), ("any/topic", "properties: not valid")]
    found = [row for row in read(tmp_path / "dead_letters") if row["payload"] == good]
    assert [(row["topic"], row["reason"]) for row in found] == dead
    assert count(tmp_path / "measurements") == 5
    # A query of one's own says the same.
    kept = [row for row in read(tmp_path / "raw") if row["payload"] == good]
    assert [row["topic"] for row in kept] == [*(text for text, _ in dead), "dev/a/telemetry"]
    assert (kept[6]["invalid_properties"], kept[6]["content_type"]) == (TWICE, None)
    packs = measurements.packs(spark.createDataFrame(pa.Table.from_pylist(kept, log.SCHEMA)))
    rows_ = measurements.dead(packs).orderBy("offset").collect()
    assert [(row.topic, row.reason) for row in rows_] == dead
    assert [row.boot for row in measurements.values(packs).collect()] == [2]


def test_the_innermost_cause_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def failed() -> str:
        with started(spark, Plan(tmp_path, jobs=["measurements"])) as running:
            until(lambda: running.look() or running.failed)
        return running.failed

    land_boards(tmp_path, 5, tmp_path / "log")
    [file] = (tmp_path / "raw").glob("day=*/*.parquet")
    day = tmp_path / "measurements" / file.parent.name
    day.parent.mkdir()
    day.write_text("in the way of a folder")
    assert re.search(f"{day}.*: Not a directory", failed())
    day.unlink()
    file.write_bytes(b"PAR1 and no end")
    assert failed().startswith("the job measurements has failed") and "Parquet" in failed()


def test_a_job_that_fails_stops_no_other_and_is_tried_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it cannot be started, at first or later, or there is no temporary folder."""
    monkeypatch.setattr(run, "_PAUSE", 0.1)
    monkeypatch.setattr(run, "_PAUSE_MOST", 0.4)
    monkeypatch.setattr(run.Run, "_folders", lambda _: [tmp_path / "gone"])
    said: list[str] = []
    with broker() as there, monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise ValueError("no such column")

        broken.setattr(delta_batches, "units", fail)
        plan = Plan(tmp_path, jobs=["measurements"])
        with started(spark, plan, there) as running:
            running.say = said.append
            publish(there, [_pack("a", n) for n in range(3)])
            until(lambda: running.look() or (len(said) >= 2 and count(tmp_path / "raw") == 3))
            assert "no such column" in running.failed and running.up()
            broken.undo()
            broken.setattr(taking, "take", fail)
            before = len(said)
            until(lambda: running.look() or len(said) > before)
            publish(there, [_pack("a", n) for n in range(3, 5)])
            until(lambda: running.look() or count(tmp_path / "raw") == 5)
            assert "no such column" in running.failed
            broken.setattr(delta_batches, "units", fail)
            before = len(said)
            until(lambda: running.look() or len(said) >= before + 2)
            broken.undo()
            until(lambda: running.look() or count(tmp_path / "measurements") == 5)
            until(lambda: running.look() or not running.failed)
    waits = [re.findall(r"started again in ([\d.]+) s", line) for line in said]
    assert all(line.startswith("the job measurements ") for line in said), said
    assert waits[0] and said[-1] == "the job measurements works again"


def test_a_batch_that_does_not_end_is_reported(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_LONG", 0.5)
    said: list[str] = []
    ends = threading.Event()
    work = delta_batches.work

    def hang(*parts: Any) -> list[Any]:
        assert ends.wait(PATIENCE)
        return work(*parts)

    monkeypatch.setattr(delta_batches, "work", hang)
    land_boards(tmp_path, 5, tmp_path / "log")
    with started(spark, Plan(tmp_path, jobs=["measurements"]), say=said.append) as running:
        until(lambda: running.look() or len(said) == 2)
        ends.set()
        until(lambda: running.look() or count(tmp_path / "measurements") == 5)
    assert all("measurements has been at one batch for 0 min" in line for line in said), said


def test_a_query_that_begins_busy_is_not_said_to_hang() -> None:
    query = mock.Mock(status={"isTriggerActive": True})
    job = run._Job("measurements", lambda _: query)
    job.begin()
    assert job.hangs(None) == ""


def test_what_fails_beside_the_jobs_stops_none_and_is_tried_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "FIRST", 0.0)
    monkeypatch.setattr(maintenance, "EVERY", 0.0)
    said: list[str] = []
    plan = Plan(tmp_path, jobs=["measurements", "health"], health_every=0.0)
    land_boards(tmp_path, 5, tmp_path / "log")
    with monkeypatch.context() as broken, started(spark, plan, say=said.append) as running:
        fails = mock.Mock(side_effect=Panic("rust"))
        broken.setattr(Snapshots, "refresh", fails)
        broken.setattr(DeltaTable, "vacuum", mock.Mock(side_effect=Panic("rust")))
        until(lambda: running.look() or running.failed)

        def tried_again() -> bool:
            running.look()
            # Also while the next try is awaited, or under way.
            assert running.failed == "the job health has failed: rust"
            return fails.call_count > 3 and count(tmp_path / "measurements") == 5

        until(tried_again)
        until(lambda: running.look() or any("cannot be maintained: rust" in each for each in said))
        assert sum("job health" in each for each in said) == 1
        broken.undo()
        until(lambda: running.look() or (not running.failed and count(tmp_path / "devices") == 5))


def test_a_table_is_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a table that cannot be removed keeps its checkpoint: its rows would come twice."""
    plan = Plan(tmp_path, jobs=["measurements", "windows", "health"])

    def ran() -> None:
        with started(spark, plan) as running:
            until(lambda: running.look() or count(tmp_path / "measurements") == 25)
            # On a busy machine a query may have to be started again.
            until(lambda: running.look() or running.finish() or not running.failed)

    land_boards(tmp_path, 25, tmp_path / "log")
    ran()
    devices = sorted(row["device"] for row in read(tmp_path / "devices"))
    other = tmp_path / "state"
    for words in ([other], ["s3://bucket/out", "--state", tmp_path / "log"]):
        refused = typed(["rebuild", "windows", *words])
        assert refused.exit_code == 1
        assert f"the folder of a run, not {words[-1]}: it has no table" in refused.output
        assert not (words[-1] / ".lock").exists()
    with monkeypatch.context() as broken:
        refuses = mock.Mock(side_effect=PermissionError(13, "not yours"))
        broken.setattr(shutil, "_rmtree_safe_fd", refuses)
        assert typed(["rebuild", "measurements", tmp_path]).exit_code == 1
    assert (tmp_path / "checkpoints" / "measurements").exists()
    for name in ("windows", "measurements", "health"):
        with lock(tmp_path):
            assert typed(["rebuild", name, tmp_path]).exit_code == 1
        assert typed(["rebuild", name, tmp_path]).exit_code == 0
        assert (count(tmp_path / "measurements") == 0) is (name == "measurements")
        assert (count(tmp_path / "devices") == 0) is (name != "windows")
        if name == "health":
            devices.append("new")
            land(tmp_path, [reading("new", 1, 1, 0, time=-400 * 86_400.0)])
        ran()
        assert count(tmp_path / "measurements") == 25
        assert sorted(row["device"] for row in read(tmp_path / "devices")) == devices


def test_a_run_that_was_killed_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Before Spark noted that a batch was done, and before it was; or that note is torn."""
    measured = tmp_path / "measurements"
    notes = tmp_path / "checkpoints" / "measurements"
    commits = notes / "commits"
    plan = Plan(tmp_path, jobs=["measurements"])

    def more(there: Broker, rows: int, *sent: tuple[str, bytes]) -> int:
        """Run until there are so many rows; return how many messages are said to be more."""
        with started(spark, plan, there) as running:
            publish(there, sent)
            until(lambda: running.look() or count(measured) >= rows)
            running.finish()
        return running.rows

    with broker() as there:
        assert more(there, 3, *(_pack("a", n) for n in range(3))) == 3
        last = _last(commits)
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()
        assert more(there, 5, *(_pack("a", n) for n in (3, 4))) == 2
        (commits / str(_last(commits))).write_bytes(b"")
        (notes / "offsets" / str(_last(commits) + 1)).write_bytes(bytes(99))
        assert more(there, 7, *(_pack("a", n) for n in (5, 6))) == 2
    assert sorted(row["seq"] for row in read(measured)) == list(range(7))


def _last(folder: Path) -> int:
    return max(int(note.name) for note in folder.glob("[0-9]*"))


def test_it_reads_what_ingests_write_and_a_batch_is_bounded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one commit has all that came while Spark was away."""
    monkeypatch.setattr(delta_files, "_ROWS", 10)
    monkeypatch.setattr(delta_batches, "ROWS", 10)
    land_boards(tmp_path, 25, tmp_path / "log")
    with started(spark, Plan(tmp_path, jobs=["measurements"])) as running:
        until(lambda: running.look() or count(tmp_path / "measurements") == 25)
        land_boards(tmp_path, 7, tmp_path / "log")
        until(lambda: running.look() or running.rows == 32)
        running.finish()
    lines = (tmp_path / "progress.jsonl").read_text().splitlines()
    sizes = [json.loads(line)["numInputRows"] for line in lines]
    assert sum(sizes) == 32 and max(sizes) <= 10


def test_a_second_run_is_refused_while_the_first_goes_on(tmp_path: Path) -> None:
    """And so is a folder of an earlier edition; both before anything is touched."""
    with lock(tmp_path):
        status, text = said("run", tmp_path)
    assert status == 1
    assert f"{tmp_path} is in use by a `flatmq pipeline run` or `forget`, process " in text
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    old = tmp_path / "raw" / "day=2026-01-01" / "batch=0"
    old.mkdir(parents=True)
    status, text = said("run", tmp_path)
    assert status == 1 and "name another folder, or move" in text
    assert f"{old} is of an earlier edition of flatmq" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "raw"]


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        ("out --filter a/#", 2, "options of the connection need --broker"),
        ("out --option qos=1", 2, "options of the connection need --broker"),
        ("out --broker x:y", 1, "brokerUrl = 'x:y': tcp://host:port or ssl://host:port"),
        ("out --broker h --option qos=3", 1, "qos = '3'"),
        ("out --keep 12h", 2, "'--keep': must be 1d to 36525d, not 12h"),
        ("out --keep soon", 2, "a duration must be a number and"),
        ("out --state s", 2, "--state needs an OUT that is a URL"),
        ("s3://b/x", 2, "needs --state: a local folder"),
        ("ftp://b/x --state s", 1, "deltalake can reach, not ftp://b/x: Unknown scheme"),
        ("out --master sc://h:1", 1, "out/raw does not exist yet: waiting for `flatmq pipeline"),
        ("out --master sc://h:1", 1, "master sc://h:1: Spark Connect cannot run the pipeline"),
    ],
)
def test_what_is_refused(
    words: str, status: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found, text = said("run", *words.split())
    assert found == status and reason in text


@pytest.mark.parametrize(
    ("signals", "status", "said"),
    [
        ([signal.SIGINT], 0, ("ending, within 20 s", "20 messages more in")),
        ([signal.SIGTERM, signal.SIGINT], 130, ("what was not finished is done by the next run",)),
    ],
)
def test_a_signal_ends_it_in_good_order_and_a_second_one_at_once(
    signals: list[signal.Signals], status: int, said: tuple[str, ...],
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = tmp_path / "out"
    land_boards(out, 20, tmp_path / "log")
    words = ["run", out, "--job", "measurements", "--master", "local[7]"]
    heard: list[str] = []

    def say(text: str) -> None:
        notices.say(text)
        heard.append(text)

    def begun() -> bool:
        return count(out / "measurements") == 20 and any(
            line.startswith("started after") for line in heard
        )

    monkeypatch.setattr(run, "say", say)
    with shared(spark, monkeypatch) as masters:
        done = typed(words, begun, signals)
    assert masters == ["local[7]"]
    output = " ".join(done.output.split())
    assert done.exit_code == status, done.output
    begin = f"starting Spark; on a busy machine that takes up to {service.START:.0f} s"
    assert all(output.count(words) == 1 for words in (begin, "started after", *said)), output
    assert count(out / "measurements") == 20


def test_only_so_much_is_kept_and_the_newest_of_it(tmp_path: Path) -> None:
    assert list(lines(tmp_path)) == []
    written = [f"batch {n}" for n in range(1000)]
    for line in written:
        write(tmp_path, line, limit=500)
        assert list(lines(tmp_path))[-1] == line
    kept = list(lines(tmp_path))
    assert kept == written[-len(kept) :] and len(kept) >= 500 // len("batch 999\n")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 2 * (
        500 + len("batch 999\n")
    )
