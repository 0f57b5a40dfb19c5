"""Paths in a document: the keys on the way to a value, with "/" between them.

    ENERGY/Power   rxInfo/*/rssi   switch:*/apower   **/temperature

`*` stands for any characters of one key, or for any index of an array; the key `**` stands for any
number of keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

Path = tuple[str, ...]
ABSENT: Any = object()
"""What `at` returns if there is nothing at a path."""


class PathError(ValueError):
    """The path breaks a rule; the text says which."""


def exact(text: str) -> Path:
    """A path without wildcards. Raises PathError."""
    if "*" in text:
        raise PathError("* is not allowed here: the path of one value is needed")
    return _keys(text)


def _keys(text: str) -> Path:
    keys = tuple(text.split("/"))
    if not all(keys):
        raise PathError("must be keys with / between them, none of them empty")
    return keys


def at(document: Any, path: Path) -> Any:
    """The value at a path, or ABSENT."""
    for key in path:
        if isinstance(document, dict):
            document = document.get(key, ABSENT)
        elif isinstance(document, list):
            inside = key.isascii() and key.isdigit() and int(key[:10]) < len(document)
            document = document[int(key)] if inside and len(key) <= 10 else ABSENT
        else:
            return ABSENT
    return document


class PathPattern:
    """A path that may have wildcards."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._keys = tuple(None if key == "**" else _glob(key) for key in _keys(text))

    def match(self, path: Path) -> bool:
        """Return whether the pattern stands for this path."""
        return _matches(self._keys, path)

    def covers(self, path: Path) -> bool:
        """Return whether the pattern stands for this path or for a container that holds it."""
        return _matches((*self._keys, None), path)

    def __reduce__(self) -> tuple[Any, ...]:
        return PathPattern, (self.text,)


@lru_cache(1024)
def _glob(key: str) -> Callable[[str], Any]:
    return re.compile(r"[\s\S]*".join(map(re.escape, key.split("*")))).fullmatch


def _matches(keys: Sequence[Callable[[str], Any] | None], path: Path) -> bool:
    """Compare from the left; a `**` is extended by one key when the rest does not match."""
    key = place = 0
    deep = -1  # the last `**`, and the place at which what follows it was tried
    tried = 0
    while place < len(path):
        if key < len(keys) and keys[key] is None:
            deep, tried = key, place
            key += 1
        elif key < len(keys) and (glob := keys[key]) is not None and glob(path[place]):
            key += 1
            place += 1
        elif deep >= 0:
            tried += 1
            key, place = deep + 1, tried
        else:
            return False
    return all(rest is None for rest in keys[key:])
