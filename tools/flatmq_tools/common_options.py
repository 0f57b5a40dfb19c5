"""Options that several commands have: the same words mean the same in each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .password import PASSWORD

_Command = TypeVar("_Command", bound=Callable[..., Any])
Decorator = Callable[[_Command], _Command]

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that is there."""

USER = click.option("--user", help=f"The password is taken from {PASSWORD} in the environment.")


def tls(command: _Command) -> _Command:
    """--tls and --ca, as `tls` and `ca`: see `trust.context`."""
    flag = "To the broker, verified; the port is 8883 unless told."
    authorities = "Certificates to verify the broker by, in place of this machine's."
    command = click.option("--ca", type=FILE, help=authorities)(command)
    return click.option("--tls", is_flag=True, help=flag)(command)


def results(help: str, default: Path | None = None) -> Callable[[_Command], _Command]:
    """--results: a document that a command writes its section of."""
    return click.option(
        "--results",
        type=click.Path(dir_okay=False, path_type=Path),
        default=default,
        show_default=default is not None,
        help=help,
    )


RESULTS = results("The file that the tables go to.", Path("docs/results.md"))


def filters(default: str) -> Callable[[_Command], _Command]:
    """--filter, as `filters`."""
    return click.option(
        "--filter",
        "filters",
        multiple=True,
        default=(default,),
        show_default=True,
        help="A topic filter; repeatable.",
    )


def master(help: str, envvar: str | None = None) -> Callable[[_Command], _Command]:
    """--master: which Spark."""
    return click.option(
        "--master", default="local[2]", show_default=True, envvar=envvar, help=help
    )


def pairs(name: str, into: str, help: str) -> Callable[[_Command], _Command]:
    """An option NAME=VALUE that may be repeated, as a dict `into`."""
    return click.option(
        name, into, multiple=True, metavar="NAME=VALUE", callback=_pairs, help=help
    )


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    for one in given:
        if "=" not in one:
            raise click.BadParameter(f"{one}: NAME=VALUE is wanted")
    return dict(one.split("=", 1) for one in given)


def settings(help: str) -> Callable[[_Command], _Command]:
    """--set, as `overrides`: settings of a board."""
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=help)
