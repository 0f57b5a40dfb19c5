"""Publish once there is room. Loaded when first called, and kept."""

from .. import port
from ..port import const, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .. import Client

_SOON = const(20)  # ms after which room is looked for again


def publish_wait(
    self: "Client",
    topic: "bytes | str",
    payload: "bytes | bytearray | memoryview | str" = b"",
    qos: int = 0,
    retain: bool = False,
    timeout_ms: int = 10000,
    **more: "Any",
) -> "int | None":
    """Publish, and poll until there is room for the message, for at most `timeout_ms`.

    Returns and raises what `publish` does; None if there was no room in that time.
    """
    if timeout_ms.__class__ is not int:
        port.load("checks").ms("timeout_ms", timeout_ms)
    end = ticks_add(port.ticks_ms(), timeout_ms)
    while True:
        packet_id = self.publish(topic, payload, qos, retain, **more)
        left = ticks_diff(end, port.ticks_ms())
        if packet_id is not None or left <= 0:
            return packet_id
        self.flush()
        self.poll(min(left, _SOON))
