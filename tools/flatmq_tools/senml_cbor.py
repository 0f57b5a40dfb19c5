"""Resolve the records of a SenML pack in CBOR (RFC 8428, section 6), by the rules of `senml`."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import cbor2

from .senml import PackError, Record, resolve_records, shown

# Table 4. Labels that are not in it are texts in CBOR too.
LABELS = {
    -1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs",
    0: "n", 1: "u", 2: "v", 3: "vs", 4: "vb", 5: "s", 6: "t", 7: "ut", 8: "vd",
}  # fmt: skip
# The tags 25 and 29, in any length: a text or a container that is elsewhere in the document.
_REFERENCE = re.compile(rb"(?:\xd8|\xd9\0|\xda\0{3}|\xdb\0{7})[\x19\x1d]")
SELF_DESCRIBED = b"\xd9\xd9\xf7"  # a tag that says no more than "CBOR" (RFC 8949, 3.4.6)


def is_cbor(pack: bytes) -> bool:
    """Return whether a pack can only be CBOR.

    It begins with an array, or with the tag for CBOR. JSON begins with "[" or a blank, which
    are no arrays in CBOR.
    """
    return pack[:1] >= b"\x80" and (pack[0] <= 0x9F or pack.startswith(SELF_DESCRIBED))


def resolve(pack: bytes, now: float | None = None) -> list[Record]:
    """Return the records of a pack in CBOR, as `senml.resolve` does for JSON.

    A data value is base64url without padding there too. Raises PackError.
    """
    records = load(pack)
    if not isinstance(records, list):
        raise PackError("not an array of records")
    labelled = [_labelled(record, n) for n, record in enumerate(records)]
    return resolve_records(labelled, now, len(pack))


def load(data: bytes) -> Any:
    """Return a CBOR document, as `cbor2` has it. Raises PackError."""
    file = io.BytesIO(data.removeprefix(SELF_DESCRIBED))
    try:
        found = cbor2.load(file)
    except (cbor2.CBORError, ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise PackError(f"not CBOR: {error}") from error
    if file.tell() < len(file.getbuffer()):
        raise PackError("not CBOR: bytes follow the document")
    if _REFERENCE.search(data):
        _check_size(found, len(data))
    return found


def _check_size(document: Any, left: int) -> None:
    """Raise PackError if the values of a document have more bytes than it, as shared ones may."""
    inside = [document]
    while inside:
        value = inside.pop()
        if isinstance(value, Mapping):
            left -= 2 * len(value)
            inside += value
            inside += value.values()
        elif isinstance(value, Sequence):
            left -= len(value)
            inside += () if isinstance(value, (str, bytes)) else value
        if left < 0:
            raise PackError("not CBOR: its values are larger than itself")


def double(number: Decimal | Fraction) -> float:
    """The nearest double; NaN or infinite if there is none."""
    try:
        return float(number)
    except (ValueError, OverflowError):
        return math.nan


def _labelled(record: object, number: int) -> object:
    """A record by the labels, and with the values, that JSON has for it."""
    if not isinstance(record, dict):
        return record
    fields = {}
    for label, value in record.items():
        key = LABELS.get(label, label) if type(label) is int else label
        if not isinstance(key, str) or (isinstance(label, str) and key in LABELS.values()):
            raise PackError(f"record {number}: {shown(label)}: no label of SenML in CBOR")
        if isinstance(value, Decimal):  # a decimal fraction (section 6)
            value = double(value)  # noqa: PLW2901
        elif key == "vd":
            if not isinstance(value, bytes):
                raise PackError(f"record {number}: vd: not bytes")
            value = base64.urlsafe_b64encode(value).rstrip(b"=").decode()  # noqa: PLW2901
        fields[key] = value
    return fields
