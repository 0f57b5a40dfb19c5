"""Options that several rigs share, each with one help text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])

STRICT = click.option("--strict", is_flag=True, help="Exit with status 1 if a target is missed.")
SEED = click.option(
    "--seed",
    type=int,
    help="Random seed; the same seed repeats the run.  [default: a new one each time]",
)


def results(default: Path | None = None) -> Callable[[_Command], _Command]:
    """Add --results: the Markdown document in which a command rewrites its own section."""
    return click.option(
        "--results",
        type=click.Path(dir_okay=False, path_type=Path),
        default=default,
        show_default=default is not None,
        help="Markdown file in which to rewrite the section with these results.",
    )


def number(
    name: str, default: float | None, low: float, text: str, high: float | None = None
) -> Callable[[_Command], _Command]:
    """Add an option that is a number: a whole one, unless its default has a fraction."""
    kind: Any = click.FloatRange if isinstance(default, float) else click.IntRange
    return click.option(
        name, type=kind(low, high), default=default, show_default=default is not None, help=text
    )


def messages(default: int, low: int, high: int | None = None) -> Callable[[_Command], _Command]:
    return number("--messages", default, low, "Number of messages to send.", high)


def rounds(default: int) -> Callable[[_Command], _Command]:
    text = "Number of times to measure everything; the tables show medians."
    return number("--rounds", default, 1, text, 100)


def link(*links: str) -> Callable[[_Command], _Command]:
    """Add --link, with the transports that a command knows."""
    return click.option(
        "--link",
        type=click.Choice(links),
        default="tcp",
        show_default=True,
        help="Transport that flatmq connects over.",
    )
