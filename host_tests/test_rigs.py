"""Test the front of the rigs, and the run of all proofs."""

import importlib.util
import subprocess
import sys

import pytest
from click.testing import CliRunner

from flatmq_rigs import proofs
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


@pytest.mark.parametrize(("words", "passed_on"), [
    ("faults --only x", "faults --only x"),
    ("broken-streams --seed 5", "tls.broken_streams --streams 4000 --clients 3 --seed 5"),
    ("fuzz-long", "hostile.chance --link tcp --version 4 --packets 10000000 --device 500000"),
    ("fuzz-long --version 5 --packets 80",
     "hostile.chance --link tcp --version 5 --packets 80 --device 4"),
])  # fmt: skip
def test_a_command_passes_its_arguments_on(
    words: str, passed_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[str]] = []
    monkeypatch.setattr("os.execve", lambda program, command, env: found.append(command))
    CliRunner().invoke(main, words.split(), catch_exceptions=False)
    assert found == [[sys.executable, "-m", *passed_on.split()]]
