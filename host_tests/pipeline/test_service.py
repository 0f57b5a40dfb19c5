"""`flatmq pipeline run` and `ingest` as services.

They pause while a disk is full, and say in a line what has happened.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from flatmq_tools.pipeline.processes import Command
from flatmq_tools.pipeline.run import Plan
from pipeline.messages import count, land_boards, read
from pipeline.mqtt import PATIENCE, broker, publish, until
from pipeline.runs import shared, started, typed

TOPIC = "dev/a/telemetry"
MANY = 2000  # messages are fewer


def _pack(n: int) -> bytes:
    return b'[{"bn":"a/","n":"boot","v":7},{"n":"seq","v":%d},{"n":"t","v":1}]' % n


SENT = {_pack(n) for n in range(1, MANY)}


@contextlib.contextmanager
def command(folder: Path, *arguments: str | Path) -> Iterator[Command]:
    """A command of `flatmq pipeline`, which ends with the block."""
    process = Command(folder / f"{arguments[0]}.txt", *arguments)
    try:
        yield process
    finally:
        process.stop()


def offsets(out: Path) -> list[int]:
    """Of the messages in the table raw."""
    return [int(row["offset"]) for row in read(out / "raw", "offset")]


def test_java_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    land_boards(out, 20, tmp_path / "log")
    with subprocess.Popen(["sleep", "600"]) as java, shared(spark, monkeypatch):
        monkeypatch.setattr(SparkContext._gateway, "proc", java)

        def kill() -> bool:
            if count(out / "measurements"):
                java.kill()
            return False

        done = typed(["run", out, "--job", "measurements"], kill)
    assert done.exit_code == 1
    *_, line = done.output.splitlines()
    assert line.startswith("Error: Spark's Java process was ended by SIGKILL")
    assert line.endswith("start the run again, and it goes on where this one was")
    assert "Traceback" not in done.output


# A run that takes no notice of a signal.
DEAF = """
import sys, time
from flatmq_tools.pipeline import service

service._HARD = service.REST = 0.5
with service.Ending(lambda text: print(text, flush=True)) as ending:
    if sys.argv[1] != "starting":
        ending.started()
    if sys.argv[1] == "over":
        ending.limit()
    print("here", flush=True)
    while True:
        time.sleep(1)
"""


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("started", "with a batch under way: the next run does it again\n"),
        ("over", "with a batch under way: the next run does it again\n"),
        ("starting", "ended before Spark had started: nothing was begun\n"),
    ],
)
def test_a_run_that_does_not_end_is_ended(state: str, said: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEAF, state], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == "here\n"
            if state != "over":
                process.terminate()
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert output.endswith(said)
    assert process.returncode == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "flatmq-test", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("to mount a small disk takes root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Fill it up to the last byte; return the file that does."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return filler


def test_run_pauses_while_the_disk_is_full(
    spark: SparkSession, tmp_path: Path, small: Path
) -> None:
    out, said = small / "out", list[str]()
    with broker() as there:
        plan = Plan(out, jobs=["measurements"])
        with started(spark, plan, there, said.append) as running:

            def wait(ready: Callable[[], bool]) -> None:
                until(lambda: running.look() or ready())

            publish(there, [(TOPIC, _pack(n)) for n in range(1, 101)])
            wait(lambda: len(offsets(out)) == 100)
            filler = fill(small)
            publish(there, [(TOPIC, _pack(n)) for n in range(101, MANY)])
            wait(lambda: "paused, as a disk is full" in str(said))
            filler.unlink()
            wait(lambda: str(said).count("going on") == str(said).count("paused"))
            wait(lambda: count(out / "measurements") >= MANY - 1)
            running.finish()
    assert 1 <= str(said).count("paused") == str(said).count("going on") <= 2, said
    found = offsets(out)
    assert sorted(found) == list(range(len(found)))
    assert _payloads(out) == SENT
    assert sorted(row["seq"] for row in read(out / "measurements")) == list(range(1, MANY))


def _payloads(out: Path) -> set[bytes]:
    return {row["payload"] for row in read(out / "raw", "payload")}


def test_ingest_pauses_while_the_disk_is_full(tmp_path: Path, small: Path) -> None:
    target = small / "out"
    options = ["--filter", "dev/#", "--log", small / "log", "--every", "0.2"]

    def landed() -> set[bytes]:
        return _payloads(target)

    with (
        broker() as there,
        command(tmp_path, "ingest", there.address, target, *options) as ingest,
    ):
        ingest.until((small / "log" / "subscribed.json").exists, PATIENCE)
        publish(there, [(TOPIC, _pack(n)) for n in range(1, 101)])
        ingest.until(lambda: len(landed()) == 100, PATIENCE)
        filler = fill(small)
        publish(there, [(TOPIC, _pack(n)) for n in range(101, MANY)])
        ingest.until(lambda: "paused" in ingest.words(), PATIENCE)
        time.sleep(6)  # longer than it takes to try again
        filler.unlink()
        ingest.until(lambda: "going on" in ingest.words(), PATIENCE)
        ingest.until(lambda: landed() == SENT, PATIENCE)
        ingest.end(PATIENCE)
    assert ingest.words().count("paused") == ingest.words().count("going on") == 1
    assert "nothing lands" not in ingest.words()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "{}/file/out"], "OUT must be a folder to write to: {}/file/out: Not a directory"),
        (["ingest", "127.0.0.1", "{}/free", "--log", "{}/file/log"],
         "{}/file/log: Not a directory"),
        (["ingest", "127.0.0.1", "{}/file/landed", "--log", "{}/free/log"],
         "nothing can land in {}/file/landed: "),
        (["ingest", "127.0.0.1", "nowhere://x", "--log", "{}/free/log"],
         "nothing can land in nowhere://x"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_said_in_a_line(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "free").mkdir()
    done = typed([argument.format(tmp_path) for argument in arguments])
    (line,) = done.output.splitlines()
    assert done.exit_code == 1
    assert line.startswith("Error: ") and said.format(tmp_path) in line
