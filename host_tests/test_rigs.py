"""Test the front of the rigs, and the run of all proofs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flatmq_rigs import emulated, proofs
from flatmq_rigs.__main__ import _IN_TESTS, main


def test_the_front_loads_neither_the_client_nor_spark() -> None:
    code = (
        "import sys, flatmq_rigs.__main__;"
        "print({'flatmq', 'rich', 'pyspark', 'pyarrow', 'paho'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == "set()\n"


def test_the_commands_in_the_tests_and_of_the_proofs_are_there() -> None:
    for module, _ in _IN_TESTS.values():
        assert importlib.util.find_spec(module.split()[0])
    for proof in proofs.PROOFS.values():
        rig, *words = proof.command.split()
        if rig == "flatmq_rigs":
            known = {option for each in main.commands[words[0]].params for option in each.opts}
            options = {word for word in words[1:] if word.startswith("--")}
            assert options <= known or words[0] in _IN_TESTS


@pytest.mark.parametrize(
    ("words", "passed_on"),
    [
        ("faults --only x", "faults --only x"),
        ("broken-streams --seed 5", "tls.broken_streams --streams 4000 --clients 3 --seed 5"),
        (
            "fuzz-long",
            "hostile.chance --link tcp --version 4 --packets 10000000 --device 500000",
        ),
        (
            "fuzz-long --link tls --minutes 5",
            "hostile.chance --link tls --version 4 --packets 20000 --device 500 --minutes 5",
        ),
        (
            "fuzz-long --version 5 --packets 80",
            "hostile.chance --link tcp --version 5 --packets 80 --device 4",
        ),
    ],
)
def test_a_command_passes_its_arguments_on(
    words: str, passed_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []
    monkeypatch.setattr("os.execve", lambda program, command, env: found.append(command))
    CliRunner().invoke(main, words.split(), catch_exceptions=False)
    assert found == [[sys.executable, "-m", *passed_on.split()]]


def test_all_proofs_run_and_a_failed_one_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(emulated.VARIABLE, raising=False)
    monkeypatch.setattr(proofs, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    known = {
        "broken": proofs.Proof("one module", "no_such_module"),
        "whole": proofs.Proof("its help", "json.tool --help", writes=False),
        "options": proofs.Proof("an option that it lacks", "json.tool"),
        "board": proofs.Proof("a firmware", "no_such_module", emulates="pico_w"),
        "home": proofs.Proof("a Python", "lacks"),
    }
    (tmp_path / "lacks.py").write_text(
        "import os, sys\nprint('no Python')\nsys.exit(os.EX_UNAVAILABLE)"
    )
    monkeypatch.setattr(proofs, "PROOFS", known)
    document = tmp_path / "results.md"
    assert proofs.main(list(known), document) == 1
    rows = [line for line in document.read_text().splitlines() if line.startswith("|")]
    assert [row.split(" | ")[3] for row in rows[2:]] == [
        "FAILED (1)", "ok", "FAILED (2)", "not run: FLATMQ_FIRMWARE is not set",
        "not run: no Python",
    ]  # fmt: skip
    assert "5 proofs, 2 failed" in document.read_text()
    assert "No module named no_such_module" in (tmp_path / "logs" / "broken.log").read_text()
    assert "logs/broken.log" in capsys.readouterr().out
    known["options"] = proofs.Proof("an option that it has", "json.tool --help", writes=False)
    assert proofs.main(["options"], document) == 0
    text = document.read_text()
    assert ("5 proofs, 1 failed" in text, "an option that it has" in text) == (True, True)
