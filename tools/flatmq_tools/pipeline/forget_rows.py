"""The rows of a device that is forgotten, in any table of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from flatmq.rare.wild import matches
from flatmq.wire import is_filter


def check(device: str, filters: Sequence[str]) -> None:
    """Raise ValueError if this names no device, or if a filter breaks a rule of MQTT."""
    if not device:
        raise ValueError("DEVICE must be a name, not an empty text")
    for one in filters:
        name = one.encode()
        if not is_filter(name, 0, len(name)):
            raise ValueError(f"--topic must be a topic filter, not {one}")


class Rows:
    """The test whether rows and messages are those of a device.

    device   its name, as in the column `device`
    filters  topic filters of its messages; those on dev/DEVICE/... if there are none
    """

    def __init__(self, device: str, filters: Sequence[str] = ()) -> None:
        self.device = device
        self._filters = [one.encode() for one in filters]
        self._prefix = f"dev/{device}/"

    def is_topic(self, topic: str) -> bool:
        """Return whether the messages on a topic are of the device."""
        if not self._filters:
            return topic.startswith(self._prefix)
        name = bytearray(topic.encode())
        return any(topic and matches(one, name, 0, len(name)) for one in self._filters)

    def column(self, names: Iterable[str]) -> str | None:
        """Return the column that says of which device a row is; None if there is none."""
        known = set(names)
        return next((name for name in ("device", "topic") if name in known), None)

    def predicate(self, column: str, values: Iterable[str]) -> str | None:
        """Return the rows as a condition of SQL that does not show the name; None for none.

        A log of Delta notes each condition. `values` are those of `column`.
        """
        mine = {one for one in values if one == self.device or column == "topic"}
        if column == "topic":
            mine = {one for one in mine if self.is_topic(one)}
        if not mine:
            return None
        hashes = sorted(hashlib.md5(one.encode(), usedforsecurity=False).hexdigest()
                        for one in mine)  # fmt: skip
        listed = ", ".join(f"'{one}'" for one in hashes)
        return f"md5({column}) IN ({listed})"
