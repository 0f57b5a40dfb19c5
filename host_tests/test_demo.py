"""`flatmq demo` as a user runs it: what it shows, and its exit status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BROKERS, LIB, ROOT, SharedBrokers
from flatmq_tools import demo, interpreter

DEADLINE = 120  # seconds


def _demo(readings: int, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flatmq_tools.cli", "demo", "--readings", str(readings)]
    return subprocess.run(
        command,
        env={**interpreter.environment(LIB, ROOT / "tools"), "COLUMNS": "200", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_every_message_is_shown_and_counted() -> None:
    done = _demo(8)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r'"n":(\d+),', done.stdout) == [str(n) for n in range(1, 9)]
    assert "MicroPython with a heap of 64 KB" in done.stdout
    assert re.search(r"lost +0\b", done.stdout)
    assert re.search(r"allocated per publish +0 bytes", done.stdout), done.stdout
    before, after = re.findall(r"heap \w+ +([\d,]+) bytes in use", done.stdout)
    assert before == after


def test_with_a_broker_of_ones_own(shared_brokers: SharedBrokers) -> None:
    broker = shared_brokers.get("mosquitto", "shared")
    done = _demo(3, BROKER=broker.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"the external broker at {broker.address}" in done.stdout


def test_a_broker_that_is_not_there_is_one_line() -> None:
    done = _demo(3, BROKER="127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["Error: no broker answers at 127.0.0.1:1"]


def test_without_an_interpreter_the_same_sketch_runs_on_cpython(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interpreter, "find", lambda: None)
    assert demo.main(3) == 0
    shown = capsys.readouterr().out
    assert "CPython" in shown
    assert "no MicroPython interpreter" in shown


@pytest.mark.parametrize("kind", list(BROKERS))
def test_a_lost_message_fails_the_demo(
    kind: str, shared_brokers: SharedBrokers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sketch that leaves out one number: the demo must notice."""
    source = (demo.SKETCH / "main.py").read_text()
    lossy = source.replace("    put(number, 13)\n", "    put(number if number != 2 else 3, 13)\n")
    assert lossy != source
    (tmp_path / "main.py").write_text(lossy)
    (tmp_path / "sensor.py").write_text((demo.SKETCH / "sensor.py").read_text())
    monkeypatch.setattr(demo, "SKETCH", tmp_path)
    monkeypatch.setattr(demo, "DRAIN", 0.2)
    monkeypatch.setitem(os.environ, "BROKER", shared_brokers.get(kind, "shared").address)
    assert demo.main(4) == 1
