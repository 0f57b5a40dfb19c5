"""A board runs a program of its flash, whatever has become of the record there."""

import json
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import slots
from flatmq import crash
from flatmq_tools.ota import package
from unit.fake_link import raises

OLD = {"run": "a", "version": "1", "counter": 1}
NEW = {"run": "b", "version": "2", "counter": 2, "state": "new", "old": OLD}


def _boot(
    folder: Path, patch: pytest.MonkeyPatch, record: dict[str, Any], *there: str, reset: Any = None
) -> str:
    """Boot with a record and some archives. Return which one is mounted."""
    mounted: list[str] = []
    vfs = SimpleNamespace(mount=lambda archive, path: mounted.append(archive._path[-1]))
    machine = SimpleNamespace(reset_cause=lambda: 1, WDT=lambda timeout: None, reset=reset)
    patch.setitem(sys.modules, "vfs", vfs)  # type: ignore[arg-type]
    patch.setitem(sys.modules, "machine", machine)  # type: ignore[arg-type]
    patch.setattr(sys, "path", [*sys.path])
    patch.setattr(slots, "known", None)
    (folder / "slot").write_text(json.dumps(record))
    for name in there:
        (folder / name).write_bytes(package.archive({"main.mpy": b"x"}))
    slots.boot(str(folder))
    (name,) = mounted
    return name


@pytest.mark.parametrize(
    ("changes", "there", "runs"),
    [
        ({"state": "good"}, "a", "a"),
        ({"state": "good", "run": "c", "old": None}, "b", "b"),
        ({}, "ab", "a"),  # the tries of the new one cannot be counted
        ({"tries": slots.TRIES}, "ab", "a"),
        ({"state": "good", "crashes": slots.CRASHES}, "ab", "a"),
    ],
)
def test_a_flash_that_takes_nothing(
    changes: dict[str, Any], there: str, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is full, or broken. If boot.py raised, the board would wait at its prompt."""

    def full(*_: Any) -> None:
        raise OSError(28)

    with monkeypatch.context() as patch:
        patch.setattr(slots, "store", full)
        assert _boot(tmp_path, monkeypatch, {**NEW, **changes}, *there) == runs
    # What proves itself is what runs, once the flash takes that.
    record = slots.load(str(tmp_path))
    assert (record["run"], record["state"], record["failed"]["version"]) == (runs, "good", "2")
    slots.store(record, str(tmp_path))
    assert (slots.known, slots.load(str(tmp_path))) == (None, record)


@pytest.mark.parametrize("record", [{}, {"run": "b"}, {**OLD, "state": "new"}])
@pytest.mark.parametrize("there", "ab")
def test_a_record_without_what_it_names(
    there: str, record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record may be lost, too. Then the other archive runs."""
    assert _boot(tmp_path, monkeypatch, record, there) == there
    assert slots.load(str(tmp_path))["run"] == there


class Unreadable:
    """A record whose next `times` readings fail."""

    def __init__(self, patch: pytest.MonkeyPatch, times: float) -> None:
        self.left = times
        self._right = json.load
        patch.setattr(slots.json, "load", self)

    def __call__(self, file: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise OSError(5)
        return self._right(file)


def test_a_record_that_cannot_be_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Unreadable(monkeypatch, 2)
    assert _boot(tmp_path, monkeypatch, {**OLD, "run": "b"}, "a", "b") == "b"
    assert slots.load(str(tmp_path))["version"] == "1"


def test_a_record_that_cannot_be_read_after_the_boot_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an update would replace the archive that runs."""
    _boot(tmp_path, monkeypatch, {**OLD, "run": "b"}, "a", "b")
    Unreadable(monkeypatch, math.inf)
    assert slots.load(str(tmp_path))["run"] == "b"


@pytest.mark.parametrize("there", "ab")
def test_a_record_that_cannot_be_read_is_not_replaced(
    there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any program runs, even one that crashes, and a later boot reads the record."""
    unreadable = Unreadable(monkeypatch, math.inf)
    record = {**OLD, "run": "b", "counter": 7}
    assert _boot(tmp_path, monkeypatch, record, there) == there
    assert slots.load(str(tmp_path))["run"] == there
    monkeypatch.setattr(slots, "time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(sys, "print_exception", print, raising=False)
    monkeypatch.setattr(crash, "keep", lambda error: None)
    monkeypatch.setattr(crash, "version", "")
    slots._crashed(ValueError(), str(tmp_path))
    assert json.loads((tmp_path / "slot").read_text()) == record
    # But an update replaces it.
    update = {**slots.load(str(tmp_path)), "version": "9"}
    slots.store(update, str(tmp_path))
    unreadable.left = 0
    assert _boot(tmp_path, monkeypatch, slots.load(str(tmp_path)), there) == there
    slots._crashed(ValueError(), str(tmp_path))
    assert slots.load(str(tmp_path))["crashes"] == 1


def test_an_archive_that_cannot_be_read_once_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, errors = slots.Archive, [OSError(5), OSError(5)]

    def read(path: str) -> slots.Archive:
        if errors:
            raise errors.pop()
        return right(path)

    monkeypatch.setattr(slots, "Archive", read)
    assert _boot(tmp_path, monkeypatch, {**NEW, "state": "good"}, "a", "b") == "b"


def test_a_flash_without_archives_is_read_again_after_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its prompt a board would wait for somebody. The record stays."""

    class Reset(Exception):
        pass

    naps: list[float] = []
    monkeypatch.setattr(slots, "time", SimpleNamespace(sleep=naps.append, gmtime=time.gmtime))
    with pytest.raises(Reset):
        _boot(tmp_path, monkeypatch, {**NEW, "state": "good"}, reset=raises(Reset()))
    assert naps == [slots.PAUSE]
    assert json.loads((tmp_path / "slot").read_text())["run"] == "b"


def test_an_exception_that_cannot_be_printed_resets_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MicroPython raises what its `__repr__` does."""

    class Reset(Exception):
        pass

    def reset() -> None:
        raise Reset

    def unprintable(error: BaseException) -> None:
        if isinstance(error, ZeroDivisionError):
            raise RuntimeError

    (tmp_path / "main_of_this_test.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(slots, "time", SimpleNamespace(sleep=lambda seconds: None))
    monkeypatch.setattr(sys, "print_exception", unprintable, raising=False)
    monkeypatch.setitem(sys.modules, "machine", SimpleNamespace(reset=reset))  # type: ignore[arg-type]
    with pytest.raises(Reset):
        slots.run(str(tmp_path), "main_of_this_test")
