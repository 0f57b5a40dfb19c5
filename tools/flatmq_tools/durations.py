"""Durations on the command line: 90s, 15min, 1h, 366d, 2w. A number alone is seconds."""

from __future__ import annotations

import re

from .typed import Reading

_UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
MOST = 36_525 * 86_400
"""s, a century: what is longer would overflow somewhere, later."""
_NUMBER = re.compile(r"\d+(\.\d+)?")
_FORM = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(_UNITS)})")


def _seconds(text: str) -> float:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"a duration must be a number and {', '.join(_UNITS)}, such as 15min, not {text!r}"
        )
    return float(found[1]) * _UNITS[found[2]]


def seconds(text: str) -> float:
    """The seconds of a duration of up to a century. Raises ValueError."""
    found = _seconds(text)
    if found > MOST:
        raise ValueError(f"a duration must be at most {_text(MOST)}, not {text!r}")
    return found


def _text(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:g}d" if days and days == int(days) else f"{seconds:,.10g}s"


def duration(least: float = 0, most: float = MOST, *, whole: bool = False) -> Reading:
    """Return the type of an option that is a duration within these limits, in seconds."""

    def read(text: str) -> float:
        found = float(text) if _NUMBER.fullmatch(text) else _seconds(text)
        if not least <= found <= most:
            raise ValueError(f"must be {_text(least)} to {_text(most)}, not {text}")
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
