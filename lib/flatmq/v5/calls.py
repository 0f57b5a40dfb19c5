"""set_will, publish_from and disconnect with what MQTT 5 adds. Loaded for each call."""

from ..port import const, load
from ..wire import number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..properties import Properties
    from . import Client5

# What the broker offers: see `v5.server`.
_MAXIMUM_PACKET_SIZE = const(3)

_WITH_WILL = const(4)  # the reason code of a DISCONNECT after which the will is published


def set_will(
    self: "Client5",
    topic: "bytes | str | None",
    payload: "bytes | str" = b"",
    qos: int = 0,
    retain: bool = False,
    properties: "Properties | None" = None,
) -> None:
    """Set the message that the broker publishes if a connection ends without DISCONNECT.

    It is for connections from the next one on (section 3.1.2.5). A topic of None removes it.
    """
    block = b"\0"
    if self.five and topic is not None and properties is not None:
        if not hasattr(properties, "block"):
            load("checks").properties(properties)
        block = properties.block
    load("saying").replace(self, topic, payload, qos, retain, block)


def publish_from(
    self: "Client5",
    topic: "bytes | str",
    source: "Any",
    qos: int = 0,
    retain: bool = False,
    properties: "Properties | None" = None,
) -> "int | None":
    """Accept a large message, and send it in pieces: see `Client.publish_from`.

    `properties` are sent with it.
    """
    if properties is not self.properties:
        self.carry(properties)
    return load("parts").publish_from(self, topic, source, qos, retain)


def disconnect(
    self: "Client5",
    timeout_ms: int = 1000,
    with_will: bool = False,
    session_expiry: "int | None" = None,
) -> bool:
    """Send everything queued and DISCONNECT (section 3.14), and close: see `Client.disconnect`.

    `with_will`: the broker still publishes the will. `session_expiry`: seconds for which it keeps
    the session from now on; must be 0 if the client was made with 0.
    """
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
