"""The settings of a board: boards/settings.json, or the example beside it, and --set."""

from __future__ import annotations

import contextlib
import copy
import json
import runpy
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import folders
from .errors import ToolError

FOLDER = folders.find("boards")
OWN = "settings.json"  # never committed
EXAMPLE = "settings.example.json"  # has every key
FILES = ("ca", "cert", "key")  # of broker.tls: they name files of this machine


def load(overrides: Iterable[str] = (), folder: Path = FOLDER) -> dict[str, Any]:
    """The settings, tables within a table; {} where there are neither file nor overrides.

    overrides: "wifi.ssid=home": the value as JSON where it is some, else as text; always as text
    where the example has one, so that a password may be all digits. Only a key of the example may
    be set, which finds slips. A file that settings.json names is relative to its folder, one of
    an override to the current folder.
    """
    example = _read(folder / EXAMPLE)
    own = _read(folder / OWN)
    settings = copy.deepcopy(example or {}) if own is None else _rooted(own, folder)
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise ToolError(f"--set {override}: must be KEY=VALUE, as in wifi.ssid=home")
        value: Any = text
        with contextlib.suppress(json.JSONDecodeError):
            value = json.loads(text)
        if example is not None:
            known = values(example)
            if key not in known:
                raise ToolError(f"--set {override}: no such setting; there are {', '.join(known)}")
            value = _like(known[key], value, text, override)
        *tables, last = key.split(".")
        place = settings
        for name in tables:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ToolError(f"--set {override}: {name} is not a table")
        place[last] = value
    _check_address(settings.get("broker"))
    return settings


def _check_address(broker: Any) -> None:
    """Raise ToolError for an address with which a board could not make its client."""
    if not isinstance(broker, dict):
        return
    host, port = broker.get("host"), broker.get("port")
    if isinstance(host, str) and ("/" in host or host.count(":") == 1):
        host = host.rpartition("@")[2]  # without the password of a URL
        raise ToolError(f"broker.host must have neither scheme nor port, not {host!r}")
    if isinstance(port, int) and not 0 < port < 65536:
        raise ToolError(f"broker.port must be 1 to 65535, not {port}")


def tls(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the table broker.tls, {} if there is none: a sketch names what is no table."""
    broker = settings.get("broker")
    table = broker.get("tls") if isinstance(broker, dict) else None
    return table if isinstance(table, dict) else {}


def _rooted(own: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The settings, with the whole path of each file."""
    table = tls(own)
    for key in FILES:
        if table.get(key):
            table[key] = str(folder / Path(str(table[key])).expanduser())
    return own


def is_own(folder: Path = FOLDER) -> bool:
    """Return whether the user has settings of their own, and not just the example."""
    return (folder / OWN).is_file()


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{file}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ToolError(f"{file}: must be an object, {{...}}")
    return found


def values(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every key that has a value, with its tables before it."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= values(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def remarks(ready: dict[str, Any], network: str) -> list[str]:
    """Return a remark if a sketch that reads these settings would end at once, by its own check.

    A sketch may also do without them.
    """
    rules, parts = (
        runpy.run_path(str(FOLDER / "shared" / f)) for f in ("settings.py", "parts.py")
    )
    needed = ("wifi.ssid", "broker.host") if network == "wifi" else ()
    with tempfile.TemporaryDirectory(prefix="flatmq-settings-") as folder:
        file = Path(folder, OWN)
        file.write_text(json.dumps(ready), encoding="utf-8")
        try:
            names = rules["load"](*needed, path=str(file))["device"]["parts"]
            if names:
                parts["named"](names)
        except ValueError as error:
            why = str(error).removeprefix(f"{file}: ")
            return [f"A sketch of boards/ does not start with these settings: {why}"]
    return []


def _like(example: Any, value: Any, text: str, override: str) -> Any:
    """The value as the example's kind. Raises ToolError if it is of another."""
    if isinstance(example, str):
        return value if isinstance(value, str) else text
    if example is not None and type(value) is not type(example):
        raise ToolError(f"--set {override}: must be like {json.dumps(example)}")
    return value
