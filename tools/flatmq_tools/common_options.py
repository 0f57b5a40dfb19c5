"""Options that several commands have: the same words mean the same in each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from .password import PASSWORD

_Command = TypeVar("_Command", bound=Callable[..., Any])
Decorator = Callable[[_Command], _Command]

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that is there."""

USER = click.option("--user", help=f"The password is taken from {PASSWORD} in the environment.")


def tls(command: _Command) -> _Command:
    """--tls, --ca, --cert, --key and --pin, as `trust`: a `trust.Trust`, or None without TLS."""

    @functools.wraps(command)
    def trusting(
        *args: Any,
        tls: bool,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        pin: tuple[str, ...],
        **given: Any,
    ) -> Any:
        from . import trust

        try:
            found = trust.given(tls, ca, cert, key, pin)
        except trust.TrustError as error:
            raise click.ClickException(str(error)) from error
        return command(*args, trust=found, **given)

    for option in reversed(_TLS):
        option(trusting)
    return cast(_Command, trusting)


_TLS = (
    click.option(
        "--tls",
        is_flag=True,
        help="Connect with TLS and verify the broker; the default port is 8883 then. Each of the "
        "options below implies it.",
    ),
    click.option(
        "--ca",
        type=FILE,
        help="The authority that signed the broker's certificate, PEM or DER.  [default: those "
        "of this machine]",
    ),
    click.option("--cert", type=FILE, help="A certificate to show to the broker, PEM."),
    click.option("--key", type=FILE, help="Its private key, PEM.  [default: the file of --cert]"),
    click.option(
        "--pin",
        multiple=True,
        metavar="BASE64",
        help="SHA-256 of the broker's public key, from `flatmq tls`; repeatable. Without --ca "
        "nothing else is checked.",
    ),
)


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
