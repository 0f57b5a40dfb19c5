"""Resolve the records of a SenML pack in JSON (RFC 8428, section 4.6).

`senml_cbor` reads the other encoding, by the same rules.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import reprlib
import time
from typing import Any, NamedTuple

VERSION = 10
RELATIVE = 1 << 28  # s: a time below this is relative to now (section 4.5.3)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")
LONGEST = 1024
"""Characters of a resolved name."""
NUMBERS = ("bt", "bver", "t", "ut")
MEASURED = ("bv", "v", "bs", "s")
"""Numbers that may be missing: null, or not finite."""
TEXTS = ("bn", "bu", "n", "u", "vs", "vd")
VALUES = ("v", "vs", "vb", "vd")
_SAID = (*VALUES, *MEASURED)
# A text, which is skipped, or a number that is not of JSON. MicroPython and printf write these.
_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|-?\b(?:nan|inf)\b', re.DOTALL)
_DIGITS = 400  # a number with more is larger than any double


class PackError(ValueError):
    """The payload is not a SenML pack; the text says which record is wrong, and why."""


class Room:
    """The number of characters that a message may still use for names and units.

    They are much longer together than its payload if a long name holds for many values.

    size  of the payload, in bytes
    """

    def __init__(self, size: int) -> None:
        # 16 for each byte, some in any case, and never more than a column of Arrow has.
        self._left = min(max(1 << 14, 16 * size), 1 << 28)

    def take(self, name: str, unit: str = "") -> None:
        """Use room for a name and a unit. Raises PackError if there is none."""
        self._left -= len(name) + len(unit)
        if self._left < 0:
            raise PackError("the names and units are together much longer than the payload")


class Record(NamedTuple):
    """A resolved record: it says all there is to say by itself."""

    name: str
    unit: str
    time: float
    """Seconds since 1970, UTC."""
    value: float | int | str | bool | None
    """A number, a text or true or false; None if there is only a `total`, or no finite double."""
    total: float | int | None = None
    """The sum field: the value integrated over time."""


def resolve(pack: bytes | str, now: float | None = None) -> list[Record]:
    """Return the records of a pack in their order. Raises PackError.

    `now` is what relative times are relative to, in seconds since 1970; by default the clock.
    """
    try:
        # Strictly: json.loads would let a lone surrogate pass that is encoded as three bytes.
        records = load(pack if isinstance(pack, str) else pack.decode(json.detect_encoding(pack)))
    except (ValueError, RecursionError) as error:
        raise PackError(f"not JSON: {error}") from error
    return resolve_records(records, now, len(pack))


def resolve_records(
    records: object, now: float | None = None, size: int | None = None
) -> list[Record]:
    """Return the records of a decoded pack: a list of dicts, by the labels of JSON.

    `size` is how many bytes it had; without it, names and units may grow to any size.
    """
    if now is None:
        now = time.time()
    if not isinstance(records, list) or not records:
        raise PackError("not an array of records")
    room = None if size is None else Room(size)
    base: dict[str, Any] = {}
    resolved = []
    for number, record in enumerate(records):
        try:
            _check(record)
            base.update((key, value) for key, value in record.items() if key[0] == "b")
            if "bver" in record and number and record["bver"] != records[0].get("bver", VERSION):
                raise PackError("bver: differs from that of the first record")
            one = _resolved({**base, **record}, now)
        except PackError as error:
            raise PackError(f"record {number}: {error}") from None
        if one is None:
            continue
        resolved.append(one)
        if room is not None:
            room.take(one.name, one.unit)
    return resolved


def load(text: str) -> Any:
    """Return a JSON document, in which `nan`, `inf` and numbers of any length are allowed.

    What no double holds becomes NaN or infinite. Raises ValueError and RecursionError.
    """
    try:
        return _decode(text)
    except ValueError:
        words = _WORD.sub(lambda found: found[0] if found[0][0] == '"' else "NaN", text)
        return json.loads(words, parse_int=_integer)


_decode = json.JSONDecoder().decode


def _integer(digits: str) -> float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _check(record: object) -> None:
    """Check the fields: raise PackError for a wrong type or an unknown mandatory one."""
    if not isinstance(record, dict):
        raise PackError("not an object")
    for key, value in record.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (key in MEASURED and not (number or value is None)) or (
            key in NUMBERS and not (number and _is_finite(value))
        ):
            raise PackError(f"{key} = {shown(value)}: not a number")
        if key in TEXTS and not isinstance(value, str):
            raise PackError(f"{key} = {shown(value)}: not a text")
        if key == "vb" and not isinstance(value, bool):
            raise PackError(f"{key} = {shown(value)}: not true or false")
        if not _is_unicode(key):
            raise PackError(f"{shown(key)}: not Unicode: a surrogate is alone")
        if isinstance(value, str) and not _is_unicode(value):
            raise PackError(f"{shorter(key)} = {shown(value)}: not Unicode: a surrogate is alone")
        if key.endswith("_"):
            raise PackError(f"{shorter(key)}: must be understood, but is unknown")
        if not key:
            raise PackError("a field without a name")
    if record.get("bver", VERSION) > VERSION:
        raise PackError(f"bver = {shown(record['bver'])}: {VERSION} is known")
    if sum(key in record for key in VALUES) > 1:
        raise PackError("more than one value")


def shown(value: object) -> str:
    """A value for an error text: short, the same each time, and without surrogates."""
    if isinstance(value, (str, bytes, int, float, type(None))):
        with contextlib.suppress(ValueError):  # an int of thousands of digits
            return reprlib.repr(value).encode("utf-8", "backslashreplace").decode()
    return f"a value of type {type(value).__name__}"


def shorter(text: str) -> str:
    """A text without its middle if it is long."""
    return text if len(text) <= 40 else f"{text[:18]}...{text[-18:]}"


def _is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode it: a surrogate is only one half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: float) -> bool:
    """Return whether an IEEE 754 double holds it; an int may be too large."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _resolved(fields: dict[str, Any], now: float) -> Record | None:
    """The record that these fields make; None if they have neither value nor sum."""
    value = next((fields[key] for key in ("vs", "vb", "vd") if key in fields), None)
    total = None
    if fields.keys().isdisjoint(_SAID):
        return None
    if "v" in fields or ("bv" in fields and value is None):
        value = _sum(fields, "bv", "v")
    if "s" in fields or "bs" in fields:
        total = _sum(fields, "bs", "s")
    name = fields.get("bn", "") + fields.get("n", "")
    if len(name) > LONGEST:
        raise PackError(f"name = {shown(name)}: longer than {LONGEST} characters")
    if not NAME.fullmatch(name):
        raise PackError(f"name = {shown(name)}: not allowed")
    at = fields.get("bt", 0) + fields.get("t", 0)
    if not _is_finite(at):
        raise PackError("t + bt: must be a finite double")
    if at < RELATIVE:
        at += now
    return Record(name, fields.get("u", fields.get("bu", "")), at, value, total)


def _sum(fields: dict[str, Any], *keys: str) -> float | None:
    """The sum of a base value and a value, of which a missing one is 0; None if not finite."""
    numbers = [fields.get(key, 0) for key in keys]
    try:
        found: float = sum(numbers)
    except (TypeError, OverflowError):  # one is null, or they are too large together
        return None
    return found if _is_finite(found) else None
