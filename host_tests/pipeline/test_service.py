"""`flatmq pipeline run` and `ingest` as services, which pause while a disk is full."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from flatmq_rigs.pipeline.bench.messages import pack
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline.processes import Command, environment
from flatmq_tools.pipeline.run import Plan
from pipeline.messages import count, land_boards, read
from pipeline.mqtt import PATIENCE, broker, publish, until
from pipeline.runs import shared, started, typed

TOPIC = "dev/a/telemetry"
MANY = 2000  # messages are fewer


SENT = {pack(b"a", n) for n in range(1, MANY)}


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


def paused(
    disk: Path, out: Path, there: Broker, said: Callable[[], str],
    wait: Callable[[Callable[[], object]], object], rest: float = 0.0,
) -> None:  # fmt: skip
    """Publish to what writes to `out`, and fill its disk for a while; all of it lands."""

    def payloads() -> list[bytes]:
        return [row["payload"] for row in read(out / "raw", "payload")]

    publish(there, [(TOPIC, pack(b"a", n)) for n in range(1, 101)])
    wait(lambda: len(payloads()) == 100)
    filler = fill(disk)
    publish(there, [(TOPIC, pack(b"a", n)) for n in range(101, MANY)])
    wait(lambda: "paused" in said())
    time.sleep(rest)
    filler.unlink()
    wait(lambda: said().count("going on") == said().count("paused"))
    wait(lambda: {*payloads()} == SENT)


def test_run_pauses_while_the_disk_is_full(
    spark: SparkSession, tmp_path: Path, small: Path
) -> None:
    out, said = small / "out", list[str]()
    with broker() as there, started(spark, Plan(out, jobs=["measurements"]), there) as running:
        running.say = said.append
        paused(
            small, out, there, lambda: str(said),
            lambda ready: until(lambda: running.look() or ready()),
        )  # fmt: skip
        until(lambda: running.look() or count(out / "measurements") >= MANY - 1)
        running.finish()
    assert 1 <= str(said).count("paused") == str(said).count("going on") <= 2, said
    found = [row["offset"] for row in read(out / "raw", "offset")]
    assert sorted(found) == list(range(len(found)))
    assert sorted(row["seq"] for row in read(out / "measurements")) == list(range(1, MANY))


def test_ingest_pauses_while_the_disk_is_full(tmp_path: Path, small: Path) -> None:
    out, log = small / "out", small / "log"
    options = ["--filter", "dev/#", "--log", log, "--every", "0.2"]
    with broker() as there, contextlib.ExitStack() as stack:
        ingest = Command(tmp_path / "ingest.txt", "ingest", there.address, out, *options)
        stack.callback(ingest.stop)
        ingest.until((log / "subscribed.json").exists, PATIENCE)
        # It rests for longer than it takes to try again.
        paused(small, out, there, ingest.words, lambda ready: ingest.until(ready, PATIENCE), 6.0)
        ingest.end(PATIENCE)
    assert ingest.words().count("paused") == ingest.words().count("going on") == 1
    assert "nothing lands" not in ingest.words()


@pytest.mark.parametrize("where", ["a full disk", "a reader that has gone"])
def test_ingest_goes_on_if_nobody_can_read_what_it_says(where: str, tmp_path: Path) -> None:
    if where == "a full disk":
        if not Path("/dev/full").exists():
            pytest.skip("no /dev/full")
        end = os.open("/dev/full", os.O_WRONLY)
    else:
        read_end, end = os.pipe()
        os.close(read_end)
    out, log = tmp_path / "out", tmp_path / "log"
    with broker() as there:
        words = ["ingest", there.address, str(out), "--log", str(log), "--every", "0.2"]
        process = subprocess.Popen(
            [sys.executable, "-m", "flatmq_tools.cli", "pipeline", *words],
            stdout=subprocess.DEVNULL, stderr=end, env=environment(),
        )  # fmt: skip
        os.close(end)
        try:
            until(lambda: process.poll() is not None or (log / "subscribed.json").exists())
            assert process.poll() is None
            publish(there, [(TOPIC, pack(b"a", 1))])
            until(lambda: process.poll() is not None or count(out / "raw"))
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


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
