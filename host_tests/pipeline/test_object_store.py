"""`flatmq pipeline run` into an S3: each message once, also after a kill; and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from flatmq_rigs.pipeline import crash
from flatmq_rigs.pipeline.bench.messages import payload, topic
from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import cli
from pipeline.mqtt import broker, publish, until

OUT = f"s3://{BUCKET}/fleet-1"
JOBS = ("raw", "measurements", "health")
HALF = 1500  # messages
_STARTED = "started after"  # what the run says once all queries are at work


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    with store() as there:
        for name, value in there.items():
            monkeypatch.setenv(name, value)
        yield there


class _Run:
    """`flatmq pipeline run`, which writes what it says to a file."""

    def __init__(self, folder: Path, there: Broker, name: str) -> None:
        self.said = folder / f"{name}.txt"
        with self.said.open("ab") as out:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "flatmq_tools.cli", "pipeline", "run", OUT, "--delta",
                    "--state", str(folder / "state"), "--broker", there.address,
                    "--filter", "dev/#", "--trigger", "0.2", "--health-every", "3600",
                    *(word for job in JOBS for word in ("--job", job)),
                    "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )  # fmt: skip

    def until_there_are(self, rows: int, table: str) -> None:
        """Wait for Spark to start, and then as long as more rows come."""
        until(lambda: self._runs() and _STARTED in self.said.read_text())
        there = _rows(table)
        while there < rows:
            before = there
            until(lambda before=before: self._runs() and _rows(table) > before)  # type: ignore[misc]
            there = _rows(table)

    def _runs(self) -> bool:
        assert self.process.poll() is None, self.said.read_text()
        return True

    def kill(self) -> None:
        family = crash.family(self.process.pid)
        self.process.kill()
        self.process.wait()
        until(lambda: not any(map(crash.alive, family)))

    def stop(self) -> None:
        for pid in reversed(crash.family(self.process.pid)):
            if crash.alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def _rows(table: str) -> int:
    name = f"{OUT}/{table}"
    return DeltaTable(name).count() if DeltaTable.is_deltatable(name) else 0


def _column(table: str, *names: str) -> list[tuple[object, ...]]:
    found = DeltaTable(f"{OUT}/{table}").to_pyarrow_table(columns=[*names])
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def test_each_message_is_there_once_also_after_a_kill(
    environment: dict[str, str], tmp_path: Path
) -> None:
    subscribed = tmp_path / "state" / "log" / "subscribed.json"
    sent = [(topic(i).decode(), payload(i)) for i in range(2 * HALF)]
    with broker() as there:
        run = _Run(tmp_path, there, "first")
        try:
            until(lambda: subscribed.exists() or run.process.poll() is not None)
            publish(there, sent[:HALF])
            run.until_there_are(1, "raw")
            run.kill()
            publish(there, sent[HALF:])
            run = _Run(tmp_path, there, "second")
            run.until_there_are(2 * HALF, "measurements")
            run.process.send_signal(signal.SIGTERM)
            assert run.process.wait(120) == 0, run.said.read_text()
        finally:
            run.stop()
    raw = Counter(_column("raw", "offset"))
    assert not [offset for offset, count in raw.items() if count > 1]
    assert {one for (one,) in _column("raw", "payload")} == {one for _, one in sent}
    measured = Counter(_column("measurements", "device", "seq"))
    assert len(measured) == 2 * HALF and set(measured.values()) == {1}
    assert _rows("health") == _rows("devices") == 200
    # By day of arrival; and nothing of the tables is on this machine.
    assert DeltaTable(f"{OUT}/raw").metadata().partition_columns == ["day"]
    assert not (tmp_path / "state" / "raw").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["s3://b/x"], "OUT must be a folder unless --delta is given, not s3://b/x"),
        (["s3://b/x", "--delta"], "needs --state: a local folder"),
        (["out", "--state", "s"], "--state needs an OUT that is a URL"),
        (
            ["ftp://b/x", "--delta", "--state", "s"],
            "URL that deltalake can reach, not ftp://b/x: Unknown scheme",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.pipeline, ["run", *arguments], env={"COLUMNS": "500"})
    assert result.exit_code and said in " ".join(result.output.split()), result.output
