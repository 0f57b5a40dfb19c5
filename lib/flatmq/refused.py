"""Handle requests that make the peer close the connection.

Some brokers close it when a topic filter is not allowed.

Loaded when that may have happened.
"""

from .port import const, ticks_add, ticks_diff
from .requests import packet

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .router import Router

_SOON = const(20)  # ms until the answer to PINGREQ is checked for again


def lost(router: "Router", closed: bool) -> None:
    """Handle the end of a connection. `closed`: the peer had accepted it and closed it."""
    if router.past:
        router.past.lost(closed)
    elif closed and router.client.options["give_up"] and any(r.id for r in router.requests):
        router.past = OneByOne(router)


class OneByOne:
    """Requests that are sent one at a time, until all are answered.

    A request that was `alone` in flight when the peer closed, `give_up` times in a row, is set
    aside. Messages from an earlier connection wait meanwhile, but at most `timeout` seconds: a
    peer that never answers the request may still take them.
    """

    def __init__(self, router: "Router") -> None:
        self._router = router
        self.alone: Any = None
        self._suspect: Any = None
        self._strikes = 0
        self._since = 0

    def holds(self) -> bool:
        """Return whether messages have to wait."""
        s = self._router.client
        return ticks_diff(s.now, self._since) < s.options["timeout"] * 1000

    def resume(self) -> None:
        """Begin after CONNACK."""
        self._since = self._router.client.now
        if self._router.requests:
            self._router.client.connection.ping()
        self.answered()

    def answered(self) -> None:
        """Send the next request, because one was answered."""
        self.alone = None
        if self._router.requests:
            self.send()
        else:
            self._router.past = None

    def send(self) -> None:
        """Send the first request if none is in flight and PINGREQ has been answered.

        Otherwise a peer that closes every connection would put the blame on the request.
        """
        s = self._router.client
        if not s.open or self.alone:
            return
        if s.asked:
            self._router.waiting = True
            s.due = ticks_add(s.now, _SOON)
            return
        self.alone = r = self._router.requests[0]
        r.id = s.next_id()
        s.ids.append(r.id)
        s.urgent.append(packet(r))
        s.queued = True
        s.plain = False

    def lost(self, closed: bool) -> None:
        """Handle the end of a connection, `closed` by the peer or not."""
        r = self.alone
        self.alone = None
        if not closed:
            self._strikes = 0
        elif r and self.holds():
            self._strikes = self._strikes + 1 if r is self._suspect else 1
            self._suspect = r
            if self._strikes == self._router.client.options["give_up"]:
                self._set_aside(r)

    def _set_aside(self, r):
        router = self._router
        s = router.client
        s.ids.remove(r.id)
        r.id = 0
        r.granted = b"\x80" * len(r.filters)
        router.requests.remove(r)
        if r in router.subscriptions:
            router.subscriptions.remove(r)
            router.forget()
        s.stats.dropped += 1
        if s.on_dropped:
            for f in r.filters:
                s.on_dropped(0, f, "the broker closed the connection on this topic filter")
