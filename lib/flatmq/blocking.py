"""Connect and disconnect with blocking calls, for the prompt and for scripts, on top of `poll`."""

from . import port as clock
from .errors import MQTTError
from .port import const, ticks_add, ticks_diff
from .writer import lost

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable

    from .v5_client import Client


def bound(client: "Client", name: str) -> "Callable":
    """Return one of the functions below as a method of `client`.

    A board unloads them after the call.
    """

    def call(*a, **options):
        try:
            return (connect if name == "connect" else disconnect)(client, *a, **options)
        finally:
            from .unload import unload

            unload("blocking")

    return call


def connect(self: "Client", timeout_ms: int = 10000) -> None:
    """Start, and poll until online.

    MQTTError after `timeout_ms`, or at once if the broker refuses or TLS fails. The client
    keeps trying if it is polled afterwards.

    If the network may have cut the TLS handshake, it is tried once more before it is an error.
    """
    last = self.error = None
    self.start()
    end = ticks_add(clock.ticks_ms(), timeout_ms)
    while self.state != "online":
        left = ticks_diff(end, clock.ticks_ms())
        # Falling back to 3.1.1 clears the error.
        if left <= 0 or (self.error and self.error is not last and _final(self.error, last)):
            raise self.error or MQTTError("timeout", f"{self.state} after {timeout_ms} ms")
        last = self.error
        self.poll(left)


def _final(e, last):
    """Return whether error `e`, which came after `last`, would not go away with another try."""
    if e.kind == "tls" and e.code:
        return last and last.kind == "tls"
    return e.kind in ("refused", "tls")


def disconnect(self: "Client", timeout_ms: int = 1000) -> bool:
    """Send everything queued and DISCONNECT (section 3.14), and close.

    Waits for the broker to close, for at most `timeout_ms` in all. Unacknowledged messages are
    kept for the next `start`; whatever comes in meanwhile is discarded.

    Returns whether DISCONNECT was sent; if not, the broker publishes the will.
    """
    return leave(self, timeout_ms, b"\xe0\0")


def leave(self: "Client", timeout_ms: int, packet: bytes) -> bool:
    """Disconnect with `packet`, a DISCONNECT."""
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
        # Closing with unread bytes would reset the connection and lose what was sent.
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
    """Discard incoming bytes. Returns whether the peer has closed."""
    try:
        return c.connection.stream.readinto(c.rx) == 0
    except Exception:
        return True
