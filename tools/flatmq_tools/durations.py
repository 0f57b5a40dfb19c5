"""Durations on the command line: 90s, 15min, 1h, 366d, 2w."""

from __future__ import annotations

import re

from .typed import Reading

_UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FORM = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_UNITS)})")


def seconds(text: str) -> float:
    """The seconds of a duration. Raises ValueError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"a duration must be a number and {', '.join(_UNITS)}, such as 15min, not {text!r}"
        )
    return float(found[1]) * _UNITS[found[2]]


def span(text: str) -> tuple[float, float]:
    """The seconds of START:LENGTH. Raises ValueError."""
    start, _, length = text.partition(":")
    try:
        return seconds(start), seconds(length)
    except ValueError as error:
        raise ValueError(f"must be START:LENGTH, such as 20s:5s; {error}") from error


DURATION = Reading("duration", seconds)
SPAN = Reading("start:length", span)
