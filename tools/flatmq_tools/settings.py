"""What a board is told: boards/settings.json, or the example beside it, and --set on top."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "boards"
OWN = "settings.json"  # never committed
EXAMPLE = "settings.example.json"  # has every key


class SettingsError(ValueError):
    """The text says which file or which --set, and what is wrong with it."""


def load(overrides: Iterable[str] = (), folder: Path = FOLDER) -> dict[str, Any]:
    """The settings, tables within a table; {} where there are neither file nor overrides.

    overrides: "wifi.ssid=home": the value as JSON where it is some, else as text. Only a key of
    the example may be set, which finds slips.
    """
    example = _read(folder / EXAMPLE)
    own = _read(folder / OWN)
    settings = example if own is None else own
    settings = {} if settings is None else settings
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise SettingsError(f"--set {override}: must be KEY=VALUE, as in wifi.ssid=home")
        if example is not None and key not in _keys(example):
            known = ", ".join(_keys(example))
            raise SettingsError(f"--set {override}: no such setting; there are {known}")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        *tables, last = key.split(".")
        place = settings
        for name in tables:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise SettingsError(f"--set {override}: {name} is no table")
        place[last] = value
    return settings


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SettingsError(f"{file}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{file}: must be an object, {{...}}")
    return found


def _keys(table: dict[str, Any], prefix: str = "") -> list[str]:
    """Every key that has a value, with its tables before it."""
    found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _keys(value, f"{prefix}{key}.")
        else:
            found.append(prefix + key)
    return found
