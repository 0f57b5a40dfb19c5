"""The cases that are kept pass on both interpreters, and find every client that has a fault."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from flatmq_tools import interpreter
from hostile import chance, corpus, mutants, search

HERE = Path(__file__).parent
CASES = corpus.load()


@pytest.mark.parametrize("name", CASES)
def test_client_and_oracle_agree_about_a_kept_case(name: str) -> None:
    with search.watched():
        search.judged(CASES[name])


def test_micropython_does_the_same_and_holds_no_more() -> None:
    assert chance.compare(list(CASES.values())) == []


def test_what_differs_on_micropython_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance.replay, "outcome", lambda data, run: (0, 0, ""))
    case = next(iter(CASES.values()))
    assert case.hex() in chance.compare([case])[0]


def run(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Have another process go about it with the client that lies there."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=interpreter.environment(library, HERE.parent, ROOT / "tools"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def judge_all(library: Path) -> subprocess.CompletedProcess[str]:
    """Have the kept cases judged."""
    return run(library, "-m", "hostile.corpus", "--judge")


@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_a_client_with_a_fault_is_found(name: str, tmp_path: Path) -> None:
    done = judge_all(mutants.make(name, tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WRONG" in done.stdout


def test_the_client_without_a_fault_passes(tmp_path: Path) -> None:
    done = judge_all(ROOT / "lib")
    assert (done.returncode, done.stdout) == (0, f"{len(CASES)} cases agree\n"), done.stderr


def guided(library: Path, kept: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start the guided fuzzer. Where there is none for this Python, it has to say so."""
    done = run(library, "-m", "hostile.guided", "--kept", str(kept), *arguments)
    if importlib.util.find_spec("atheris") is None:
        assert done.returncode == 1
        assert "make fuzz-long" in done.stderr
        pytest.xfail("atheris has no wheel for this Python")
    return done


def test_the_guided_fuzzer_has_the_coverage_of_client_and_oracle(tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.write_bytes(next(iter(CASES.values())))
    done = guided(ROOT / "lib", tmp_path, "--replay", str(case))
    seen = set(re.findall(r"^INFO: Instrumenting ([\w.]+)$", done.stderr, re.MULTILINE))
    client = {f"flatmq.{name}" for name in ("client", "reader", "router", "session", "wire")}
    assert client | {"hostile.oracle", "hostile.strict"} <= seen
    assert {name for name in seen if name.startswith("hostile.")} == {
        "hostile.oracle",
        "hostile.strict",
    }


def test_the_guided_fuzzer_keeps_what_is_new(tmp_path: Path) -> None:
    done = guided(ROOT / "lib", tmp_path, "--seconds", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("nothing found\n")
    assert len(list((tmp_path / "corpus").iterdir())) >= len(set(CASES.values()))


def test_the_guided_fuzzer_shows_what_it_finds_again(tmp_path: Path) -> None:
    broken = mutants.make("a handler that raised is passed over", tmp_path)
    done = guided(broken, tmp_path, "--seconds", "100")
    assert done.returncode == 1, done.stdout + done.stderr
    (path,) = tmp_path.glob("found-*")
    assert f"--replay {path}" in done.stdout
    again = guided(broken, tmp_path, "--replay", str(path))
    assert "Disagreement" in again.stdout
    assert "Disagreement" not in guided(ROOT / "lib", tmp_path, "--replay", str(path)).stdout
