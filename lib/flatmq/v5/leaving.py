"""disconnect with what MQTT 5 adds. Loaded for each call."""

from ..port import const, load
from ..wire import number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client5

# What the broker offers: see `v5.server`.
_MAXIMUM_PACKET_SIZE = const(3)

_WITH_WILL = const(4)  # the reason code of a DISCONNECT after which the will is published


def disconnect(
    self: "Client5",
    timeout_ms: int = 1000,
    with_will: bool = False,
    session_expiry: "int | None" = None,
) -> bool:
    """Send everything queued and DISCONNECT (section 3.14), and close: see `Client.disconnect`.
    `with_will`: the broker still publishes the will. `session_expiry`: seconds for which it keeps
    the session from now on; must be 0 if the client was made with 0."""
    packet = b"\xe0\0"
    if self.level == 5 and (with_will or session_expiry is not None):
        from ..properties import block

        if session_expiry and self.ends:
            number("session_expiry of a client that was made with 0", session_expiry, 0, 0)
        data = block({"session_expiry": session_expiry}) if session_expiry is not None else b""
        packet = bytes((0xE0, 1 + len(data), _WITH_WILL if with_will else 0)) + data
        most = self.offers[_MAXIMUM_PACKET_SIZE]
        if self.connected and 0 < most < len(packet):
            raise ValueError(f"DISCONNECT must be at most {most} bytes, not {len(packet)}")
    return load("connecting").leave(self, timeout_ms, packet)
