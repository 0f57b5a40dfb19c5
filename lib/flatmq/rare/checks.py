"""Check what `publish` was given and is not plain. Loaded for one call."""

from .. import is_name
from ..port import const
from ..wire import field, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def qos(value: int, most: int) -> None:
    """Raise TypeError or ValueError for a bad QoS."""
    number("qos", value, 0, most)
    raise TypeError(f"qos must be 0 to {most}, not {value!r}")


def name(topic: "Any") -> bytes:
    """Return a topic name as bytes. TypeError or ValueError if it is not one."""
    return field("topic name", topic, is_name)


def payload(value: "Any") -> bytes:
    """Return a payload as bytes. TypeError if it is neither a buffer nor str."""
    return field("payload", value, None)
