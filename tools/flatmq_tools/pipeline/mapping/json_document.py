"""Read a payload that is a JSON document, flat or nested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

from ...senml import load
from .pack import Pack, PackError, Record, Room, named
from .paths import ABSENT, Path, PathPattern, at
from .rule import Bound, record
from .times import TimeField, microseconds

_MAX = (1 << 63) - 1
_DEEP = 64  # keys of a path


def read(bound: Bound, payload: bytes, received: int | None) -> list[Pack] | None:
    """Return what a document says; None if the rule does not apply to it. Raises PackError."""
    rule = bound.rule
    if not payload:  # it removes a retained message
        return []
    try:
        document = load(payload.decode())
    except UnicodeDecodeError as error:
        raise PackError("not JSON: not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise PackError(f"not JSON: {str(error)[:80]}") from error
    if rule.when and not all(_is_one_of(at(document, path), any_) for path, any_ in rule.when):
        return None
    own = None if rule.time is None else _time(rule.time, document)
    time = received if own is None else own
    boot = seq = None
    if rule.boot is not None and rule.seq is not None:
        boot, seq = _number("boot", document, rule.boot), _number("seq", document, rule.seq)
        if boot is None or seq is None:
            boot = seq = None
    records: list[Record] = []
    room = Room(payload)
    for path, value in leaves(document, rule.arrays):
        place = bound.place(path) if path else bound.whole
        if place is None:
            continue
        room.take(place.name)
        # Most values are numbers whose column says no more than a name and a unit.
        if type(value) is float and place.plain and isfinite(value):
            records.append(Record(place.name, place.quantity.unit, time, value))
            continue
        made = record(place, value, time, rule, rule.text_numbers)
        if made is not None:
            records.append(made)
    device = bound.device if rule.device_from is None else _device(rule.device_from, document)
    return [Pack(device, boot, seq, time, own is not None, records)]


def _is_one_of(value: Any, allowed: Sequence[Any]) -> bool:
    """Compare as JSON does: true is not 1."""
    return any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
    )


def _time(field: TimeField, document: Any) -> int | None:
    value = at(document, field.path)
    return None if value is ABSENT or value is None else microseconds(value, field)


def _number(what: str, document: Any, path: Path) -> int | None:
    value = at(document, path)
    if value is ABSENT or value is None:
        return None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= _MAX or value != int(value):
        raise PackError(f"{what} = {ascii(value)[:40]}: not a whole number from 0 to {_MAX}")
    return int(value)


def _device(path: Path, document: Any) -> str:
    value = at(document, path)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) <= _MAX else ABSENT
    if not isinstance(value, str) or not value:
        raise PackError(f"no device: {'/'.join(path)} is not a text")
    return named("device", value)


def leaves(
    document: Any, arrays: Sequence[tuple[PathPattern, Path]] = ()
) -> Iterable[tuple[Path, Any]]:
    """The values of a document with their paths, in its order."""
    if not isinstance(document, (dict, list)):
        return [((), document)]
    if isinstance(document, dict) and not any(
        isinstance(value, (dict, list)) for value in document.values()
    ):
        return [((key,), value) for key, value in document.items()]
    return _nested(document, arrays)


def _nested(
    document: Any, arrays: Sequence[tuple[PathPattern, Path]]
) -> Iterator[tuple[Path, Any]]:
    stack: list[tuple[Path, Iterator[tuple[str, Any]]]] = [((), _items((), document, arrays))]
    while stack:
        path, items = stack[-1]
        for key, value in items:
            if isinstance(value, (dict, list)):
                below = (*path, key)
                if len(below) > _DEEP:
                    raise PackError(f"nested more than {_DEEP} levels deep")
                stack.append((below, _items(below, value, arrays)))
                break
            yield (*path, key), value
        else:
            stack.pop()


def _items(
    path: Path, value: Any, arrays: Sequence[tuple[PathPattern, Path]]
) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    name = next((name for pattern, name in arrays if pattern.match(path)), None)
    if name is None:
        return ((str(index), element) for index, element in enumerate(value))
    return ((_called(element, name, index), element) for index, element in enumerate(value))


def _called(element: Any, name: Path, index: int) -> str:
    """Return the name that an element gives itself, or its index."""
    found = at(element, name)
    named = isinstance(found, (str, int)) and not isinstance(found, bool) and found != ""
    return str(found)[:200] if named else str(index)
