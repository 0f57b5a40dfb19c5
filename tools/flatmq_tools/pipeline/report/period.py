"""The stretch of time of a report: `--since` and `--until`."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from ... import durations

UTC = datetime.timezone.utc
When = datetime.datetime | datetime.timedelta
"""A moment, or how long before the newest message it is."""


class PeriodError(ValueError):
    """A stretch of time that has no begin or no end; the text names the option and the rule."""


class Period(NamedTuple):
    """From `since` up to `until`, which is not in it; None for all that there is."""

    since: When | None = None
    until: When | None = None

    @property
    def everything(self) -> bool:
        """Return whether nothing is left out."""
        return self.since is None and self.until is None

    @property
    def relative(self) -> bool:
        """Return whether the newest message has to be known."""
        return any(isinstance(end, datetime.timedelta) for end in self)

    def of(
        self, newest: datetime.datetime | None
    ) -> tuple[datetime.datetime | None, datetime.datetime | None]:
        """Return both ends; `newest` is when the newest message came.

        Raises PeriodError if the end is not after the begin.
        """
        since, until = (
            newest - end if isinstance(end, datetime.timedelta) and newest is not None else end
            for end in self
        )
        assert not isinstance(since, datetime.timedelta)
        assert not isinstance(until, datetime.timedelta)
        if since is not None and until is not None and since >= until:
            raise PeriodError(
                f"--since must be before --until: {since:%Y-%m-%dT%H:%M:%S} is not before "
                f"{until:%Y-%m-%dT%H:%M:%S}"
            )
        return since, until


def when(text: str) -> When:
    """Return the moment that a text names: a date, a time or a duration. PeriodError."""
    text = text.strip()
    try:
        return datetime.timedelta(seconds=durations.seconds(text))
    except ValueError:
        pass
    try:
        found = datetime.datetime.fromisoformat(text)
        if found.tzinfo is None:
            return found.replace(tzinfo=UTC)
        return found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise PeriodError(
            "it must be a date such as 2026-11-01, a time such as 2026-11-01T12:30, or a duration "
            f"such as 7d, at most 36525d, not {text!r}"
        ) from None
