"""Publish the record of a crash. Loaded with the first one, and kept."""

import json

from .crash import cut
from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .crash import Crashes

_SHORTEST = const(128)  # bytes that a traceback is shortened to
_RETAIN = const(2)  # what the broker offers: see `v5.server`


def publish(crashes: "Crashes") -> "Any":
    """Publish the record: see `Client.publish`.

    Returns None also if it is too large: then it is shorter for the next call.
    """
    c: Any = crashes.client
    crashes.dropped = c.stats.dropped
    retain = not c.five or c.offers[_RETAIN]
    try:
        return c.publish(crashes.topic, crashes.json, c.max_qos and 1, retain)
    except ValueError:
        record = json.loads(crashes.json)
        trace = record.get("trace")
        n = type(trace) is str and len(trace)
        if n > _SHORTEST:
            record["trace"] = cut(trace, n * 7 // 8)
        elif n and len(record) == 1:
            raise
        else:  # of a later version
            record = {"trace": str(record)}
        crashes.json = json.dumps(record).encode()
