"""The tables health, devices and gaps of the state are those that all messages make."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flatmq_tools.pipeline.fleet import boots
from flatmq_tools.pipeline.fleet.health import Health
from flatmq_tools.pipeline.fleet.table import Table
from pipeline import test_health
from pipeline.test_fleet import Fleet, Pack
from pipeline.test_health import DELAYS, FAULTS, NEAR, SILENCES, Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

import pytest


def pack(e: Event) -> Pack:
    """The row of an event; test_health begins at another time."""
    if e.seq is None:
        return Pack(e.at, e.device, status=e.status[:32])
    if e.seq == -1:
        mark = {"retain": e.status == "retain", "dup": e.status == "dup"}
        return Pack(e.at, e.device, delay=e.delay, **mark)
    return Pack(e.at, e.device, e.boot, e.seq, e.delay)


def written(spark: SparkSession, folder: Path) -> dict[str, pa.Table]:
    made = Health(Table(spark, folder / "state", boots.STATE, boots.BY))
    tables = made.boots(), made.devices(), made.gaps()
    return {n: t.toArrow() for n, t in zip(test_health.NAMES, tables, strict=True)}


def run(spark: SparkSession, folder: Path, parts: Sequence[Sequence[Event]]) -> None:
    fleet = Fleet(spark, folder)
    for part in parts:
        fleet.land([pack(event) for event in part])
        fleet.run()


def compare(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, pa.Table], wanted: dict[str, pa.Table],
    silences: bool = True,
) -> None:  # fmt: skip
    monkeypatch.setattr(test_health, "written", lambda folder: found)
    test_health.compare(Path(), wanted, silences)


def test_a_day_in_any_batches_is_as_from_scratch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(5)
    events = test_health.fleet(drawn, 10, 0.9)
    run(spark, tmp_path, test_health.split(drawn, events, 3))
    wanted = test_health.by_spark(spark, events)
    for name in ("lost", "unheard", "duplicates", "reordered", "reboots"):
        assert sum(wanted["health"][name].to_pylist()) > 0, name
    compare(monkeypatch, written(spark, tmp_path), wanted)


def test_closed_boots_stay_right(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over days, in which boots are closed and opened again by packs that come late."""
    drawn = random.Random(6)
    events = test_health.fleet(drawn, 6, 9)
    run(spark, tmp_path, test_health.split(drawn, events, 4))
    wanted = test_health.by_spark(spark, events)
    compare(monkeypatch, written(spark, tmp_path), wanted, silences=False)


@pytest.fixture(scope="module")
def cases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cases")
    parts = test_health.split(random.Random(1), test_health.cases(), 4)
    run(spark, folder, parts)
    return written(spark, folder)


def test_every_fault_of_a_boot_is_found(cases: dict[str, pa.Table]) -> None:
    test_health.test_every_fault_of_a_boot_is_found(cases)
    assert FAULTS


def test_delays_and_silences(cases: dict[str, pa.Table]) -> None:
    assert DELAYS and SILENCES and NEAR
    test_health.test_delays_need_a_time_of_the_board(cases)
    test_health.test_status_and_silence(cases)
