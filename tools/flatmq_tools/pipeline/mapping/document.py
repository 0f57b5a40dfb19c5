"""Read a payload that is a document, flat or nested: JSON, CBOR or CSV; or one plain value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from .encodings import INNER, Field, Payload, text
from .pack import DEEPEST, Pack, PackError, Record, Room, named
from .paths import ABSENT, Path, PathPattern, at, items
from .rule import Bound, Rule, record
from .times import microseconds

_MAX = (1 << 63) - 1


def read(bound: Bound, payload: Payload, received: int | None) -> list[Pack] | None:
    """Return what a document says; None if the rule does not apply to it. Raises PackError."""
    rule = bound.rule
    if not payload.data:  # it removes a retained message
        return []
    if rule.format == "csv":
        document = rule.csv.read(payload.data)
    else:
        # With `decode` the document is changed, and other rules may read it, too.
        form = "cbor" if rule.format == "cbor" else "json"
        document = INNER[form](payload.data) if rule.decode else payload.document(form)
    for field in rule.decode:
        _decode(document, field)
    if rule.when and not all(_is_one_of(at(document, path), any_) for path, any_ in rule.when):
        return None
    room = Room(len(payload.data))
    if rule.each is None:
        return [_pack(bound, document, document, received, room)]
    packs: dict[Any, Pack] = {}
    for names, part in rule.each.of(document):
        pack = _pack(bound.part(names) if names else bound, part, document, received, room)
        # A message has one pack of a reading, or of a device without readings: see `once`.
        key = pack.device, pack.boot, pack.seq
        first = packs.setdefault(key, pack)
        if first is pack:
            room.take(pack.device)
        else:
            first.records.extend(pack.records)
            newest = max(first, pack, key=lambda each: (each.told, each.time or 0))
            packs[key] = newest._replace(records=first.records)
    return [*packs.values()] or None


def read_plain(bound: Bound, payload: Payload, received: int | None) -> list[Pack]:
    """Return what a payload says that is one number or word. Raises PackError."""
    word = text(payload.data).strip()
    if not word:  # it removes a retained message
        return []
    place = bound.whole
    made = None if place is None else record(place, word, received, bound.rule, True)
    records = [] if made is None else [made]
    return [Pack(bound.device, None, None, received, False, records)]


def _pack(bound: Bound, part: Any, document: Any, received: int | None, room: Room) -> Pack:
    """Return the pack of a part of a document."""
    rule = bound.rule
    own = _time(rule, part, document)
    time = received if own is None else own
    boot = None if rule.boot is None else _number("boot", rule, part, rule.boot)
    seq = None if rule.seq is None else _number("seq", rule, part, rule.seq)
    if seq is None or (boot is None and rule.boot is not None):
        boot = seq = None
    records: list[Record] = []
    for path, value in leaves(part, rule.arrays):
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
    device = bound.device
    if rule.device_from is not None:
        device = _device(rule.device_from, _at(part, document, rule.device_from))
    return Pack(device, boot, seq, time, own is not None, records)


def _decode(document: Any, field: Field) -> None:
    """Put what the bytes of a field hold in its place."""
    for path, value in leaves(document):
        if path and value is not None and field.path.match(path):
            inside = at(document, path[:-1])
            inside[int(path[-1]) if isinstance(inside, list) else path[-1]] = field.value(value)


def _at(part: Any, document: Any, path: Path) -> Any:
    """The value at a path of a part, or else of the whole document."""
    value = at(part, path)
    return at(document, path) if value is ABSENT and part is not document else value


def _is_one_of(value: Any, allowed: Sequence[Any]) -> bool:
    """Compare as JSON does: true is not 1."""
    return any(
        value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
    )


def _time(rule: Rule, part: Any, document: Any) -> int | None:
    if rule.time is None:
        return None
    value = _at(part, document, rule.time.path)
    return None if value is ABSENT or value is None else microseconds(value, rule.time)


def _number(what: str, rule: Rule, document: Any, path: Path) -> int | None:
    value = at(document, path)
    if value is ABSENT or value is None:
        return None
    if rule.format == "csv" and value.isdecimal() and len(value) < 20:
        value = int(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= _MAX or value != int(value):
        raise PackError(f"{what} = {ascii(value)[:40]}: not a whole number from 0 to {_MAX}")
    return int(value)


def _device(path: Path, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) <= _MAX else ABSENT
    if not isinstance(value, str) or not value:
        raise PackError(f"no device: {'/'.join(path)} is not a text")
    return named("device", value)


def leaves(
    document: Any, arrays: Sequence[tuple[PathPattern, Path]] = ()
) -> list[tuple[Path, Any]]:
    """The values of a document with their paths, in its order."""
    if not isinstance(document, (dict, list)):
        return [((), document)]
    found: list[tuple[Path, Any]] = []

    def gather(path: Path, container: Any) -> None:
        if len(path) > DEEPEST:
            raise PackError(f"nested more than {DEEPEST} levels deep")
        for key, value in _items(path, container, arrays):
            if isinstance(value, (dict, list)):
                gather((*path, key), value)
            else:
                found.append(((*path, key), value))

    gather((), document)
    return found


def _items(
    path: Path, value: Any, arrays: Sequence[tuple[PathPattern, Path]]
) -> Iterable[tuple[str, Any]]:
    if isinstance(value, list):
        for pattern, name in arrays:
            if pattern.match(path):
                return ((_called(one, name, n), one) for n, one in enumerate(value))
    return items(value)


def _called(element: Any, name: Path, index: int) -> str:
    """Return the name that an element gives itself, or its index."""
    found = at(element, name)
    named = isinstance(found, (str, int)) and not isinstance(found, bool) and found != ""
    return str(found)[:200] if named else str(index)
