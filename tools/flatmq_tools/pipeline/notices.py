"""Notices to people while a service goes on: lines, and counts in a line now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter

_EVERY = 60.0  # s between two lines on the same


def say(text: str) -> None:
    """Print a line for people on standard error, if it can be written.

    A service goes on if the disk with its output is full, or whoever read it has gone.
    """
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class Notices:
    """Counts of what happened, by its text. Any thread may add; one reads the lines.

    every  s between two lines with the same text
    """

    def __init__(self, every: float = _EVERY) -> None:
        self._every = every
        self._lock = threading.Lock()
        self._new: Counter[str] = Counter()
        self._example: dict[str, str] = {}
        self._due: dict[str, float] = {}
        self.total: Counter[str] = Counter()
        """Counts since the start, by the text."""

    def add(self, text: str, count: int, example: str = "") -> None:
        """Count what the text describes, with an example of it."""
        if count:
            with self._lock:
                self._new[text] += count
                self.total[text] += count
                self._example[text] = example

    def lines(self) -> list[str]:
        """Return what is new, unless the same was reported a moment ago."""
        now = time.monotonic()
        found = []
        with self._lock:
            for text in [text for text in self._new if now >= self._due.get(text, now)]:
                example = self._example[text]
                found.append(f"{self._new.pop(text):,} {text}{example and f' ({example})'}")
                self._due[text] = now + self._every
        return found
