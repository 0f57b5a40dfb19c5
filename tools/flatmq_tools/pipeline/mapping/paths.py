"""Paths in a document: the keys on the way to a value, with "/" between them.

    ENERGY/Power   rxInfo/*/rssi   switch:*/apower   **/temperature

`*` stands for any characters of one key, or for any index of an array; the key `**` stands for any
number of keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_NAME = re.compile(r"\{([a-z][a-z0-9_]*)\}")
Path = tuple[str, ...]
_END = "\0"  # after each key of a path, as one text
_DEEP = r"(?:[^\0]*\0)*"
ABSENT: Any = object()
"""What `at` returns if there is nothing at a path."""


def exact(text: str) -> Path:
    """A path without wildcards. Raises ValueError, which says which rule it breaks."""
    if "*" in text:
        raise ValueError("* is not allowed here: the path of one value is needed")
    return _keys(text)


def _keys(text: str) -> Path:
    keys = tuple(text.split("/"))
    if not all(keys):
        raise ValueError("must be keys with / between them, none of them empty")
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
        self.used = False
        """Whether it has matched anything."""
        keys = (_DEEP if key == "**" else _glob(key) + _END for key in _keys(text))
        self._pattern = re.compile("".join(keys))

    def match(self, path: Path) -> bool:
        """Return whether the pattern stands for this path."""
        return self._noted(self._pattern.fullmatch(_joined(path)))

    def covers(self, path: Path) -> bool:
        """Return whether the pattern stands for this path or for a container that holds it."""
        return self._noted(self._pattern.match(_joined(path)))

    def _noted(self, found: object) -> bool:
        self.used = self.used or found is not None
        return found is not None

    def __reduce__(self) -> tuple[Any, ...]:
        return PathPattern, (self.text,)


class Parts:
    """The path of parts of a document. A key is a text with `*`, or a `{name}` for any key."""

    def __init__(self, text: str) -> None:
        self.text = text
        keys = [(_NAME.fullmatch(key), key) for key in _keys(text)]
        if any("**" in key or ("{" in key and name is None) for name, key in keys):
            raise ValueError("must be keys, * or {names} of the characters a-z, 0-9 and _, not **")
        self.names = [name[1] for name, _ in keys if name]
        """The names of its keys."""
        globs = (_glob("*" if name else key) for name, key in keys)
        self._keys = [
            (name and name[1], re.compile(glob))
            for (name, _), glob in zip(keys, globs, strict=True)
        ]

    def of(self, document: Any) -> list[tuple[dict[str, str], Any]]:
        """The parts, in the order of the document, and the keys that have names."""
        found: list[tuple[dict[str, str], Any]] = [({}, document)]
        for name, glob in self._keys:
            found = [
                ({**names, name: key} if name else names, value)
                for names, part in found for key, value in items(part) if glob.fullmatch(key)
            ]  # fmt: skip
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Parts, (self.text,)


def items(value: Any) -> Iterable[tuple[str, Any]]:
    """The keys and values of a container, of which an array has indexes as keys."""
    if isinstance(value, dict):
        return value.items()
    return ((str(n), one) for n, one in enumerate(value)) if isinstance(value, list) else ()


def _glob(key: str) -> str:
    return r"[^\0]*".join(map(re.escape, key.split("*")))


def _joined(path: Path) -> str:
    return "".join(f"{key}{_END}" for key in path)
