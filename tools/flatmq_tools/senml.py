"""What does a SenML pack say? Resolves its records (RFC 8428, section 4.6), from JSON.

`senml_cbor` reads the other encoding, and has the same rules from here.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
import time
from typing import Any, NamedTuple

VERSION = 10
RELATIVE = 1 << 28  # s: a time below this is relative to now (section 4.5.3)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")

NUMBERS = ("bt", "bv", "bs", "bver", "v", "s", "t", "ut")
TEXTS = ("bn", "bu", "n", "u", "vs", "vd")
VALUES = ("v", "vs", "vb", "vd")


class PackError(ValueError):
    """It is no SenML pack; the text says in which record, and what is wrong."""


class Record(NamedTuple):
    """A resolved record: it says all there is to say by itself."""

    name: str
    unit: str
    time: float
    """Seconds since 1970, UTC."""
    value: float | int | str | bool | None
    """A number, a text or true or false; None where there is but a `total`."""
    total: float | int | None = None
    """The sum field: the value integrated over time."""


def resolve(pack: bytes | str, now: float | None = None) -> list[Record]:
    """The records of a pack in their order. `now` is what relative times are relative to, in
    seconds since 1970: the clock, unless given. PackError."""
    try:
        records = json.loads(pack, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PackError(f"not JSON: {error}") from error
    return resolve_records(records, now)


def resolve_records(records: object, now: float | None = None) -> list[Record]:
    """As `resolve`, of a pack that is decoded: a list of dicts, by the labels of JSON."""
    if now is None:
        now = time.time()
    if not isinstance(records, list) or not records:
        raise PackError("not an array of records")
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
        if one is not None:
            resolved.append(one)
    return resolved


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _check(record: object) -> None:
    """PackError for a field of the wrong type, or one that a reader must understand."""
    if not isinstance(record, dict):
        raise PackError("not an object")
    for key, value in record.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if key in NUMBERS and not (number and _is_finite(value)):
            raise PackError(f"{key} = {reprlib.repr(value)}: not a number")
        if key in TEXTS and not isinstance(value, str):
            raise PackError(f"{key} = {value!r}: not a text")
        if key == "vb" and not isinstance(value, bool):
            raise PackError(f"{key} = {value!r}: not true or false")
        if key.endswith("_"):
            raise PackError(f"{key}: must be understood, and is not")
        if not key:
            raise PackError("a field without a name")
    if record.get("bver", VERSION) > VERSION:
        raise PackError(f"bver = {record['bver']}: {VERSION} is known")
    if sum(key in record for key in VALUES) > 1:
        raise PackError("more than one value")


def _is_finite(value: float) -> bool:
    """Whether an IEEE 754 double holds it; an int may be past that."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _resolved(fields: dict[str, Any], now: float) -> Record | None:
    """The record that these fields make; None where they have neither value nor sum."""
    value = next((fields[key] for key in ("vs", "vb", "vd") if key in fields), None)
    # Of a base value and a value, and of a base sum and a sum, the one that is missing is 0.
    if "v" in fields or ("bv" in fields and value is None):
        value = fields.get("v", 0) + fields.get("bv", 0)
    total = fields.get("s", 0) + fields.get("bs", 0) if fields.keys() & {"s", "bs"} else None
    if value is None and total is None:
        return None
    name = fields.get("bn", "") + fields.get("n", "")
    if not NAME.fullmatch(name):
        raise PackError(f"name = {name!r}: not allowed")
    at = fields.get("bt", 0) + fields.get("t", 0)
    for what, number in (("v + bv", value), ("s + bs", total), ("t + bt", at)):
        if isinstance(number, (int, float)) and not _is_finite(number):
            raise PackError(f"{what}: past what a double holds")
    if at < RELATIVE:
        at += now
    return Record(name, fields.get("u", fields.get("bu", "")), at, value, total)
