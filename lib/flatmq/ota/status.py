"""Publish the status of updates. Loaded for one call."""

import sys
from json import dumps

from ..port import const, drop

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Updates

_LONGEST = const(120)  # characters of a reason
_RETAIN = const(2)  # what the broker offers: see `v5.server`


def publish(u: "Updates") -> "int | None":
    """Publish as much of the status as the broker takes.

    Returns None if there is no room now, and 0 if the broker will acknowledge nothing.
    """
    drop("status")
    r = u.record
    status = {
        "board": u.board,
        "version": r["version"],
        "counter": r["counter"],
        "micropython": sys.version,
        "state": u.state or r["state"],
        "to": u.to,
        "manifest": u.about,
        "why": u.why[:_LONGEST],
        "failed": r["failed"],
    }
    c: Any = u.client
    pid: int | None = 0
    retain = not c.five or c.offers[_RETAIN]
    for name in ("micropython", "board", "failed", "why", "to", ""):
        try:
            pid = c.publish(u.status, dumps(status), c.max_qos and 1, retain)
            break
        except ValueError as error:  # it is too large
            status.pop(name, None)
            if not name:
                print("no status of updates:", error)
    if pid is not None:
        u.said = c.stats.connects
    return pid
