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


def retain() -> None:
    """Raise ValueError for `retain`."""
    raise ValueError("retain must be False: not supported by this broker")


def packet(size: int, most: int, broker: bool = False) -> None:
    """Raise ValueError for a packet that is too large, for this side or for the `broker`."""
    limit = f"{most} bytes for this broker" if broker else f"tx_size, {most} bytes"
    raise ValueError(f"packet must be at most {limit}, not {size}")


def properties(value: "Any") -> None:
    """Raise TypeError or ValueError for properties that a message may not have."""
    if not hasattr(value, "block"):
        raise TypeError(f"properties must be Properties, not {value!r}")
    raise ValueError("properties must not have will_delay: only a will has it")


def index(index: int, size: int) -> None:
    """Raise IndexError for a byte that a payload has not."""
    raise IndexError(f"payload: index {index} of {size} bytes")


def name(topic: "Any") -> bytes:
    """Return a topic name as bytes. TypeError or ValueError if it is not one."""
    return field("topic name", topic, is_name)


def payload(value: "Any") -> bytes:
    """Return a payload as bytes. TypeError if it is neither a buffer nor str."""
    return field("payload", value, None)
