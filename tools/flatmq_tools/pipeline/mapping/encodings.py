"""Bytes as documents: JSON, CBOR and CSV, in hex or base64, and compressed."""

from __future__ import annotations

import base64
import csv
import datetime
import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import bitstruct

from ... import senml, senml_cbor
from .pack import DEEPEST, PackError
from .paths import PathPattern

_GZIP = b"\x1f\x8b\x08"  # begins no text, CBOR or protobuf
_RATIO, _SMALL, _LARGE = 64, 1 << 16, 4 << 20
_FIELD = re.compile(
    r"p[1-9][0-9]{0,3}|(?:[us](?:[1-9]|[1-5][0-9]|6[0-4])|f(?:16|32|64)|b1):([A-Za-z0-9_]+)"
)


def unzipped(payload: bytes) -> bytes:
    """The payload, uncompressed if it is gzip.

    Raises PackError if it is damaged, or grows to more than 64 times its bytes (at least 64 KiB)
    or 4 MiB.
    """
    if not payload.startswith(_GZIP):
        return payload
    most = min(max(_SMALL, _RATIO * len(payload)), _LARGE)
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(payload)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise PackError(f"gzip: {error}") from error
    if len(found) > most:
        raise PackError(f"gzip: more than {most} bytes")
    return found


def text(data: bytes, what: str = "") -> str:
    """A text in UTF-8. Raises PackError, which begins with `what`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PackError(f"{what}not a text in UTF-8") from error


def from_json(data: bytes) -> Any:
    """Return a document. Raises PackError."""
    try:
        return senml.load(data.decode())
    except UnicodeDecodeError as error:
        raise PackError("not JSON: not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise PackError(f"not JSON: {str(error)[:80]}") from error


def from_cbor(data: bytes) -> Any:
    """Return a document as JSON has it; byte strings are in hex. Raises PackError."""

    def plain(value: Any, deep: int) -> Any:
        if deep > DEEPEST + 2:
            raise PackError(f"nested more than {DEEPEST} levels deep")
        match value:
            case Mapping():
                return {_key(key): plain(one, deep + 1) for key, one in value.items()}
            case bytes():
                return value.hex()
            case None | str() | int() | float():
                return value
            case Sequence():
                return [plain(one, deep + 1) for one in value]
            case Decimal() | Fraction():
                return senml_cbor.double(value)
            case datetime.datetime():
                return value.isoformat()
        return None

    return plain(senml_cbor.load(data), 1)


def _key(key: Any) -> str:
    if isinstance(key, bytes):
        key = key.hex()
    elif type(key) is int and abs(key) >> 64 == 0:
        key = str(key)
    if not isinstance(key, str):
        raise PackError("a key is neither a text nor an integer")
    return key


INNER: Mapping[str, Callable[[bytes], Any]] = {"json": from_json, "cbor": from_cbor, "plain": text}
"""What the bytes in a field can hold beside a layout."""


class Payload:
    """The payload of a message, decoded once for all rules. Raises PackError."""

    def __init__(self, raw: bytes) -> None:
        self.data = unzipped(raw)
        self._documents: dict[str, Any] = {}

    def document(self, form: str) -> Any:
        """Return the document, by a format of INNER."""
        if form not in self._documents:
            self._documents[form] = INNER[form](self.data)
        return self._documents[form]


class Csv(NamedTuple):
    """The form of a CSV payload."""

    columns: Sequence[str] | None = None
    """The names of the columns; None if the first row has them. A column without one is named by
    its number, from 0."""
    delimiter: str = ","

    def read(self, data: bytes) -> list[dict[str, str | None]]:
        """The rows, which have None for an empty cell. Raises PackError."""
        lines = io.StringIO(text(data).removeprefix("\ufeff"), newline="")
        try:
            rows = [row for row in csv.reader(lines, delimiter=self.delimiter) if row]
        except csv.Error as error:
            raise PackError(f"not CSV: {error}") from error
        names = self.columns
        if names is None:
            names = rows.pop(0) if rows else []
        longest = max(map(len, rows), default=0)
        names = [name.strip() or str(n) for n, name in enumerate(names)]
        names += map(str, range(len(names), longest))
        return [
            {name: cell.strip() or None for name, cell in zip(names, row, strict=False)}
            for row in rows
        ]


class Layout:
    """The fields of a binary value, as `bitstruct` has them: `u8 p4 s12:temperature <`.

    Raises ValueError.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        fields = text.removesuffix("<").split()
        names = [_FIELD.fullmatch(field) for field in fields]
        if not fields or None in names:
            raise ValueError(
                "must be fields such as u8:level, s16:temperature, f32:power, b1:on and p4 for "
                "4 bits of padding, and < at the end if the least significant byte is first"
            )
        form = "".join(field.partition(":")[0] for field in fields)
        order = "<" if text.endswith("<") else ""
        self._unpack = bitstruct.compile(form + order, [n[1] for n in names if n and n[1]]).unpack

    def read(self, data: bytes) -> Any:
        """The values of the fields, by their names. Raises PackError."""
        try:
            return self._unpack(data)
        except bitstruct.Error as error:
            raise PackError(str(error)) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.text,)


def _of_hex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def _of_base64(text: str) -> bytes:
    """Of both alphabets, with padding or without."""
    text = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


BYTES: Mapping[str, Callable[[str], bytes]] = {"hex": _of_hex, "base64": _of_base64}
"""How bytes are written in a text."""


class Field(NamedTuple):
    """A text in a document that holds bytes, which hold a document."""

    path: PathPattern
    form: str
    read: Callable[[bytes], Any]

    def value(self, text: Any) -> Any:
        """Return the content of the bytes; NaN if they cannot be read."""
        try:
            return self.read(BYTES[self.form](text))
        except (PackError, ValueError, AttributeError, TypeError):
            return float("nan")
