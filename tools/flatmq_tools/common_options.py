"""Types of options that several commands share, each with one meaning and one help text."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from .durations import DURATION
from .password import PASSWORD
from .typed import Reading

if TYPE_CHECKING:
    from .desk_client import Desk
    from .ota.package import Slots
    from .trust import Trust

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""The path of an existing file."""
OUTPUT = click.Path(dir_okay=False, path_type=Path)
"""The path of a file to write."""
FOLDER = click.Path(file_okay=False, path_type=Path)
"""The path of a folder, which may not exist."""
THERE = click.Path(exists=True, file_okay=False, path_type=Path)
"""The path of an existing folder."""


def _board_name(name: str) -> str:
    """Check the name of a board, which is a level of its topics."""
    from .ota.boards import is_board

    if not is_board(name):
        raise ValueError(f"must be the name of a board without + # and /, not {name[:80]!r}")
    return name


Broker = Annotated[str, {"metavar": "HOST[:PORT]"}]
Board = Annotated[str | None, Reading("text", _board_name)]
User = Annotated[
    str | None,
    f"User name at the broker; the password is read from {PASSWORD} in the environment.",
]
Ca = Annotated[
    Path | None,
    FILE,
    "Certificate of the authority that signed the broker's certificate, PEM or DER.  "
    "[default: the authorities that this machine trusts]",
]


def _tls(
    *,
    tls: Annotated[
        bool,
        "Connect with TLS and verify the broker; the default port becomes 8883. Implied by "
        "--ca, --cert, --key and --pin.",
    ] = False,
    ca: Ca = None,
    cert: Annotated[Path | None, FILE, "Client certificate to show to the broker, PEM."] = None,
    key: Annotated[
        Path | None,
        FILE,
        "Private key of the client certificate, PEM.  [default: in the file of --cert]",
    ] = None,
    pin: Annotated[
        tuple[str, ...],
        {"metavar": "BASE64"},
        "SHA-256 of the broker's public key, as `flatmq tls` prints it; repeatable. Without "
        "--ca nothing else is checked.",
    ] = (),
) -> "Trust | None":
    from . import trust

    return trust.given(tls, ca, cert, key, pin)


Tls = Annotated["Trust | None", _tls]
"""--tls, --ca, --cert, --key and --pin; None without TLS."""


def _desk(broker: Broker, *, user: User = None, trust: Tls) -> "Desk":
    from . import desk_client

    return desk_client.reached(broker, user, trust)


def check_reached(broker: str | None, user: str | None, trust: "Trust | None") -> None:
    """Refuse options of a connection to --broker where there is none."""
    if broker is None and (user is not None or trust is not None):
        raise click.UsageError("--user and the options of TLS need --broker")


Reached = Annotated["Desk", _desk]
"""The argument HOST[:PORT], --user and the options of TLS."""
Seconds = Annotated[float, "Stop after this time, such as 90s."]
Until = Annotated[
    float | None, DURATION, "Stop after this time, such as 90s.  [default: run until Ctrl-C]"
]
Seed = Annotated[int, "Random seed; the same seed repeats the run."]
NewSeed = Annotated[
    int | None, "Random seed; the same seed repeats the run.  [default: a new one each time]"
]
Devices = Annotated[int, click.IntRange(1, 60_000), "Number of boards to simulate."]
Sketch = Annotated[
    str | None,
    "Sketch to install: a folder with a main.py, or the name of one in boards/.  [default: "
    "the one in the board's file]",
]
Overrides = Annotated[
    tuple[str, ...],
    "--set",
    {"metavar": "KEY=VALUE"},
    "Setting of the board, such as wifi.ssid=home; repeatable.",
]


def _slots(
    *,
    ota_key: Annotated[
        Path | None,
        FILE,
        "Public key from `flatmq ota keygen`: the board can be updated over MQTT.",
    ] = None,
    ota_group: Annotated[
        tuple[str, ...],
        {"metavar": "NAME"},
        "Group that the board belongs to, for updates; repeatable.",
    ] = (),
    ota_version: Annotated[
        str | None, "Name of this version, as the board reports it.  [default: 1]"
    ] = None,
) -> "Slots | None":
    if ota_key is not None:
        from .ota.package import Slots

        return Slots(ota_key, ota_group, "1" if ota_version is None else ota_version)
    if ota_group or ota_version is not None:
        given = "--ota-group" if ota_group else "--ota-version"
        raise click.UsageError(f"{given} needs --ota-key")
    return None


OtaSlots = Annotated["Slots | None", _slots]
"""--ota-key, --ota-group and --ota-version; None without a key."""
Pairs = Mapping[str, str]
"""Options NAME=VALUE, as a dict."""
Filters = Annotated[tuple[str, ...], "--filter", "Topic filter to subscribe to; repeatable."]
Master = Annotated[str, "Spark master, as for spark-submit."]
