"""The time that a message has of itself."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Sequence
from typing import Any, NamedTuple

from .pack import PackError, bounded
from .paths import Path

SCALES = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in the units of numbers."""
FORMS = ("iso", *SCALES)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?")
_DATE_AND_TIME = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}[T ][0-9]{2}")


class TimeField(NamedTuple):
    """The place of the time in a document, and how it is written."""

    path: Path
    forms: Sequence[str]
    """`iso` for texts, and at most one of `s`, `ms` and `us` for numbers since 1970."""
    zone: str | None = None
    """The IANA zone of texts that have no offset from UTC."""


def microseconds(value: Any, field: TimeField) -> int:
    """A time of a message in microseconds since 1970. Raises PackError."""
    what = f"time = {_short(value)}"
    scale = next((SCALES[form] for form in field.forms if form in SCALES), None)
    if isinstance(value, str):
        if "iso" in field.forms:
            return bounded(what, _of_text(what, value, field.zone))
        if _NUMBER.fullmatch(value):
            value = float(value) if "." in value else int(value)
    if scale is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PackError(f"{what}: not a time in {' or '.join(field.forms)}")
    return bounded(what, value * scale)


def _of_text(what: str, text: str, zone: str | None) -> int:
    if not _DATE_AND_TIME.match(text):
        raise PackError(f"{what}: not a date and time of ISO 8601")
    try:
        moment = datetime.datetime.fromisoformat(text)
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zoneinfo.ZoneInfo(zone))
        if moment.tzinfo is not None:
            return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise PackError(f"{what}: not a date and time of ISO 8601") from error
    raise PackError(f"{what}: has no offset from UTC; set `zone` for it")


def _short(value: Any) -> str:
    text = ascii(value) if isinstance(value, (str, int, float)) else type(value).__name__
    return text if len(text) <= 40 else text[:37] + "..."
