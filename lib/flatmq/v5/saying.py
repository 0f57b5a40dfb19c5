"""set_will with what MQTT 5 adds. Loaded for one call."""

from ..port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from ..properties import Properties
    from . import Client5


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
