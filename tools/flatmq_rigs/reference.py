"""The extension with which the reference of the site is made; mkdocs.yml names this file."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import griffe

_ENTRY = re.compile(r"(\S.*?) {2,}(?=\S)")


def _split(line: str, column: int) -> tuple[str, str]:
    """Split the first line of an entry into its name and its text, at the gap or the column."""
    gap = _ENTRY.match(line)
    if gap:
        return gap[1], line[gap.end() :]
    if len(line) > column and line[column - 1] == " ":
        return line[:column].rstrip(), line[column:]
    return "", line


def _listed(lines: list[str]) -> list[str]:
    """Return a paragraph as a list if it has columns, otherwise as it is."""
    gap = _ENTRY.match(lines[0])
    if not gap:
        return lines
    items: list[str] = []
    for line in lines:
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
            continue
        name, text = _split(line, gap.end())
        if not name:
            return lines
        items.append(f"- `{name}`: {text}")
    return items


def as_markdown(docstring: str) -> str:
    """Return a docstring, without its common indentation, with lists instead of columns."""
    paragraphs = re.split(r"\n{2,}", docstring)
    return "\n\n".join("\n".join(_listed(each.split("\n"))) for each in paragraphs if each)


class Lists(griffe.Extension):
    """Show the columns of a docstring as a list."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object that was read."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


class Comments(griffe.Extension):
    """Show the comment behind an attribute as its docstring, which a board would have to load."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the comment of an attribute that was read, and the lines that continue it."""
        if attr.docstring or not attr.endlineno or not isinstance(attr.filepath, Path):
            return
        behind, *after = attr.lines_collection[attr.filepath][attr.endlineno - 1 :]
        continued = itertools.takewhile(lambda line: line.lstrip().startswith("#"), after)
        found = [line.partition("#")[2].strip() for line in (behind, *continued) if "#" in line]
        text = " ".join(found).rstrip(".,")
        if "  # " in behind:
            attr.docstring = griffe.Docstring(f"{text[:1].upper()}{text[1:]}.", parent=attr)


class Methods(griffe.Extension):
    """Show what a class states for type checkers: methods of other modules, and the arguments.

    A client loads most of its methods with their first call, and its constructor takes *args.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arguments: dict[str, griffe.Parameters] = {}

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Give a constructor that is there twice the arguments of the first."""
        if func.name == "__init__":
            func.parameters = self._arguments.setdefault(func.path, func.parameters)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace each attribute that is a function of another module with that function."""
        for name, member in list(cls.members.items()):
            module, _dot, function = str(getattr(member, "value", None)).partition(".")
            if member.is_attribute and function.isidentifier() and module in cls.module.imports:
                target = f"{cls.module.imports[module]}.{function}"
                cls.set_member(name, griffe.Alias(name, target, parent=cls))
