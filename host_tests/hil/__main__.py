"""`python -m hil`: every step with the board at $BOARD_PORT, and a table of its figures."""

from __future__ import annotations

import sys

from . import command
from .suite import Suite, compiled


def main(arguments: list[str] | None = None) -> int:
    """Run them; 1 when one fails, 2 when they could not be run."""
    return command.run("The tests with a board were", Suite, arguments, compiled)


if __name__ == "__main__":
    sys.exit(main())
