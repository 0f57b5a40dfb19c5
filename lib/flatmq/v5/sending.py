"""publish_from with what MQTT 5 adds. Loaded for each call."""

from ..port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..properties import Properties
    from . import Client5


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
