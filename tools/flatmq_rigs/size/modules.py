"""The client's modules, in the order in which a board loads them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

INIT = "__init__"


def names(package: Path, without: Iterable[str] = ()) -> list[str]:
    """Return the package's modules, sorted."""
    return sorted({source.stem for source in package.glob("*.py")} - set(without))


def functions(source: Path) -> int:
    """Count the functions and methods of a module."""
    return sum(
        isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(source.read_text()))
    )


def _imports(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The modules of its own package that a module loads when it is loaded itself."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            if node.module:
                yield node.module
            else:
                yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.If):
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                yield from _imports([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _imports([*node.body, *node.orelse, *node.finalbody])


def in_order(package: Path, wanted: Iterable[str]) -> list[str]:
    """Return these modules, each after those that it imports at its top."""
    left = dict.fromkeys(sorted(wanted, key=lambda name: (name != INIT, name)))
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in left:
            return
        del left[name]
        for needed in _imports(ast.parse((package / f"{name}.py").read_text()).body):
            visit(needed)
        order.append(name)

    for name in list(left):
        visit(name)
    return order
