"""Options that several commands share, each with one meaning and one help text."""

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
"""The path of an existing file."""


def board_name(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    """Check the name of a board, which is a level of its topics."""
    if name and set(name) & set("+#/"):
        raise click.BadParameter(f"must be the name of a board without + # and /, not {name!r}")
    return name


USER = click.option(
    "--user",
    help=f"User name at the broker; the password is read from {PASSWORD} in the environment.",
)


def tls(command: _Command) -> _Command:
    """Add --tls, --ca, --cert, --key and --pin, passed on as `trust`: None without TLS."""

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


CA = click.option(
    "--ca",
    type=FILE,
    help="Certificate of the authority that signed the broker's certificate, PEM or DER.  "
    "[default: the authorities that this machine trusts]",
)

_TLS = (
    click.option(
        "--tls",
        is_flag=True,
        help="Connect with TLS and verify the broker; the default port becomes 8883. Implied by "
        "--ca, --cert, --key and --pin.",
    ),
    CA,
    click.option("--cert", type=FILE, help="Client certificate to show to the broker, PEM."),
    click.option(
        "--key",
        type=FILE,
        help="Private key of the client certificate, PEM.  [default: in the file of --cert]",
    ),
    click.option(
        "--pin",
        multiple=True,
        metavar="BASE64",
        help="SHA-256 of the broker's public key, as `flatmq tls` prints it; repeatable. Without "
        "--ca nothing else is checked.",
    ),
)


def seconds(
    allowed: click.FloatRange, default: float | None = None
) -> Callable[[_Command], _Command]:
    """Add --seconds; without a default the command runs until Ctrl-C."""
    until = "" if default is not None else "  [default: run until Ctrl-C]"
    return click.option(
        "--seconds",
        type=allowed,
        default=default,
        show_default=default is not None,
        help=f"Stop after this many seconds.{until}",
    )


def seed(default: int | None = None) -> Callable[[_Command], _Command]:
    """Add --seed; without a default each run is different."""
    return click.option(
        "--seed",
        type=int,
        default=default,
        show_default=default is not None,
        help="Random seed; the same seed repeats the run."
        + ("" if default is not None else "  [default: a new one each time]"),
    )


def devices(default: int) -> Callable[[_Command], _Command]:
    """Add --devices."""
    return click.option(
        "--devices",
        type=click.IntRange(1, 60_000),
        default=default,
        show_default=True,
        help="Number of boards to simulate.",
    )


SKETCH = click.option(
    "--sketch",
    help="Sketch to install: a folder with a main.py, or the name of one in boards/.  [default: "
    "the one in the board's file]",
)
SETTINGS = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Setting of the board, such as wifi.ssid=home; repeatable.",
)


def slots(command: _Command) -> _Command:
    """Add --ota-key, --ota-group and --ota-version, passed on as `slots`: None without a key."""

    @functools.wraps(command)
    def slotted(
        *args: Any,
        ota_key: Path | None,
        ota_group: tuple[str, ...],
        ota_version: str,
        **given: Any,
    ) -> Any:
        found = None
        if ota_key is not None:
            from .ota.package import Slots

            found = Slots(ota_key, ota_group, ota_version)
        elif ota_group:
            raise click.UsageError("--ota-group needs --ota-key")
        return command(*args, slots=found, **given)

    for option in reversed(_SLOTS):
        option(slotted)
    return cast(_Command, slotted)


_SLOTS = (
    click.option(
        "--ota-key",
        type=FILE,
        help="Public key from `flatmq ota keygen`: the board can be updated over MQTT.",
    ),
    click.option(
        "--ota-group",
        multiple=True,
        metavar="NAME",
        help="Group that the board belongs to, for updates; repeatable.",
    ),
    click.option(
        "--ota-version",
        default="1",
        show_default=True,
        help="Name of this version, as the board reports it.",
    ),
)


def filters(default: str) -> Callable[[_Command], _Command]:
    """Add --filter, passed on as `filters`."""
    return click.option(
        "--filter",
        "filters",
        multiple=True,
        default=(default,),
        show_default=True,
        help="Topic filter to subscribe to; repeatable.",
    )


def master(envvar: str | None = None) -> Callable[[_Command], _Command]:
    """Add --master."""
    return click.option(
        "--master",
        default="local[2]",
        show_default=True,
        envvar=envvar,
        help="Spark master, as for spark-submit.",
    )


def pairs(name: str, into: str, help: str) -> Callable[[_Command], _Command]:
    """Add a repeatable option NAME=VALUE, passed on as a dict named `into`."""
    return click.option(
        name, into, multiple=True, metavar="NAME=VALUE", callback=_pairs, help=help
    )


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    for one in given:
        if "=" not in one:
            raise click.BadParameter(f"must be NAME=VALUE, not {one!r}")
    return dict(one.split("=", 1) for one in given)
