"""The content of a message: packs of records, as the measurements job makes of SenML."""

from __future__ import annotations

from typing import NamedTuple

from ...senml import PackError, Room

__all__ = [
    "DEEPEST", "LONGEST", "Pack", "PackError", "Record", "Room", "bounded", "named",
    "printable", "readable",
]  # fmt: skip

LONGEST = 1024
"""Characters of a device or a quantity."""
DEEPEST = 64
"""Keys of a path in a document."""

# The years 1 to 9999, which a timestamp of Python and of SQL holds, in microseconds since 1970.
_FIRST, _END = -62_135_596_800_000_000, 253_402_300_800_000_000


class Record(NamedTuple):
    """One value of one quantity.

    At most one of `value`, `text` and `flag` is not None; none of them if there is only a `total`,
    or a number that no double holds.
    """

    quantity: str
    unit: str
    time: int | None
    """Microseconds since 1970, UTC."""
    value: float | None
    text: str | None = None
    flag: bool | None = None
    total: float | None = None


class Pack(NamedTuple):
    """The content of a message for one device."""

    device: str
    boot: int | None
    seq: int | None
    time: int | None
    """Microseconds since 1970, UTC; the time of arrival if the message has no time."""
    told: bool
    """Whether the message has a time of its own."""
    records: list[Record]


def bounded(what: str, micros: float) -> int:
    """A time in microseconds since 1970. Raises PackError if it is outside the years 1 to 9999."""
    if not _FIRST <= micros < _END or (whole := round(micros)) >= _END:
        raise PackError(f"{what}: not within the years 1 to 9999")
    return whole


def named(what: str, text: str) -> str:
    """A name: not empty, not longer than LONGEST, and readable. Raises PackError."""
    if not text:
        raise PackError(f"{what}: must not be empty")
    if len(text) > LONGEST:
        raise PackError(f"{what} = {text[:40]!a}...: longer than {LONGEST} characters")
    return readable(what, text)


def readable(what: str, text: str) -> str:
    """A text that UTF-8 can hold. Raises PackError for one with half of a surrogate pair."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise PackError(f"{what} = {text[:40]!a}: not a text of Unicode") from None
    return text


def printable(reason: str) -> str:
    """A reason as a column takes it: Unicode, and of at most 300 characters."""
    reason = reason if len(reason) <= 300 else reason[:297] + "..."
    return reason.encode("utf-8", "backslashreplace").decode()
