"""Check topic filters (3.1.1 section 4.7). Loaded for one call."""

from ..port import const
from ..wire import field, is_filter, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def check(filters: "Any", qos: int, most: int) -> "tuple[list[bytes], list[bytes]]":
    """Return topic filters as bytes, and the filters that topic names must match.

    TypeError or ValueError for a bad filter, or for a QoS above `most`.
    """
    number("qos", qos, 0, most)
    if isinstance(filters, (bytes, str)):
        filters = [filters]
    if not isinstance(filters, (list, tuple)):
        kind = type(filters).__name__
        raise TypeError(f"topic filter must be bytes, str or a list of them, not {kind}")
    number("number of topic filters", len(filters), 1, 65535)
    filters = [field("topic filter", f, is_filter) for f in filters]
    for f in filters:
        if f.startswith(b"$share/") and (_name(f) in (b"", f) or f[7:8] in b"/+#"):
            raise ValueError(f"topic filter {f!r}: must be $share/GROUP/FILTER")
    return filters, [_name(f) for f in filters]


def _name(f):
    """Return the filter that topic names must match: FILTER in $share/GROUP/FILTER."""
    return f[f.find(b"/", 7) + 1 :] if f.startswith(b"$share/") else f
