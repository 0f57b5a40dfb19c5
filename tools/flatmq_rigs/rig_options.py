"""Options that several rigs share, each with one help text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

STRICT = click.option("--strict", is_flag=True, help="Exit with status 1 if a target is missed.")


def results() -> Callable[[_Command], _Command]:
    """Add --results: the Markdown document in which a command rewrites its own section."""
    return click.option(
        "--results",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Markdown file in which to rewrite the section with these results.",
    )


def messages(default: int, low: int, high: int | None = None) -> Callable[[_Command], _Command]:
    """Add --messages."""
    return click.option(
        "--messages",
        type=click.IntRange(low, high),
        default=default,
        show_default=True,
        help="Number of messages to send.",
    )


def rounds(default: int) -> Callable[[_Command], _Command]:
    """Add --rounds."""
    return click.option(
        "--rounds",
        type=click.IntRange(1, 100),
        default=default,
        show_default=True,
        help="Number of times to measure everything; the tables show medians.",
    )


def link(*links: str) -> Callable[[_Command], _Command]:
    """Add --link, with the transports that a command knows."""
    return click.option(
        "--link",
        type=click.Choice(links),
        default="tcp",
        show_default=True,
        help="Transport that flatmq connects over.",
    )
