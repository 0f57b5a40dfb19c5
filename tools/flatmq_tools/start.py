"""Start the command `flatmq`, also where the packages that it needs are missing."""

from __future__ import annotations

import sys


def missing(module: str, extra: str) -> str:
    """Return the text of an error: which module is missing, and which extra has it."""
    return f"the module {module.partition('.')[0]} is missing: pip install 'flatmq[{extra}]'"


def main() -> None:
    """Run the command `flatmq`. Exit with one line if a package of `flatmq[tools]` is missing."""
    try:
        from .cli import main as command
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith("flatmq"):
            raise
        sys.exit(f"Error: {missing(error.name, 'tools')}")
    command()
