"""Durations on the command line: 90s, 15min, 1h, 366d, 2w."""

from __future__ import annotations

import re

import click

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


class Duration(click.ParamType):
    """An option's value in seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Span(click.ParamType):
    """An option's value START:LENGTH, both in seconds."""

    name = "start:length"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        if isinstance(value, tuple):
            return value
        start, _, length = str(value).partition(":")
        try:
            return seconds(start), seconds(length)
        except ValueError as error:
            self.fail(f"must be START:LENGTH, such as 20s:5s; {error}", param, ctx)
