"""Durations on the command line: 90s, 15min, 1h, 366d, 2w. A number alone is seconds."""

from __future__ import annotations

import math
import re

from .typed import Reading

_UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NUMBER = re.compile(r"\d+(\.\d+)?")
_FORM = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_UNITS)})")


def seconds(text: str) -> float:
    """The seconds of a duration. Raises ValueError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"a duration must be a number and {', '.join(_UNITS)}, such as 15min, not {text!r}"
        )
    return float(found[1]) * _UNITS[found[2]]


def duration(least: float = 0, most: float = math.inf, *, whole: bool = False) -> Reading:
    """Return the type of an option that is a duration within these limits, in seconds."""
    limits = f"at least {least:g}s" if most == math.inf else f"{least:g}s to {most:g}s"

    def read(text: str) -> float:
        found = float(text) if _NUMBER.fullmatch(text) else seconds(text)
        if not least <= found <= most:
            raise ValueError(f"must be {limits}, not {text}")
        if whole and found % 1:
            raise ValueError(f"must be whole seconds, not {text}")
        return int(found) if whole else found

    return Reading("duration", read)


def span(text: str) -> tuple[float, float]:
    """The seconds of START:LENGTH. Raises ValueError."""
    start, _, length = text.partition(":")
    try:
        return seconds(start), seconds(length)
    except ValueError as error:
        raise ValueError(f"must be START:LENGTH, such as 20s:5s; {error}") from error


DURATION = duration()
SPAN = Reading("start:length", span)
