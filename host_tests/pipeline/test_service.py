"""`flatmq pipeline run` and `ingest` as services.

They start on a busy machine, end soon after a signal, pause while a disk is full, and say in a
line what has happened.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from flatmq import Client
from flatmq_rigs.pipeline import crash
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import log
from pipeline.mqtt import PATIENCE, broker, publish

START = 600.0  # s, as `run` says
LIMIT = 20.0  # s
TOPIC = "dev/a/telemetry"


def _pack(n: int) -> bytes:
    return b'[{"bn":"a/","n":"boot","v":7},{"n":"seq","v":%d},{"n":"t","v":1}]' % n


class Command:
    """A command of `flatmq pipeline`, and what it prints."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flatmq_tools.cli", "pipeline", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def said(self, text: str) -> int:
        """Return how many lines contain this."""
        return sum(text in line for line in self.lines)

    def until(self, ready: object, seconds: float = PATIENCE) -> None:
        assert callable(ready)
        end = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail("\n".join(["it did not happen", *self.lines]))
            time.sleep(0.1)

    def end(self, seconds: float) -> int:
        """Wait for the end of the process, and of what it prints."""
        status = self.process.wait(seconds)
        self._reader.join(PATIENCE)
        return status

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in crash.family(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def fleet(there: Broker) -> Iterator[None]:
    """Publish, and do not stop."""
    over = threading.Event()

    def run() -> None:
        client = Client(b"fleet", there.host, there.port, tx_size=1 << 16, inflight=100)
        client.connect(10_000)
        n = 0
        begun = time.monotonic()
        while not over.is_set():
            due = 500 * (time.monotonic() - begun)
            while n < due and client.publish(TOPIC, _pack(n + 1), 1) is not None:
                n += 1
            client.poll(20)
        client.disconnect()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that do nothing but work, for as long as this lasts."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "import signal; signal.alarm(900)\nwhile True: 1"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def offsets(out: Path) -> list[int]:
    """Of the messages in the table raw."""
    batches = sorted((out / "raw").glob("day=*/batch=*"))
    return [
        int(n) for folder in batches for n in ds.dataset(folder).to_table(["offset"])["offset"]
        .to_pylist()
    ]  # fmt: skip


def test_it_starts_on_a_busy_machine_and_ends_soon_on_a_live_fleet(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with broker() as there, fleet(there), busy(2):
        begun = time.monotonic()
        with Command("run", out, "--broker", there.address, "--trigger", "0.2") as run:
            run.until(lambda: run.said(f"on a busy machine that takes up to {START:.0f} s"))
            run.until(lambda: run.said("started after"), START)
            assert time.monotonic() - begun < START
            run.until(lambda: any((out / "measurements").glob("day=*/batch=*")), START)
            before = len(run.lines)
            run.process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
            assert run.end(PATIENCE) == 0, run.lines
            took = time.monotonic() - asked
            assert took < LIMIT, run.lines
    assert run.said("ending, within 20 s") == 1
    assert "Traceback" not in (said := "\n".join(run.lines[before:])), said
    # Whatever is not in raw is in the log, for the next run.
    done = offsets(out)
    assert sorted(done) == list(range(len(done)))
    first, after = log.bounds(out / "log")
    assert first <= len(done) <= after


def test_java_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        broker() as there,
        fleet(there),
        Command("run", out, "--broker", there.address, "--trigger", "0.2") as run,
    ):
        run.until(lambda: any((out / "measurements").glob("day=*/batch=*")), START)
        before = len(run.lines)
        (java,) = [
            pid
            for pid in crash.family(run.process.pid)
            if crash.command(pid).partition(" ")[0].endswith("java")
        ]
        os.kill(java, signal.SIGKILL)
        assert run.end(PATIENCE) == 1
    said = [line for line in run.lines[before:] if "started after" not in line]
    assert len(said) == 1, said
    assert re.match("Error: Spark's Java process was ended by SIGKILL", said[0])
    assert "start the run again, and it goes on where this one was" in said[0]


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


def test_run_pauses_while_the_disk_is_full(tmp_path: Path, small: Path) -> None:
    out = small / "out"
    with (
        broker() as there,
        Command(
            "run",
            out,
            "--broker",
            there.address,
            "--trigger",
            "0.2",
            "--job",
            "raw",
            "--job",
            "measurements",
        ) as run,
    ):
        run.until((out / "log" / "subscribed.json").exists, START)
        publish(there, [(TOPIC, _pack(n)) for n in range(1, 101)])
        run.until(lambda: len(offsets(out)) == 100, START)
        filler = fill(small)
        publish(there, [(TOPIC, _pack(n)) for n in range(101, 5001)])
        run.until(lambda: run.said("paused, as a disk is full"), START)
        filler.unlink()
        run.until(lambda: run.said("the disk has room again: going on"), START)
        run.until(lambda: len(offsets(out)) >= 5000, START)
        run.process.send_signal(signal.SIGTERM)
        assert run.end(PATIENCE) == 0, run.lines
    assert run.said("paused") == run.said("going on") == 1, run.lines
    found = offsets(out)
    assert sorted(found) == list(range(len(found)))
    payloads = ds.dataset(sorted((out / "raw").glob("day=*/batch=*/*.parquet"))).to_table(
        ["payload"]
    )
    assert set(payloads["payload"].to_pylist()) == {_pack(n) for n in range(1, 5001)}


def test_ingest_pauses_while_the_disk_is_full(tmp_path: Path, small: Path) -> None:
    target = small / "landed"
    options = ["--filter", "dev/#", "--log", small / "log", "--every", "0.2"]

    def landed() -> set[bytes]:
        files = sorted(target.glob("*.parquet"))
        if not files:
            return set()
        return set(ds.dataset(files).to_table(["payload"])["payload"].to_pylist())

    with broker() as there, Command("ingest", there.address, target, *options) as ingest:
        ingest.until((small / "log" / "subscribed.json").exists)
        publish(there, [(TOPIC, _pack(n)) for n in range(1, 101)])
        ingest.until(lambda: len(landed()) == 100)
        filler = fill(small)
        publish(there, [(TOPIC, _pack(n)) for n in range(101, 5001)])
        ingest.until(lambda: ingest.said("paused"))
        time.sleep(6)  # longer than it takes to try again
        filler.unlink()
        ingest.until(lambda: ingest.said("going on"))
        ingest.until(lambda: len(landed()) == 5000)
        ingest.process.send_signal(signal.SIGTERM)
        assert ingest.end(PATIENCE) == 0, ingest.lines
    assert ingest.said("paused") == ingest.said("going on") == 1, ingest.lines
    assert not ingest.said("nothing lands"), ingest.lines
    assert landed() == {_pack(n) for n in range(1, 5001)}


_LIBC = ctypes.CDLL(None, use_errno=True)
_CAPBSET_DROP = 24
_DAC_OVERRIDE = 1


def _by_the_modes() -> None:
    """Have the modes of files count for root, too."""
    if os.geteuid() == 0:
        assert _LIBC.prctl(_CAPBSET_DROP, _DAC_OVERRIDE, 0, 0, 0) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "{}/ours/out"], "OUT must be a folder to write to: {}/ours/out: Permission"),
        (["run", "{}/file/out"], "OUT must be a folder to write to: {}/file/out: Not a directory"),
        (["run", "{}/free", "--landed", "{}/none"], "--landed must be the folder of an ingest: "
         "{}/none: no such folder"),
        (["ingest", "127.0.0.1", "{}/free", "--log", "{}/ours/log"], "{}/ours/log: Permission"),
        (["ingest", "127.0.0.1", "{}/ours/landed", "--log", "{}/free/log"],
         "nothing can land in {}/ours/landed: "),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_said_in_a_line(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "free").mkdir()
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours").chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-m", "flatmq_tools.cli", "pipeline",
         *(argument.format(tmp_path) for argument in arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),},
        preexec_fn=_by_the_modes, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ") and said.format(tmp_path) in line
