"""Read a payload that is one number or word."""

from __future__ import annotations

from . import document, encodings
from .encodings import Payload
from .pack import Pack
from .rule import Bound, record


def read(bound: Bound, payload: Payload, received: int | None) -> list[Pack]:
    """Return what a plain payload says. Raises PackError."""
    text = encodings.text(payload.data).strip()
    if not text:  # it removes a retained message
        return []
    place = bound.whole
    made = None if place is None else record(place, text, received, bound.rule, True)
    records = [] if made is None else [made]
    return [Pack(bound.device, None, None, received, False, records)]


def read_any(bound: Bound, payload: Payload, received: int | None) -> list[Pack] | None:
    """Return what a payload says, a JSON object or array or else plain. Raises PackError."""
    if payload.data.lstrip()[:1] in (b"{", b"["):
        return document.read(bound, payload, received)
    return read(bound, payload, received)
