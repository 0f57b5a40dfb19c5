"""The properties that messages of MQTT 5 carry, as columns beside topic and payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flatmq.v5.walk import View, broken, number

_PUBLISH = 16  # in the table of v5.walk, the packet that is checked
_ALIAS = 0x23  # Topic Alias, of which the client allows none
_USER = 0x26
_KNOWN = 10_000  # blocks remembered,
_LONGEST = 1024  # of up to so many bytes each

_PAIR = pa.struct([("name", pa.string()), ("value", pa.string())])
COLUMNS: dict[str, tuple[int, pa.DataType]] = {
    "user_properties": (_USER, pa.list_(pa.field("element", _PAIR))),
    "content_type": (0x03, pa.string()),
    "response_topic": (0x08, pa.string()),
    "correlation_data": (0x09, pa.binary()),
    "message_expiry": (0x02, pa.int64()),
    "payload_format": (0x01, pa.int32()),
}
"""For each column the identifier of its property (section 2.2.2.2) and its type. All of them are
null for a message that has no such property, and for every message of MQTT 3.1.1."""

_SINGLE = [identifier for identifier, _ in COLUMNS.values() if identifier != _USER]
_TEXTS = (0x03, 0x08)

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


class Checked(set[bytes]):
    """Blocks of properties that a message may have; each is checked once while it is known."""

    def takes(self, block: bytes) -> bool:
        """Return whether a message may have this block if topic aliases are not allowed."""
        if block in self:
            return True
        if broken(block, 0, len(block), _PUBLISH) or _view(block).find(_ALIAS):
            return False
        if len(block) <= _LONGEST:
            if len(self) >= _KNOWN:
                self.clear()
            self.add(block)
        return True


class Read(dict[bytes, Values]):
    """The values of blocks, each read once while it is known."""

    def __missing__(self, block: bytes) -> Values:
        found = _values(block)
        if len(block) <= _LONGEST:
            if len(self) >= _KNOWN:
                self.clear()
            self[block] = found
        return found


def arrays(rows: Sequence[Values]) -> list[pa.Array]:
    """Return an array for each of COLUMNS from the values of each message."""
    kinds = [kind for _, kind in COLUMNS.values()]
    columns = list(zip(*rows, strict=True))
    return [_users(columns[0], kinds[0]), *map(pa.array, columns[1:], kinds[1:])]


def nulls(n: int) -> list[pa.Array]:
    """Return the same for `n` messages without properties."""
    return [pa.nulls(n, kind) for _, kind in COLUMNS.values()]


def _view(block: bytes) -> View:
    view = View(bytearray(block))
    view.stop = len(block)
    return view


def _values(block: bytes) -> Values:
    view = _view(block)
    found: dict[int, Any] = {i: view.get(i) for i in _SINGLE}
    for i in _TEXTS:
        if found[i] is not None:
            found[i] = found[i].decode()
    pairs = []
    at = 0
    while view.find(_USER, at):
        middle = view.at + 2 + int.from_bytes(block[view.at : view.at + 2], "big")
        pairs.append((block[view.at + 2 : middle].decode(), block[middle + 2 : view.end].decode()))
        at = view.end
    found[_USER] = pairs or None
    return tuple(found[i] for i, _ in COLUMNS.values())


def _users(rows: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the column of User Properties. Arrow takes flat arrays faster than nested lists."""
    names: list[str] = []
    values: list[str] = []
    ends: list[int | None] = []
    for pairs in rows:
        ends.append(None if pairs is None else len(names))
        for name, value in pairs or ():
            names.append(name)
            values.append(value)
    ends.append(len(names))
    flat = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.string())], fields=list(kind.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=kind)
