"""One loop for all boards, which polls each when its socket is ready or its time has come."""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from collections.abc import Callable
from typing import Any

from ..trust import Trust
from .link import Link, TLSLink


class Loop:
    """A loop for boards that connect to `address`, an address from socket.getaddrinfo.

    With `trust` by TLS: the broker's certificate must be for the name `host`.
    """

    def __init__(self, address: tuple, host: str, port: int, trust: Trust | None = None) -> None:
        self._address = address
        self._where = (host, port)
        self._trust = trust
        self._context = trust.unpinned() if trust else None
        self.selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.late = 0.0
        """The maximum delay of anything after its time, in seconds."""
        self.online = 0
        """Boards that are."""
        self.on_change: Callable[[Any, str, str], None] | None = None
        """Called with a board, its client's state before, and now."""

    def link(self, board: Any) -> Link:
        """Return a link for a board, which does not connect yet."""
        made = (self.selector, self._address, board)
        if self._trust is None:
            return Link(*made, *self._where)
        return TLSLink(*made, self._trust, *self._where, self._context)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have it called, when the monotonic clock is there."""
        heapq.heappush(self._timers, (when, next(self._order), what))

    def changed(self, board: Any, was: str, now: str) -> None:
        """A board's client has changed its state."""
        if now == "online":
            self.online += 1
        elif was == "online":
            self.online -= 1
        if self.on_change is not None:
            self.on_change(board, was, now)

    def turn(self, until: float) -> None:
        """Call what is due, then wait for what is next, `until` at the latest, and do it."""
        timers = self._timers
        now = time.monotonic()
        # What these set is for the next turn: sockets have theirs in between.
        due = []
        if timers:
            self.late = max(self.late, now - timers[0][0])
        while timers and timers[0][0] <= now:
            due.append(heapq.heappop(timers)[2])
        for what in due:
            what()
        if timers:
            until = min(until, timers[0][0])
        # Rounded up by the selector, to its step of a millisecond.
        for key, events in self.selector.select(max(0.0, until - time.monotonic())):
            key.data.ready(events)

    def close(self) -> None:
        """Close the selector."""
        self.selector.close()
