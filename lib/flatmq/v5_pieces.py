"""Send a message larger than the ring, in MQTT 5.

Loaded with the first such message.
"""

from .pieces import Pieces
from .port import const
from .topic import is_name
from .v5 import block_of
from .wire import field, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .properties import Properties
    from .v5 import Client5


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
        self.large = Pieces(self)
    head = (0x31 if retain else 0x30) | number("qos", qos, 0, min(self.max_qos, 1)) << 1
    name = field("topic name", topic, is_name)
    block = self.empty
    if properties is not None and block:  # no block: the client has fallen back to 3.1.1
        block = block_of(properties)
    if self.level == 5:
        if isinstance(source, str):
            source = source.encode()
        size = 0
        if hasattr(source, "readinto"):
            size = source.seek(0, 2)
        elif hasattr(source, "__len__") or isinstance(source, (bytes, bytearray, memoryview)):
            size = len(source)
        self.allow(len(name) + len(block) + size + (4 if qos else 2), retain)
    if qos and self.quota < 1:  # messages dropped in flight take up all places
        return None
    pid = self.large.publish(head, name, source, block)
    if self.connected:
        self.allot()
    return pid
