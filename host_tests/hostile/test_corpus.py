"""The cases that are kept pass on both interpreters, and find every client that has a fault."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import chance
import corpus
import mutants
import search
from conftest import ROOT
from flatmq_tools import interpreter

HERE = Path(__file__).parent
CASES = corpus.load()


@pytest.mark.parametrize("name", CASES)
def test_client_and_oracle_agree_about_a_kept_case(name: str) -> None:
    with search.watched():
        search.judged(CASES[name])


def test_micropython_does_the_same_and_holds_no_more() -> None:
    assert chance.compare(list(CASES.values())) == []


def test_what_differs_on_micropython_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance.replay, "outcome", lambda data: (0, 0, ""))
    case = next(iter(CASES.values()))
    assert case.hex() in chance.compare([case])[0]


def judge_all(library: Path) -> subprocess.CompletedProcess[str]:
    """Has another process judge the kept cases with the client that lies there."""
    return subprocess.run(
        [sys.executable, str(HERE / "corpus.py"), "--judge"],
        env=interpreter.environment(library, HERE, ROOT / "tools"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_client_with_a_fault_is_found(name: str, tmp_path: Path) -> None:
    done = judge_all(mutants.make(name, tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout


def test_the_client_without_a_fault_passes(tmp_path: Path) -> None:
    done = judge_all(ROOT / "lib")
    assert (done.returncode, done.stdout) == (0, f"{len(CASES)} cases agree\n"), done.stderr
