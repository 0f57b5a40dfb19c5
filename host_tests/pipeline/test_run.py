"""`flatmq pipeline run`: from a broker to all tables, and what it says when it cannot."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from rich.console import Console

from flatmq_rigs.pipeline.bench.messages import fill
from flatmq_rigs.pipeline.processes import command_line, family
from flatmq_tools import ports
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import run, service
from flatmq_tools.pipeline.log import Writer
from flatmq_tools.pipeline.metrics import served
from flatmq_tools.pipeline.run import Plan, Run, RunError, reason
from pipeline.landed import land_boards
from pipeline.messages import START, pack
from pipeline.mqtt import PATIENCE, broker, publish, until
from pipeline.test_metrics import scraped
from pipeline.typed_here import shared, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def started(spark: SparkSession, there: Broker | None, plan: Plan) -> Iterator[Run]:
    """A run, which is stopped at the end; it has subscribed if it is of a broker."""
    if there is not None:
        plan.source.update(brokerUrl=there.address, topic="dev/#")
        plan.trigger = 0.3
    running = Run(spark, plan)
    try:
        subscribed = plan.out / "log" / "subscribed.json"
        until(lambda: there is None or running.look() or subscribed.exists())
        yield running
    finally:
        running.stop()


def _pack(device: str, seq: int) -> tuple[str, bytes]:
    return f"dev/{device}/telemetry", pack(device, 7, seq, temperature=2050 + 100 * seq)


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
    """The metrics of the run say what came, too."""
    port = ports.free_port()
    now = time.time() - START.timestamp()
    # The second reading closes the window of the first one, and not the clock of the future.
    timed = {"w": [pack("w", 1, seq, now + t) for seq, t in ((1, -3600), (2, -1800))]}
    timed["future"] = [pack("future", 1, 1, now + 73 * 365 * 86_400)]
    with (
        broker() as there,
        started(spark, there, Plan(tmp_path, delta=True)) as running,
        served(("127.0.0.1", port), running.metrics),
    ):
        sent = [_pack("a", n) for n in (1, 2, 4)] + [_pack("b", n) for n in (1, 1, 2)]
        publish(there, [*sent, ("dev/c/telemetry", b"no pack"), ("dev/a/status", b"online")])
        publish(there, [("dev/n/telemetry", b'[{"n":"t","v":NaN},{"n":"u","v":1}]')])
        for device, packs in timed.items():
            publish(there, [(f"dev/{device}/telemetry", each) for each in packs])
        until(lambda: running.look() or running.rows >= 12)
        until(lambda: running.look() or _landed(tmp_path / "windows"))
        running.finish()
        metrics = scraped(port)

    assert running.rows == 12
    assert Counter(row["payload"] for row in _rows(tmp_path / "raw"))[sent[3][1]] == 2
    assert len(_rows(tmp_path / "raw")) == 12
    measured = {
        (row["device"], row["seq"]): row["value"]
        for row in _rows(tmp_path / "measurements") if row["device"] != "n"
    }  # fmt: skip
    assert measured == {
        ("a", 1): 21.5, ("a", 2): 22.5, ("a", 4): 24.5, ("b", 1): 21.5, ("b", 2): 22.5,
        ("w", 1): 21.5, ("w", 2): 21.5,
    }  # fmt: skip
    (outside,) = _rows(tmp_path / "out_of_time")
    assert outside["device"] == "future"
    assert outside.keys() == _rows(tmp_path / "measurements")[0].keys()
    of_n = [row for row in _rows(tmp_path / "measurements") if row["device"] == "n"]
    assert {row["quantity"]: row["value"] for row in of_n} == {"t": None, "u": 1.0}
    line, null = sorted(running.notices.lines(), key=lambda line: "null" in line)
    assert line.startswith("1 reading") and "a time too far from" in line
    assert null.startswith("1 values are null") and null.endswith("(such as n: t)")
    (window,) = _rows(tmp_path / "windows")
    assert (window["device"], window["count"]) == ("w", 1)
    (dead,) = _rows(tmp_path / "dead_letters")
    assert dead["payload"] == b"no pack" and "not JSON" in str(dead["reason"])
    health = {
        row["device"]: (row["lost"], row["duplicates"]) for row in _rows(tmp_path / "health")
    }
    assert health == {"a": (1, 0), "b": (0, 1), "w": (0, 0), "future": (0, 0)}
    for name in ("raw", "measurements", "dead_letters", "health", "devices", "gaps"):
        table: pa.Table = DeltaTable(str(tmp_path / "delta" / name)).to_pyarrow_table()
        assert table.num_rows == len(_rows(tmp_path / name)), name
    assert '"name": "raw"' in (tmp_path / "progress.jsonl").read_text()
    silent = [row["silent"] for row in _rows(tmp_path / "devices")]
    batches = metrics["flatmq_run_batch_seconds_count raw"]
    assert batches >= 1
    for name, value in (
        ("messages_received_total", 12), ("messages_waiting", 0), ("rows_written_total raw", 12),
        ("rows_written_total measurements", 9), ("dead_letters_total", 1), ("devices", 5),
        ("devices_silent", sum(silent)), ("paused", 0),
        ("batch_seconds_bucket +Inf raw", batches),
    ):  # fmt: skip
        assert metrics[f"flatmq_run_{name}"] == value, name
    assert metrics["flatmq_run_log_bytes"] > 0
    assert metrics["flatmq_run_batch_seconds_sum raw"] > 0


def test_what_fails_is_said_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as error:
        Run(spark, Plan(tmp_path / "a", {"brokerUrl": "b", "topic": "t", "qso": "1"}))
    assert reason(error.value).endswith("OptionError: qso: no such option; did you mean qos?")
    with pytest.raises(RunError, match="row: no such job; there are raw, measurements"):
        Run(spark, Plan(tmp_path / "b", jobs=["row"]))


def test_the_innermost_cause_is_told(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "landed").mkdir()
    (tmp_path / "landed" / "torn.parquet").write_bytes(b"PAR1 and no end")
    running = Run(spark, Plan(tmp_path / "out", landed=str(tmp_path / "landed"), jobs=["raw"]))
    with pytest.raises(RunError, match=r"the query raw has ended: ") as error:
        until(running.look)
    running.stop()
    *_, cause = str(error.value).splitlines()
    assert cause.startswith("caused by java.") and "torn.parquet is not a Parquet file" in cause


def test_what_is_more_is_what_was_not_there_before(spark: SparkSession, tmp_path: Path) -> None:
    raw, commits = tmp_path / "raw", tmp_path / "checkpoints" / "raw" / "commits"
    plan = Plan(tmp_path, jobs=["raw"])

    def uncommit() -> int:
        """As after a crash before Spark noted that the last batch was done. Returns its number."""
        last = max(int(commit.name) for commit in commits.glob("[0-9]*"))
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink()
        return last

    def more(there: Broker, done: Callable[[], object], *sent: tuple[str, bytes]) -> int:
        """Run until that is so; return how many messages are said to be more."""
        with started(spark, there, plan) as running:
            publish(there, sent)
            until(lambda: running.look() or done())
            running.finish()
        return running.rows

    with broker() as there:
        sent = [_pack("a", n) for n in range(3)]
        assert more(there, lambda: _landed(raw) >= 3, *sent) == 3
        before = uncommit()
        assert more(there, lambda: list(commits.glob(str(before)))) == 0
        last = uncommit()
        (raw / "_batches" / f"{last}.json").unlink()
        for folder in raw.glob(f"day=*/batch={last}"):
            shutil.rmtree(folder)
        gone = 3 - _landed(raw)  # the messages may have come in two batches
        assert gone > 0
        assert more(there, lambda: _landed(raw) >= 3) == gone


def _sources() -> set[int]:
    """The processes that receive, of any query; one that was stopped may be ending yet."""
    ours = family(os.getpid())
    return {pid for pid in ours if "python_streaming_source_runner" in command_line(pid)}


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
    monkeypatch.setattr(service, "START", 5.0)
    held: list[int] = []
    busy = threading.Thread(target=_hold_up_the_next_source, args=[_sources(), held])
    busy.start()
    raw = tmp_path / "raw"
    try:
        with broker() as there, started(spark, there, Plan(tmp_path, jobs=["raw"])) as running:
            busy.join()
            assert _sources() - {*held}
            publish(there, [_pack("a", 1)])
            until(lambda: running.look() or _landed(raw))
            for pid in held:
                os.kill(pid, signal.SIGKILL)
            held.clear()
    finally:
        for pid in held:
            os.kill(pid, signal.SIGKILL)
    assert [row["payload"] for row in _rows(raw)] == [_pack("a", 1)[1]]


def test_a_source_that_is_killed_ends_the_run_and_the_next_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    plan, raw = Plan(tmp_path, jobs=["raw"]), tmp_path / "raw"
    with broker() as there:
        with started(spark, there, plan) as running:
            publish(there, [_pack("a", 1)])
            os.kill(int((tmp_path / "log" / "lock").read_text()), signal.SIGKILL)
            publish(there, [_pack("a", 2)])
            with pytest.raises(RunError, match="the query raw has ended"):
                until(running.look)
        with started(spark, there, plan) as running:
            publish(there, [_pack("a", 3)])
            until(lambda: running.look() or _landed(raw) >= 3)
    rows = Counter((row["payload"], row["dup"]) for row in _rows(raw))
    assert {payload for payload, _ in rows} == {_pack("a", n)[1] for n in (1, 2, 3)}
    assert sum(count for (_, dup), count in rows.items() if not dup) <= 3


def test_landed_files_go_when_they_are_in_raw(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "landed").mkdir()
    plan = Plan(
        tmp_path / "out", landed=str(tmp_path / "landed"), clean=True, jobs=["raw"], trigger=0.3
    )
    with started(spark, None, plan) as running:
        for n in range(1, 4):
            landed = land_boards(tmp_path, 10)
            if n == 1:
                (first,) = landed.glob("*.parquet")
            until(lambda n=n: running.look() or running.rows == 10 * n)  # type: ignore[misc]
        until(lambda: running.look() or not first.exists())
        running.finish()
    assert len(_rows(tmp_path / "out" / "raw")) == 30


def _sizes(running: Run, raw: Path, rows: int) -> list[int]:
    """Of the batches that came, when there are so many rows in them."""
    until(lambda: running.look() or _landed(raw) == rows)
    batches = {int(path.name.removeprefix("batch=")) for path in raw.glob("day=*/batch=*")}
    found = (sum(len(_rows(path)) for path in raw.glob(f"day=*/batch={n}")) for n in range(99))
    assert batches <= set(range(99))
    return [size for size in found if size]


def test_a_batch_is_bounded(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that came while Spark was away are not all in one batch."""
    monkeypatch.setattr(run, "_ROWS", 10)
    with broker() as there:
        with Writer(tmp_path / "log") as waiting:
            fill(waiting, 25)
        with started(spark, there, Plan(tmp_path, jobs=["raw"])) as running:
            assert _sizes(running, tmp_path / "raw", 25) == [10, 10, 5]


def test_an_ingest_that_was_half_an_hour_behind_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files, of which each is a batch here, are older than those that came before."""
    monkeypatch.setattr(run, "_BYTES", 1)
    out, now = tmp_path / "out", time.time_ns() // 1000
    landed = land_boards(tmp_path, 5, now)
    plan = Plan(out, landed=str(landed), jobs=["raw"], trigger=0.3)
    with started(spark, None, plan) as running:
        until(lambda: running.look() or _landed(out / "raw") == 5)
        for n in (3, 4):
            (file,) = land_boards(tmp_path / str(n), n, now - 1_800_000_000).iterdir()
            os.utime(file, (1, 1))
            file.rename(landed / file.name)
        assert sorted(_sizes(running, out / "raw", 12)) == [3, 4, 5]


def test_only_landed_files_can_be_removed(tmp_path: Path) -> None:
    result = typed(["run", tmp_path, "--clean"])
    assert result.exit_code == 2
    assert "--clean needs --landed" in result.output


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
    landed, raw = land_boards(tmp_path, 20), tmp_path / "out" / "raw"
    words = ["run", tmp_path / "out", "--landed", landed, "--job", "raw", "--master", "local[7]"]
    heard: list[str] = []

    class Heard(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            super().print(*objects, **options)
            heard.extend(map(str, objects))

    def begun() -> bool:
        return _landed(raw) == 20 and any(line.startswith("started after") for line in heard)

    monkeypatch.setattr(run, "Console", Heard)
    with shared(spark, monkeypatch) as masters:
        done = typed(words, begun, signals)
    assert masters == ["local[7]"]
    output = " ".join(done.output.split())
    assert done.exit_code == status, done.output
    begin = f"starting Spark; on a busy machine that takes up to {service.START:.0f} s"
    assert all(output.count(words) == 1 for words in (begin, *said)), output
    assert len(_rows(raw)) == 20
