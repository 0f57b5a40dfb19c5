"""`flatmq pipeline run` into an S3: each message once, also after a kill; and what it refuses."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import sizes
from flatmq_rigs.pipeline.bench.messages import payload, topic
from flatmq_rigs.pipeline.object_store import BUCKET, store
from flatmq_rigs.pipeline.processes import Command, alive, family, kill
from flatmq_tools.broker import Broker
from flatmq_tools.pipeline import cli
from flatmq_tools.pipeline.run import Plan, Run
from pipeline.mqtt import PATIENCE, broker, publish, until
from pipeline.typed_here import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUT = f"s3://{BUCKET}/fleet-1"
JOBS = ("raw", "measurements", "health")
HALF = 1500 if sizes.whole() else 400  # messages


def _rows(table: str) -> int:
    name = f"{OUT}/{table}"
    return DeltaTable(name).count() if DeltaTable.is_deltatable(name) else 0


def _column(table: str, *names: str) -> list[tuple[object, ...]]:
    found = DeltaTable(f"{OUT}/{table}").to_pyarrow_table(columns=[*names])
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


@contextlib.contextmanager
def _a_process(folder: Path, there: Broker) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """`flatmq pipeline run`, which is killed with the block; yield what waits for it."""
    run = Command(
        folder / "run.txt", "run", OUT, "--delta", "--state", folder / "state",
        "--broker", there.address, "--filter", "dev/#", "--trigger", "0.2",
        "--health-every", "3600", *(word for job in JOBS for word in ("--job", job)),
    )  # fmt: skip
    try:
        yield lambda ready: run.until(ready, PATIENCE)
        run.end(PATIENCE)
    finally:
        ours = family(run.pid)
        try:
            kill(run.pid)
            run.process.wait()
            until(lambda: not any(map(alive, ours)))
        finally:
            kill(*ours)


@contextlib.contextmanager
def _here(
    spark: SparkSession, folder: Path, there: Broker
) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """The same in this process, with the session that all tests share."""
    source = {"brokerUrl": there.address, "topic": "dev/#"}
    plan = Plan(folder / "state", source, url=OUT, delta=True, jobs=JOBS, trigger=0.3)
    running = Run(spark, plan)
    try:
        yield lambda ready: until(lambda: running.look() or ready())
        running.finish()
    finally:
        running.stop()


class _Killed(Exception):
    pass


def test_each_message_is_there_once_also_after_a_kill(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed = tmp_path / "state" / "log" / "subscribed.json"
    sent = [(topic(i).decode(), payload(i)) for i in range(2 * HALF)]
    start = partial(_a_process if sizes.whole() else partial(_here, spark), tmp_path)
    with store() as environment, shared(spark, monkeypatch, environment), broker() as there:
        with contextlib.suppress(_Killed), start(there) as wait:
            wait(subscribed.exists)
            publish(there, sent[:HALF])
            wait(lambda: _rows("raw") > 0)
            raise _Killed
        publish(there, sent[HALF:])
        with start(there) as wait:
            wait(lambda: _rows("measurements") >= 2 * HALF)
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
