"""Read a payload that is one number or word."""

from __future__ import annotations

from . import json_document
from .pack import Pack, PackError
from .rule import Bound, record


def read(bound: Bound, payload: bytes, received: int | None) -> list[Pack]:
    """Return what a plain payload says. Raises PackError."""
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError as error:
        raise PackError("not a text in UTF-8") from error
    if not text:  # it removes a retained message
        return []
    place = bound.whole
    made = None if place is None else record(place, text, received, bound.rule, True)
    records = [] if made is None else [made]
    return [Pack(bound.device, None, None, received, False, records)]


def read_any(bound: Bound, payload: bytes, received: int | None) -> list[Pack] | None:
    """Return what a payload says, a JSON object or array or else plain. Raises PackError."""
    if payload.lstrip()[:1] in (b"{", b"["):
        return json_document.read(bound, payload, received)
    return read(bound, payload, received)
