"""The extension with which the reference of the site is made; mkdocs.yml names this file."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import griffe

# mkdocs loads this file by its path, from a checkout in which nothing is installed.
sys.path.insert(0, str(Path(__file__).parents[1]))
from flatmq_rigs.docstring_columns import as_markdown


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
