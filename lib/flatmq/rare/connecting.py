"""Connect and disconnect with blocking calls, for the prompt and for scripts, on top of `poll`."""

from .. import MQTTError, port
from ..port import const, load, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .. import Client

_LEFT = const(7)


def connect(self: "Client", timeout_ms: int = 10000) -> None:
    """Start, and poll until online.

    MQTTError after `timeout_ms`, or at once if the broker refuses or TLS fails. The client
    keeps trying if it is polled afterwards.

    If the network may have cut the TLS handshake, it is tried once more before it is an error.
    """
    if timeout_ms.__class__ is not int:
        load("checks").ms("timeout_ms", timeout_ms)
    end = ticks_add(port.ticks_ms(), timeout_ms)
    last = self.error = None
    quiet = self.quiet
    self.quiet = True  # this raises
    try:
        self.start()
        while self.state != "online" or self.leaving is not None:
            left = ticks_diff(end, port.ticks_ms())
            if left <= 0 or (self.error and self.error is not last and _final(self.error, last)):
                raise self.error or MQTTError("timeout", f"{self.state} after {timeout_ms} ms")
            last = self.error
            self.poll(left)
    finally:
        self.quiet = quiet


def _final(e, last):
    """Return whether error `e`, which came after `last`, would not go away with another try."""
    if e.kind == "tls" and e.code:
        return last and last.kind == "tls"
    return e.kind in ("refused", "tls")


def disconnect(self: "Client", timeout_ms: int = 1000) -> bool:
    """Send everything queued and DISCONNECT (section 3.14), and close.

    What may not be sent now, such as a message beyond the broker's Receive Maximum, is left out.
    If `gate` raises, that is raised after DISCONNECT.

    Waits for the broker to close, for at most `timeout_ms` in all. Unacknowledged messages are
    kept for the next `start`; whatever comes in meanwhile is discarded.

    Returns whether DISCONNECT was sent; if not, the broker publishes the will. In a handler it
    is sent, if the network takes it, after the handler has returned, and this returns False.
    """
    return leave(self, timeout_ms, b"\xe0\0")


def leave(c: "Client", timeout_ms: int, packet: bytes) -> bool:
    """Disconnect with `packet`, a DISCONNECT."""
    if timeout_ms.__class__ is not int:
        load("checks").ms("timeout_ms", timeout_ms)
    end = ticks_add(port.ticks_ms(), timeout_ms)
    gone = False
    failed = None  # what the gate has raised
    asked = c.leaving == b""  # this was interrupted after DISCONNECT: nothing may follow
    if c.state == "offline":
        return False
    for r in c.requests:  # the next start asks at once: see `subs.lost`
        r.pause = r.strikes = 0
    if c.stream:
        # Even if Ctrl-C comes: the next poll ends the connection.
        c.leaving = b"" if asked else ()
    c.due = port.ticks_ms()
    while c.state == "online":
        try:
            more = c.step(None)
        except ValueError:
            c.leaving = packet  # called by a handler: the engine does it
            c.due = port.ticks_ms()
            return False
        if more is not False and more is not True:
            if not c.connected or not isinstance(more, Exception):
                raise more
            failed = more
            more = False
        if c.state != "online":
            break
        if not (asked or more or (c.large and c.large.sending)):
            asked = True
            c.leaving = b""  # nothing may follow
            c.acks[0:] = packet  # instead of what the gate holds back
            continue
        gone = asked and not c.acks
        # Closing with unread bytes would reset the connection and lose what was sent.
        left = ticks_diff(end, port.ticks_ms())
        if left <= 0 or _ended(c):
            break
        c.link.wait(left, more)
    if c.stream:
        c.due = port.ticks_ms()
        c.poll()
    elif c.state != "offline":
        load("dial", "").lost(c, _LEFT, "")
    if failed:
        raise failed
    return gone


def _ended(c):
    """Discard incoming bytes. Returns whether the peer has closed."""
    try:
        return c.stream.readinto(c.rx) == 0
    except Exception:
        return True


def abandon(self: "Client") -> None:
    """Close the connection without DISCONNECT, and forget all messages to be sent."""
    if self.stream:
        self.leaving = b""
        self.due = port.ticks_ms()
        self.poll()
    elif self.state != "offline":
        error = self.error
        load("dial", "").lost(self, _LEFT, "")
        self.error = error
    if self.large and self.large.waits:
        self.large.set_aside("dropped by the application")
    self.q[0:] = b""
    self.end = self.kept = self.pending = 0
    self.gone = self.alone = self.renamed = None
    self.full = False
