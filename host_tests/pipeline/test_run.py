"""`flatmq pipeline run`: from a broker to all tables, and what it says when it cannot."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from flatmq_rigs.pipeline import crash
from flatmq_tools.broker import Broker
from pipeline.mqtt import PATIENCE, broker, publish, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flatmq_tools.pipeline.run import Run


def _pack(device: str, seq: int) -> tuple[str, bytes]:
    text = (
        f'[{{"bn":"{device}/","n":"boot","v":7}},{{"n":"seq","v":{seq}}},'
        f'{{"n":"chip/temp","u":"Cel","v":2{seq}.5}}]'
    )
    return f"dev/{device}/telemetry", text.encode()


def _rows(folder: Path) -> list[dict[str, object]]:
    for _ in range(100):
        # pyarrow lists hidden folders, too, and one may get its name meanwhile.
        with contextlib.suppress(FileNotFoundError):
            return ds.dataset(folder, format="parquet").to_table().to_pylist()
    return ds.dataset(folder, format="parquet").to_table().to_pylist()


def _landed(folder: Path) -> int:
    """Return the number of rows of a table that is being written.

    It is 0 before its first batch, and while one is just given its name.
    """
    with contextlib.suppress(FileNotFoundError):
        return len(_rows(folder))
    return 0


def test_from_a_broker_to_every_table(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from flatmq_tools.pipeline.run import Plan, Run

    with broker() as there:
        source = {"brokerUrl": there.address, "topic": "dev/#"}
        running = Run(spark, Plan(tmp_path, source, delta=True, trigger=0.1))
        until(lambda: (tmp_path / "log" / "subscribed.json").exists() or running.look())
        sent = [_pack("a", n) for n in (1, 2, 4)] + [_pack("b", n) for n in (1, 1, 2)]
        publish(there, [*sent, ("dev/c/telemetry", b"no pack"), ("dev/a/status", b"online")])
        until(lambda: running.look() or running.rows >= 8)
        running.finish()
        running.stop()

    assert running.rows == 8
    assert Counter(row["payload"] for row in _rows(tmp_path / "raw"))[sent[3][1]] == 2
    assert len(_rows(tmp_path / "raw")) == 8
    measured = {
        (row["device"], row["seq"]): row["value"] for row in _rows(tmp_path / "measurements")
    }
    assert measured == {
        ("a", 1): 21.5, ("a", 2): 22.5, ("a", 4): 24.5, ("b", 1): 21.5, ("b", 2): 22.5,
    }  # fmt: skip
    (dead,) = _rows(tmp_path / "dead_letters")
    assert dead["payload"] == b"no pack" and "not JSON" in str(dead["reason"])
    health = {
        row["device"]: (row["lost"], row["duplicates"]) for row in _rows(tmp_path / "health")
    }
    assert health == {"a": (1, 0), "b": (0, 1)}
    for name in ("raw", "measurements", "dead_letters", "health", "devices", "gaps"):
        table: pa.Table = DeltaTable(str(tmp_path / "delta" / name)).to_pyarrow_table()
        assert table.num_rows == len(_rows(tmp_path / name)), name
    assert (tmp_path / "windows").is_dir()
    assert '"name": "raw"' in (tmp_path / "progress.jsonl").read_text()


def test_what_fails_is_said_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    from flatmq_tools.pipeline.run import Plan, Run, RunError, reason

    with pytest.raises(PySparkException) as error:
        Run(spark, Plan(tmp_path / "a", {"brokerUrl": "b", "topic": "t", "qso": "1"}))
    assert reason(error.value).endswith("OptionError: qso: no such option; did you mean qos?")
    with pytest.raises(RunError, match="row: no such job; there are raw, measurements"):
        Run(spark, Plan(tmp_path / "b", jobs=["row"]))


def test_the_innermost_cause_is_told(spark: SparkSession, tmp_path: Path) -> None:
    from flatmq_tools.pipeline.run import Plan, Run, RunError

    (tmp_path / "landed").mkdir()
    (tmp_path / "landed" / "torn.parquet").write_bytes(b"PAR1 and no end")
    running = Run(spark, Plan(tmp_path / "out", landed=str(tmp_path / "landed"), jobs=["raw"]))
    with pytest.raises(RunError, match=r"the query raw has ended: ") as error:
        until(running.look)
    running.stop()
    *_, cause = str(error.value).splitlines()
    assert cause.startswith("caused by java.") and "torn.parquet is not a Parquet file" in cause


def _job(spark: SparkSession, folder: Path, there: Broker, done: Callable[[Run], object]) -> int:
    """The table raw, until that is so; returns how many messages are said to be more."""
    from flatmq_tools.pipeline.run import Plan, Run

    source = {"brokerUrl": there.address, "topic": "dev/#"}
    running = Run(spark, Plan(folder, source, jobs=["raw"], trigger=0.1))
    try:
        until(lambda: running.look() or done(running))
        running.finish()
    finally:
        running.stop()
    return running.rows


def test_what_is_more_is_what_was_not_there_before(spark: SparkSession, tmp_path: Path) -> None:
    raw, commits = tmp_path / "raw", tmp_path / "checkpoints" / "raw" / "commits"

    def uncommit() -> int:
        """As after a crash before Spark noted that the last batch was done. Returns its number."""
        last = max(int(commit.name) for commit in commits.glob("[0-9]*"))
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()
        return last

    with broker() as there:
        subscribed = tmp_path / "log" / "subscribed.json"
        assert _job(spark, tmp_path, there, lambda _: subscribed.exists()) == 0
        publish(there, [_pack("a", n) for n in range(3)])
        assert _job(spark, tmp_path, there, lambda _: _landed(raw) >= 3) == 3
        before = uncommit()
        assert _job(spark, tmp_path, there, lambda _: list(commits.glob(str(before)))) == 0
        last = uncommit()
        (raw / "_batches" / f"{last}.json").unlink()
        for folder in raw.glob(f"day=*/batch={last}"):
            shutil.rmtree(folder)
        gone = 3 - _landed(raw)  # the messages may have come in two batches
        assert gone > 0
        assert _job(spark, tmp_path, there, lambda _: _landed(raw) >= 3) == gone


def _sources() -> set[int]:
    """The processes that receive, of any query; one that was stopped may be ending yet."""
    family = crash.family(os.getpid())
    return {pid for pid in family if "python_streaming_source_runner" in crash.command(pid)}


def _hold_up_the_next_source(before: set[int], held: list[int]) -> None:
    """Stop the process of a source that starts now, as a machine does that is too busy."""
    end = time.monotonic() + PATIENCE
    while not held and time.monotonic() < end:
        for pid in _sources() - before:
            os.kill(pid, signal.SIGSTOP)
            held.append(pid)


def test_a_source_that_starts_too_slowly_is_started_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that happens later than a run may take to start."""
    from flatmq_tools.pipeline import service
    from flatmq_tools.pipeline.run import Plan, Run

    monkeypatch.setattr(service, "START", 5.0)
    held: list[int] = []
    busy = threading.Thread(target=_hold_up_the_next_source, args=[_sources(), held])
    busy.start()
    with broker() as there:
        source = {"brokerUrl": there.address, "topic": "dev/#"}
        running = Run(spark, Plan(tmp_path, source, jobs=["raw"], trigger=0.1))
        try:
            until(lambda: running.look() or (tmp_path / "log" / "subscribed.json").exists())
            busy.join()
            assert _sources() - {*held}
            publish(there, [_pack("a", 1)])
            raw = tmp_path / "raw"
            until(lambda: running.look() or _landed(raw))
        finally:
            for pid in held:
                os.kill(pid, signal.SIGKILL)
            running.stop()
    assert [row["payload"] for row in _rows(raw)] == [_pack("a", 1)[1]]


def test_landed_files_go_when_they_are_in_raw(spark: SparkSession, tmp_path: Path) -> None:
    from flatmq_rigs.pipeline.bench.messages import fill
    from flatmq_tools.pipeline.landing import Landing
    from flatmq_tools.pipeline.log import Writer
    from flatmq_tools.pipeline.run import Plan, Run

    landed = tmp_path / "landed"
    plan = Plan(tmp_path / "out", landed=str(landed), clean=True, jobs=["raw"], trigger=0.1)
    with Writer(tmp_path / "log") as log:
        landing = Landing(log, str(landed))
        running = Run(spark, plan)
        for n in range(1, 5):
            fill(log, 10)
            log.rotate()
            landing.land()
            if n == 1:
                (first,) = landed.glob("*.parquet")
            until(lambda n=n: running.look() or running.rows == 10 * n)  # type: ignore[misc]
        until(lambda: running.look() or not first.exists())
        running.finish()
        running.stop()
    assert len(_rows(tmp_path / "out" / "raw")) == 40


def _sizes(running: Run, raw: Path, rows: int) -> list[int]:
    """Of the batches that came, when there are so many rows in them."""
    until(lambda: running.look() or (raw.exists() and len(_rows(raw)) == rows))
    running.stop()
    batches = {int(path.name.removeprefix("batch=")) for path in raw.glob("day=*/batch=*")}
    found = (sum(len(_rows(path)) for path in raw.glob(f"day=*/batch={n}")) for n in range(99))
    assert batches <= set(range(99))
    return [size for size in found if size]


def test_a_batch_is_bounded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that came while Spark was away are not all in one batch."""
    from flatmq_rigs.pipeline.bench.messages import fill
    from flatmq_tools.pipeline import run
    from flatmq_tools.pipeline.landing import Landing
    from flatmq_tools.pipeline.log import Writer

    monkeypatch.setattr(run, "_ROWS", 10)
    monkeypatch.setattr(run, "_BYTES", 1)
    with broker() as there, Writer(tmp_path / "kept") as log:
        out = tmp_path / "out"
        with Writer(out / "log") as waiting:
            fill(waiting, 25)
        for n in (3, 4):
            fill(log, n)
            log.rotate()
        Landing(log, str(tmp_path / "landed")).land()
        source = {"brokerUrl": there.address, "topic": "dev/#"}
        plan = run.Plan(out, source, jobs=["raw"], trigger=0.1)
        assert _sizes(run.Run(spark, plan), out / "raw", 25) == [10, 10, 5]
        plan = run.Plan(tmp_path / "b", landed=str(tmp_path / "landed"), jobs=["raw"])
        assert _sizes(run.Run(spark, plan), tmp_path / "b" / "raw", 7) == [3, 4]


def test_an_ingest_that_was_half_an_hour_behind_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    from flatmq_rigs.pipeline.bench.messages import stream
    from flatmq_tools.pipeline.landing import Landing
    from flatmq_tools.pipeline.log import Writer
    from flatmq_tools.pipeline.run import Plan, Run

    landed, now = tmp_path / "landed", time.time_ns() // 1000

    def land(name: str, rows: int, at: int) -> None:
        with Writer(tmp_path / name) as log:
            log.append(stream(rows), rows, at)
            log.rotate()
            Landing(log, str(landed)).land()

    land("ahead", 5, now)
    jobs = ["raw", "measurements"]
    running = Run(spark, Plan(tmp_path / "out", landed=str(landed), jobs=jobs, trigger=0.1))
    measured = tmp_path / "out" / "measurements"
    until(lambda: running.look() or _landed(measured) == 5)
    # The first five of these are copies.
    land("behind", 8, now - 1_800_000_000)
    until(lambda: running.look() or _landed(measured) == 8)
    running.finish()
    running.stop()
    assert len(_rows(tmp_path / "out" / "raw")) == 13
    assert len(_rows(measured)) == 8


def test_only_landed_files_can_be_removed(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from flatmq_tools.pipeline import cli

    result = CliRunner().invoke(cli.pipeline, ["run", str(tmp_path), "--clean"])
    assert result.exit_code == 2
    assert "--clean needs --landed" in result.output


@pytest.mark.parametrize(
    ("signals", "status", "said"),
    [
        ([signal.SIGINT], 0, "20 messages more in"),
        ([signal.SIGTERM, signal.SIGINT], 130, "what was not finished is done by the next run"),
    ],
)
def test_a_signal_ends_it_in_good_order_and_a_second_one_at_once(
    signals: list[signal.Signals], status: int, said: str, tmp_path: Path
) -> None:
    from flatmq_rigs.pipeline.bench.messages import fill
    from flatmq_tools.pipeline.landing import Landing
    from flatmq_tools.pipeline.log import Writer

    landed, out = tmp_path / "landed", tmp_path / "out"
    with Writer(tmp_path / "log") as log:
        fill(log, 20)
        log.rotate()
        Landing(log, str(landed)).land()
    program = subprocess.Popen(
        [
            sys.executable, "-m", "flatmq_tools.cli", "pipeline", "run", str(out),
            "--landed", str(landed), "--job", "raw",
            "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        raw = out / "raw"
        until(lambda: program.poll() is not None or (raw.exists() and len(_rows(raw)) == 20))
        for number in signals:
            program.send_signal(number)
        _, words = program.communicate(timeout=PATIENCE)
    finally:
        program.kill()
    assert (program.returncode, said in " ".join(words.split())) == (status, True), words
    assert len(_rows(raw)) == 20
