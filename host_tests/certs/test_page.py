"""docs/certificates.md keeps its word."""

from __future__ import annotations

import inspect
import re
import shlex

import pytest

from conftest import ROOT
from flatmq_tools import certificates, probe, settings
from flatmq_tools.cli import main as cli

PAGE = (ROOT / "docs" / "certificates.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 7


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_has_these_options(line: str) -> None:
    program, name, *arguments = shlex.split(line)
    assert program == "flatmq"
    known = {option for each in cli.commands[name].params for option in each.opts}
    assert {each for each in arguments if each.startswith("--")} <= known
    there = settings.values(settings.load())
    for key in re.findall(r"--set ([\w.]+)=", line):
        assert key in there


def test_the_texts_are_those_of_the_checks() -> None:
    sources = inspect.getsource(certificates) + inspect.getsource(probe)
    texts = re.sub(r'"\s*f?"', "", sources)
    table = PAGE.partition("## What the checks say")[2]
    rows = re.findall(r"^\| (\w[^|]+) \|", table, re.MULTILINE)[1:]
    assert len(rows) == 9
    for row in rows:
        for part in re.split(r" ?…|(?<=holds) N |, ", row):
            assert part in texts, part
