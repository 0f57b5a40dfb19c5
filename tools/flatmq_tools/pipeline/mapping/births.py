"""The birth certificates of Sparkplug B: the names and data types that data messages leave out.

A node says in NBIRTH, and each of its devices in DBIRTH, which metrics it has, their data types,
and an alias for each. NDATA and DDATA may then have the alias alone. A certificate holds until the
next one of the same node or device, and that of a device until the next NBIRTH of its node.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from .. import durable
from . import sparkplug
from .encodings import unzipped
from .pack import PackError
from .sparkplug import Metric, Names

BIRTHS = {"NBIRTH": "NDATA", "DBIRTH": "DDATA"}
"""The levels of topics with certificates, and of the data that they are for."""
_KEPT = 16  # certificates of a node or device
At = tuple[int, int]
"""When a message came: microseconds since 1970, and its offset for those that came together."""


class BirthsError(ValueError):
    """The file of certificates cannot be read; the text says what to do."""


class Session(NamedTuple):
    """The metrics of a node or a device from a certificate on."""

    at: At
    metrics: list[tuple[str, int | None, int | None]]
    """Name, data type, alias."""


def _place(topic: str) -> tuple[str, str]:
    """Return the node and the device of a topic name.

    The device is empty for the node itself. Both are empty for another topic.
    """
    levels = topic.split("/")
    for n, level in enumerate(levels):
        if level in BIRTHS or level in BIRTHS.values():
            device = levels[n + 2] if level[0] == "D" and len(levels) > n + 2 else ""
            return "/".join((*levels[:n], *levels[n + 1 : n + 2])), device
    return "", ""


def _by_alias_and_name(session: Session) -> dict[int | str, Metric]:
    """Return the metrics by alias and name.

    What is there twice, with another meaning, is left out.
    """
    found: dict[int | str, Metric] = {}
    twice = set()
    for name, kind, alias in session.metrics:
        for key in (name, alias):
            if key is not None and found.setdefault(key, (name, kind)) != (name, kind):
                twice.add(key)
    return {key: metric for key, metric in found.items() if key not in twice}


class Sessions:
    """The birth certificates, by which the metrics of data messages are found."""

    def __init__(self, known: dict[tuple[str, str], list[Session]]) -> None:
        self._known = known
        self._dicts: dict[tuple[str, str, At], dict[int | str, Metric]] = {}

    def names(self, topic: str, at: At) -> Names | None:
        """Return what finds the metrics of a message; None if no certificate holds for it."""
        node, device = _place(topic)
        born = self._last(node, "", at)
        found = self._last(node, device, at) if device else born
        if found is None or (device and born is not None and born.at > found.at):
            return None
        key = (node, device, found.at)
        if key not in self._dicts:
            self._dicts[key] = _by_alias_and_name(found)
        return self._dicts[key].get

    def _last(self, node: str, device: str, at: At) -> Session | None:
        all_ = self._known.get((node, device), [])
        n = bisect.bisect_right(all_, at, key=lambda session: session.at)
        return all_[n - 1] if n else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Sessions, (self._known,)


class Births:
    """The certificates that are known; the newest of each node and device are kept in a file.

    file   None to keep them in memory alone. BirthsError if it is damaged
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        # In the order in which they were added: a batch that is done again adds its own again.
        self._known: dict[tuple[str, str], list[Session]] = {}
        if file is not None and file.exists():
            try:
                self._read(file)
            except (ValueError, TypeError, LookupError) as error:
                raise BirthsError(
                    f"{file} is damaged ({error}): remove it. Aliases of Sparkplug B are then "
                    "dead letters until the next birth certificates"
                ) from error

    def _read(self, file: Path) -> None:
        for node, device, at, metrics in json.loads(file.read_text(encoding="utf-8")):
            session = Session((at[0], at[1]), [tuple(metric) for metric in metrics])
            self._known.setdefault((node, device), []).append(session)

    def add(self, messages: Iterable[tuple[str, bytes, int, int]]) -> None:
        """Add certificates: topic name, payload, microseconds since 1970, offset.

        Those that cannot be read are passed over: the measurements job has a reason for
        each.
        """
        changed = False
        for topic, payload, received, offset in messages:
            try:
                session = Session((received, offset), sparkplug.birth(unzipped(payload)))
            except PackError:
                continue
            sessions = self._known.setdefault(_place(topic), [])
            if session in sessions:
                sessions.remove(session)
            sessions.append(session)
            del sessions[:-_KEPT]
            changed = True
        if changed and self._file is not None:
            self._save(self._file)

    def forget(self, device: str) -> int:
        """Remove the certificates of a node or device, and return their number.

        It is named by the last levels of its topic, such as NODE or NODE/DEVICE.
        """
        mine = [
            place
            for place in self._known
            if f"/{'/'.join(filter(None, place))}".endswith(f"/{device}")
        ]
        removed = sum(len(self._known.pop(place)) for place in mine)
        if removed and self._file is not None:
            self._save(self._file)
        return removed

    def _save(self, file: Path) -> None:
        rows = [[*place, *one] for place, found in self._known.items() for one in found]
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}")
        durable.write(new, json.dumps(rows).encode())
        new.replace(file)

    def sessions(self) -> Sessions:
        """Return the certificates, in the order of time."""
        return Sessions(
            {
                place: sorted(sessions, key=lambda session: session.at)
                for place, sessions in self._known.items()
            }
        )
