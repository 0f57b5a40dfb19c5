"""statements.md names modules and tests that there are, and leaves no statement out."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from conftest import HERE, LIB

PAGE = (HERE / "v5" / "statements.md").read_text()
ROW = re.compile(r"^\| \[MQTT-([\d.]+-\d+)\] \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE)

# The normative statements of the standard (its appendix B) that do not concern servers alone.
STATEMENTS = 137


@functools.cache
def _functions(file: str) -> set[str]:
    tree = ast.parse((HERE / "v5" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_statement_is_left_out() -> None:
    assert len({statement for statement, _, _ in ROWS}) == STATEMENTS == PAGE.count("\n| [MQTT-")


@pytest.mark.parametrize(("statement", "modules", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_what_a_row_names_is_there(statement: str, modules: str, tests: str) -> None:
    if modules == "-":
        assert tests
        assert "`" not in tests, "a statement that does not apply says why"
        return
    for module in re.findall(r"`([\w.]+)`", modules):
        path = LIB.joinpath("flatmq", *module.removeprefix("flatmq").split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), module
    named = re.findall(r"`(\w+\.py)::(\w+)`", tests)
    assert named
    for file, function in named:
        assert function in _functions(file)
