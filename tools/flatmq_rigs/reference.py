"""The extension with which the reference of the site is made; mkdocs.yml names this file."""

from __future__ import annotations

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
