"""The page on MQTT 5 names modules and tests that there are, and leaves no statement out."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from conftest import HERE, LIB, ROOT

PAGE = (ROOT / "docs" / "mqtt5.md").read_text()
ROW = re.compile(r"^\| \[MQTT-([\d.]+-\d+)\] \| [^|]+ \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE)

# How many normative statements each section of the standard has (its appendix B), and those that
# are about servers alone.
SECTIONS = {
    "1.5.4": (3, ()),
    "1.5.5": (1, ()),
    "1.5.7": (1, ()),
    "2.1.3": (1, ()),
    "2.2.1": (6, (1, 4)),
    "2.2.2": (1, ()),
    "3.1.0": (2, ()),
    "3.1.2": (30, (3, 5, 6, 7, 8, 10, 14, 15, 22, *range(24, 30))),
    "3.1.3": (12, (*range(5, 11),)),
    "3.2.0": (2, (1,)),
    "3.2.2": (22, (2, 3, *range(6, 11), 12, 13, 16, 19, 20, 22)),
    "3.3.1": (13, (*range(5, 14),)),
    "3.3.2": (20, (3, 4, 5, 6, 11, 12, *range(15, 19), 20)),
    "3.3.4": (10, (*range(2, 6), 9, 10)),
    "3.4.2": (3, ()),
    "3.5.2": (3, ()),
    "3.6.1": (1, ()),
    "3.6.2": (3, ()),
    "3.7.2": (3, ()),
    "3.8.1": (1, ()),
    "3.8.3": (5, (3,)),
    "3.10.1": (1, ()),
    "3.10.3": (2, ()),
    "3.14.1": (1, ()),
    "3.14.2": (4, (2,)),
    "3.14.4": (2, ()),  # and 3, about servers
    "3.15.1": (1, ()),
    "3.15.2": (3, ()),
    "4.1.0": (1, ()),
    "4.2.0": (1, ()),
    "4.3.1": (1, ()),
    "4.3.2": (5, ()),
    "4.3.3": (13, ()),
    "4.4.0": (2, ()),
    "4.5.0": (2, (1,)),
    "4.6.0": (4, ()),
    "4.7.0": (1, ()),
    "4.7.1": (2, ()),
    "4.7.3": (3, ()),
    "4.8.2": (2, ()),
    "4.9.0": (3, ()),
    "4.12.0": (7, (1, 2, 4, 6)),
    "4.12.1": (2, ()),
    "4.13.2": (1, ()),
}


@functools.cache
def _functions(file: str) -> set[str]:
    tree = ast.parse((HERE / "v5" / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_statement_is_left_out() -> None:
    wanted = [
        f"{section}-{number}"
        for section, (count, servers) in SECTIONS.items()
        for number in range(1, count + 1)
        if number not in servers
    ]
    assert [statement for statement, _, _ in ROWS] == wanted
    assert len(ROWS) == PAGE.count("\n| [MQTT-")


@pytest.mark.parametrize(("statement", "modules", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_what_a_row_names_is_there(statement: str, modules: str, tests: str) -> None:
    if modules == "-":
        assert tests
        assert "`" not in tests, "a statement that does not apply says why"
        return
    for module in re.findall(r"`(\w+)`", modules):
        assert (LIB / "flatmq" / f"{module}.py").is_file(), module
    named = re.findall(r"`(\w+\.py)::(\w+)`", tests)
    assert named
    for file, function in named:
        assert function in _functions(file)
