"""Find the English in Python and Markdown files: docstrings, comments, messages and prose."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$|<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\([^)]*\)|<?https?://[^\s>)]+")
_WORDS = re.compile(r"[A-Za-z]{2,} +[A-Za-z]+ +[A-Za-z]{2,}")
_DIRECTIVE = re.compile(r"#\s*(?:type:|noqa|fmt:|pragma|!|ruff:|mypy:)")

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Text:
    """A piece of English and the line of its file on which it begins."""

    path: Path
    line: int
    kind: str
    text: str

    def line_of(self, offset: int) -> int:
        """Return the line of the file that holds this offset of the text."""
        return self.line + self.text.count("\n", 0, offset)


def _without(pattern: re.Pattern[str], text: str) -> str:
    """Blank what matches, keeping the line breaks so that line numbers stay right."""
    return pattern.sub(lambda match: "_" + "\n" * match[0].count("\n"), text)


def prose(text: str) -> str:
    """Blank `code` in a text: identifiers are not English."""
    return _without(_CODE, text)


def docstrings(path: Path, tree: ast.Module) -> Iterator[Text]:
    """Yield the docstring of the module and of each class and function in it."""
    for node in ast.walk(tree):
        if isinstance(node, _Documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            yield Text(path, first.lineno, "docstring", str(first.value.value))


def _comments(path: Path, source: str) -> Iterator[Text]:
    """Yield the comments; lines that follow each other are one, since a phrase may span them."""
    block: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line = token.start[0]
        if block and line != start + len(block):
            yield Text(path, start, "comment", "\n".join(block))
            block = []
        if not block:
            start = line
        block.append(token.string.lstrip("#").strip())
    if block:
        yield Text(path, start, "comment", "\n".join(block))


def _strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each string under a node, an f-string with `_` for its values."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else "_" for each in node.values)
        yield node.lineno, "".join(map(str, parts))
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _spoken(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes whose strings a person reads: errors, help, assertions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from node.exc.args
        elif isinstance(node, ast.Assert) and node.msg is not None:
            yield node.msg
        elif isinstance(node, ast.Call):
            yield from (each.value for each in node.keywords if each.arg == "help")


def _messages(path: Path, tree: ast.Module, everywhere: bool) -> Iterator[Text]:
    """Yield the strings that read as English: three words in a row.

    In a test, only those of errors, help and assertions: the others are payloads and fixtures.
    """
    seen: set[tuple[int, str]] = set()
    for node in [tree] if everywhere else _spoken(tree):
        for line, text in _strings(node):
            if _WORDS.search(text) and (line, text) not in seen:
                seen.add((line, text))
                yield Text(path, line, "string", text)


def of_python(path: Path, source: str, is_test: bool) -> Iterator[Text]:
    """Yield the English of a Python file."""
    tree = ast.parse(source)
    found = list(docstrings(path, tree))
    documented = {(each.line, each.text) for each in found}
    yield from found
    yield from _comments(path, source)
    for each in _messages(path, tree, not is_test):
        if (each.line, each.text) not in documented:
            yield each


def of_markdown(path: Path, source: str) -> Iterator[Text]:
    """Yield the prose of a Markdown file: all but its code, comments and addresses."""
    yield Text(path, 1, "prose", _without(_LINK, _without(_FENCE, source)))
