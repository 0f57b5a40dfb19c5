"""The properties that messages of MQTT 5 carry, as columns beside topic and payload."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from flatmq import is_utf8
from flatmq.v5.walk import TABLE, after, is_value, number

_PUBLISH = 16  # in the table of v5.walk: it may have this property
_FORMAT = 0x01
_RESPONSE = 0x08
_IDENTIFIER = 0x0B  # Subscription Identifier
_ALIAS = 0x23  # Topic Alias, of which the client allows none
_USER = 0x26
_TEXT = 5  # a type in that table
_KNOWN = 10_000  # blocks remembered,
_LONGEST = 1024  # of up to so many bytes each

_PAIR = pa.struct([("name", pa.string()), ("value", pa.string())])
_TYPES: dict[str, tuple[int, pa.DataType]] = {
    "user_properties": (_USER, pa.list_(pa.field("element", _PAIR))),
    "content_type": (0x03, pa.string()),
    "response_topic": (_RESPONSE, pa.string()),
    "correlation_data": (0x09, pa.binary()),
    "message_expiry": (0x02, pa.int64()),
    "payload_format": (_FORMAT, pa.int32()),
}
"""For each column the identifier of its property (section 2.2.2.2) and its type."""
COLUMNS = {name: kind for name, (_, kind) in _TYPES.items()} | {"invalid_properties": pa.binary()}
"""The columns. All of them are null for a message without properties, and for every message of
MQTT 3.1.1. `invalid_properties` has the bytes of properties that cannot be read, because they
break a rule; the other columns are null then."""

Values = tuple[Any, ...]
"""What a block has for each of COLUMNS, the User Properties as a list of pairs or None."""
NOTHING: Values = (None,) * len(COLUMNS)


def end_of(packet: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the beginning and end of the properties whose length is at `at`.

    Returns (0, 0) if that is not before `end`.
    """
    n = packet[at] if at < end else 128
    start = at + 1
    if n > 127:
        n = number(packet, at, end)
        if n < 0:
            return 0, 0
        start += n & 3
        n >>= 2
    return (start, start + n) if start + n <= end else (0, 0)


@lru_cache(_KNOWN)
def _known(block: bytes) -> Values:
    return _values(block) or (*NOTHING[1:], block)


def read(block: bytes) -> Values:
    """Return the values of a block; short ones are remembered."""
    return _known(block) if len(block) <= _LONGEST else _known.__wrapped__(block)


def arrays(rows: Sequence[Values]) -> list[pa.Array]:
    """Return an array for each of COLUMNS from the values of each message."""
    return [*map(pa.array, zip(*rows, strict=True), COLUMNS.values())]


def nulls(n: int) -> list[pa.Array]:
    """Return the same for `n` messages without properties."""
    return [pa.nulls(n, kind) for kind in COLUMNS.values()]


def _values(block: bytes) -> Values | None:
    """Return the values of a block, None if it breaks a rule.

    A Payload Format Indicator that is neither 0 nor 1, and a Response Topic that is no topic name,
    are values like others.
    """
    found: dict[int, Any] = {}
    at = 0
    while at < len(block):
        i = block[at]
        if i >= len(TABLE) or not TABLE[i] & _PUBLISH or i == _ALIAS:
            return None
        begin, start = at, at + 1
        at = after(block, begin, len(block))
        if at > len(block):
            return None
        if i == _RESPONSE:
            valid = is_utf8(block, start + 2, at)
        else:
            valid = i == _FORMAT or is_value(block, begin, at)
        if not valid:
            return None
        if i == _USER:
            middle = start + 2 + int.from_bytes(block[start : start + 2], "big")
            pair = block[start + 2 : middle].decode(), block[middle + 2 : at].decode()
            found.setdefault(i, []).append(pair)
        elif i in found:
            return None
        elif i != _IDENTIFIER:
            found[i] = _value(block[start:at], i)
    return (*(found.get(i) for i, _ in _TYPES.values()), None)


def _value(data: bytes, i: int) -> Any:
    """Return the value of property `i` from its bytes."""
    kind = TABLE[i] & 7
    if kind < _TEXT:
        return int.from_bytes(data, "big")
    return data[2:].decode() if kind == _TEXT else data[2:]
