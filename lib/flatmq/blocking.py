"""Connect and disconnect at the prompt or in a script: calls that wait, on top of `poll`."""

from . import client as clock
from .client import MQTTError
from .port import const, ticks_add, ticks_diff
from .writer import lost

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Client


def bound(client: "Client", name: str) -> "Callable":
    """Return one of the functions below as a method of `client`. A board lets go of them after
    the call."""

    def call(*a, **options):
        try:
            return (connect if name == "connect" else disconnect)(client, *a, **options)
        finally:
            from .unload import unload

            unload("blocking")

    return call


def connect(self: "Client", timeout_ms: int = 10000) -> None:
    """Start, and poll until online. MQTTError after `timeout_ms`, and at once if the broker
    refuses or TLS fails; the client goes on trying if it is polled.

    A handshake that the network may have cut is tried once more before that is an error.
    """
    last = self.error = None
    self.start()
    end = ticks_add(clock.ticks_ms(), timeout_ms)
    while self.state != "online":
        left = ticks_diff(end, clock.ticks_ms())
        # After falling back to 3.1.1 there is no error any more.
        if left <= 0 or (self.error and self.error is not last and _final(self.error, last)):
            raise self.error or MQTTError("timeout", f"{self.state} after {timeout_ms} ms")
        last = self.error
        self.poll(left)


def _final(e, last):
    """Return whether no further try mends error `e`, which came after `last`."""
    if e.kind == "tls" and e.code:
        return last and last.kind == "tls"
    return e.kind in ("refused", "tls")


def disconnect(self: "Client", timeout_ms: int = 1000) -> bool:
    """Send what is queued and DISCONNECT (section 3.14), wait for the broker to close, for at
    most `timeout_ms` in all, and close. What is not acknowledged is kept for the next `start`;
    what comes in meanwhile is not.

    Returns whether DISCONNECT has left; if not, the broker publishes the will.
    """
    return leave(self, timeout_ms, b"\xe0\0")


def leave(self: "Client", timeout_ms: int, packet: bytes) -> bool:
    """Disconnect with that DISCONNECT."""
    end = ticks_add(clock.ticks_ms(), timeout_ms)
    asked = gone = False
    while self.state == "online":
        self.flush()
        if self.state != "online":
            break
        if not self.queued and not asked:
            asked = self.queued = True
            self.plain = False
            self.urgent.append(packet)
            continue
        gone = asked and not self.queued
        # Closing with bytes unread would reset the connection, and what was sent with it.
        left = ticks_diff(end, clock.ticks_ms())
        if left <= 0 or _ended(self):
            break
        self.link.wait(left, self.blocked)
    if self.connection:
        self.connection.close()
        lost(self)
    self.state = "offline"
    return gone


def _ended(c):
    """Throw away what came in. Return whether the peer has closed."""
    try:
        return c.connection.stream.readinto(c.rx) == 0
    except Exception:
        return True
