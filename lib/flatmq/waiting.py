"""Ask for a PINGRESP, and wait until messages are settled. Loaded when first called, and kept."""

from . import port
from .port import const, ticks_add, ticks_diff
from .queue import find

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client


def ping(self: "Client") -> None:
    """Send a PINGREQ.

    The connection ends if nothing comes in for `timeout` seconds, or for three quarters of the
    keep alive if that is shorter.
    """
    if self.connected and not self.asked and self.leaving is None:
        self.asked = port.ticks_ms() or -1
        self.acks.extend(b"\xc0\0")
        if self.timeout_ms < self.tick:  # else there is a look at the clock in time
            self.due = self.asked


def wait(self: "Client", timeout_ms: int = 10000) -> bool:
    """Poll until `pending` is 0, for at most `timeout_ms`. Returns whether it is."""
    if timeout_ms.__class__ is not int:
        port.load("checks").ms("timeout_ms", timeout_ms)
    end = ticks_add(port.ticks_ms(), timeout_ms)
    while self.pending:
        left = ticks_diff(end, port.ticks_ms())
        if left <= 0:
            return False
        self.flush()
        if self.pending:
            self.poll(left)
    return True


def awaits(self: "Client", packet_id: int) -> bool:
    """Return whether the message with this packet identifier is not settled yet."""
    if self.large and self.large.waits and self.large.pid == packet_id:
        return True
    if self.renamed:
        packet_id = self.renamed.get(packet_id, packet_id)
    if self.gone and packet_id in self.gone:
        return False
    return find(self, packet_id) >= 0
