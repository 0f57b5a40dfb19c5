"""publish_from with what MQTT 5 adds. Loaded for each call."""

from .. import is_name
from ..port import const, load
from ..wire import field, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..properties import Properties
    from . import Client5


# What the broker offers: see `v5.server`.
_RETAIN = const(2)
_MAXIMUM_PACKET_SIZE = const(3)


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
    if not self.large:
        self.large = load("parts").Parts(self)
    head = (0x31 if retain else 0x30) | number("qos", qos, 0, min(self.max_qos, 1)) << 1
    name = field("topic name", topic, is_name)
    block = b""
    if self.five:
        block = b"\0"
        if properties is not None:
            if not hasattr(properties, "block") or properties.will:
                load("checks").properties(properties)
            block = properties.block
        if isinstance(source, str):
            source = source.encode()
        size = 0
        if hasattr(source, "readinto"):
            size = source.seek(0, 2)
        elif hasattr(source, "__len__") or isinstance(source, (bytes, bytearray, memoryview)):
            size = len(source)
        if self.offers[_MAXIMUM_PACKET_SIZE] or not self.offers[_RETAIN]:
            self.allow(len(name) + len(block) + size + (4 if qos else 2), retain)
    if qos and self.inflight < 1:  # messages dropped in flight take up all places
        return None
    pid = self.large.publish(head, name, source, block)
    if self.five:
        self.five.allot(self)
    return pid
