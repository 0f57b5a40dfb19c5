"""A run merges its tables in the background."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatmq_tools.pipeline import merge, merging
from flatmq_tools.pipeline.by_day import ByDay
from flatmq_tools.pipeline.merging import Merging
from pipeline import days

PATIENCE = 60.0


def _tables(folder: Path, delta: str | None = None) -> Any:
    """Return what a run knows of its tables."""
    return SimpleNamespace(by_day={"raw": ByDay(folder, "at")}, delta=delta)


def _looked(at_work: Merging, done: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        at_work.look()
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge.Merger.__init__, "__defaults__", (1 << 20, 3, 3, 600.0, None))


def test_the_tables_are_merged_without_a_wait(tmp_path: Path) -> None:
    days.prepared(tmp_path)
    lines: list[str] = []
    at_work = Merging(_tables(tmp_path), lines.append, every=0.0)
    _looked(at_work, lambda: len(days.folders(tmp_path, days.OLD)) == 1)
    at_work.close()
    assert lines == []


@pytest.mark.parametrize(("waits", "merges"), [(390.0, 1), (410.0, 2)])
def test_a_merge_takes_at_most_a_fifth_of_the_time(
    waits: float, merges: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.prepared(tmp_path)
    now = [1000.0]
    begun: list[float] = []

    def slow(_: merge.Merger) -> None:
        begun.append(now[0])
        now[0] += 100

    monkeypatch.setattr(merge.Merger, "merge", slow)
    monkeypatch.setattr(merging, "time", SimpleNamespace(monotonic=lambda: now[0]))
    at_work = Merging(_tables(tmp_path), print, every=60.0)
    now[0] += 61
    _looked(at_work, lambda: begun and at_work._working is None)
    now[0] += waits
    at_work.look()
    at_work.close()
    assert len(begun) == merges


def test_a_system_without_the_step_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.prepared(tmp_path)
    asked: list[Path] = []
    monkeypatch.setattr(merging, "can_merge", lambda folder: bool(asked.append(folder)))
    lines: list[str] = []
    at_work = Merging(_tables(tmp_path), lines.append, every=0.0)
    _looked(at_work, lambda: lines)
    for _ in range(20):
        at_work.look()
    at_work.close()
    assert len(asked) == len(lines) == 1 and "are not merged" in lines[0]
    assert len(days.folders(tmp_path, days.OLD)) == 3


def test_a_full_disk_comes_out_of_the_next_look_and_the_merge_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.prepared(tmp_path)
    write = merge._write  # the edge at which the disk is full
    full = [True]

    def failing(*arguments: Any) -> None:
        if full:
            full.clear()
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments)

    monkeypatch.setattr(merge, "_write", failing)
    at_work = Merging(_tables(tmp_path), print, every=0.0)
    with pytest.raises(OSError, match="No space left"):
        _looked(at_work, lambda: False)
    assert not list(tmp_path.glob(".merge-*"))
    _looked(at_work, lambda: len(days.folders(tmp_path, days.OLD)) == 1)
    at_work.close()
