"""statements.md names modules and tests that there are, and leaves no statement out."""

import ast
import functools
import re

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


def test_what_a_row_names_is_there() -> None:
    for statement, modules, tests in ROWS:
        if modules == "-":
            assert tests
            assert "`" not in tests, f"{statement} does not apply: say why"
            continue
        for module in re.findall(r"`([\w.]+)`", modules):
            path = LIB.joinpath("flatmq", *module.removeprefix("flatmq").split("."))
            assert path.is_dir() or path.with_suffix(".py").is_file(), (statement, module)
        named = re.findall(r"`(\w+\.py)::(\w+)`", tests)
        assert named or tests == "`hostile`", statement
        for file, function in named:
            assert function in _functions(file), (statement, function)
