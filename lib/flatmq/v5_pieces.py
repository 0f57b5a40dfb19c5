"""Send a message larger than the ring, in MQTT 5.

Loaded with the first such message.
"""

from .pieces import Pieces
from .port import const
from .topic import is_name
from .v5 import wrong
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
    """Accept a message of up to 268 MB and send its payload in pieces from where it is: see
    `Client.publish_from`. `properties` are sent with it."""
    if not self.large:
        self.large = Pieces(self)
    head = (0x31 if retain else 0x30) | number("qos", qos, 0, min(self.max_qos, 1)) << 1
    name = field("topic name", topic, is_name)
    block = self.empty
    if properties is not None:
        if not hasattr(properties, "block") or properties.will:
            raise wrong(properties)
        if block:  # else it has fallen back to 3.1.1
            block = properties.block
    if self.strict:
        size = source.seek(0, 2) if hasattr(source, "readinto") else len(source)
        self.allow(2 + len(name) + len(block) + size + (2 if qos else 0), retain)
    pid = self.large.publish(head, name, source, block)
    self.allot()
    return pid
