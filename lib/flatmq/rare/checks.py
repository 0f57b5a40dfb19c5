"""Check arguments that are not plain, and name the ones that break a rule."""

from .. import is_name
from ..port import const
from ..wire import field, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any


def qos(value: int, most: int, name: str = "qos") -> int:
    """Return a QoS if it is one; ValueError or TypeError if not, as for True: in umqtt, that is
    the place of `retain`."""
    if value is True or value is False:
        raise TypeError(f"{name} must be 0 to {most}, not {value}")
    return number(name, value, 0, most)


def bool(name: str, value: "Any") -> None:
    """Raise TypeError for a value that is neither True nor False, nor 1 or 0."""
    if value not in (False, True):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def ms(name: str, value: "Any") -> None:
    """Raise TypeError for a number of milliseconds that is no int."""
    raise TypeError(f"{name} must be an int, not {value!r}")


def decimals(value: "Any", decimals: int) -> None:
    """Raise TypeError for a value that is no int, else check its number of decimals."""
    if value.__class__ is not int:
        ms("value", value)
    number("decimals", decimals, 0, 300)


def label(value: "Any") -> None:
    """Raise ValueError for what begins no record of a pack."""
    raise ValueError(f"label must be what label() returns, not {value!r}")


def request(handler: "Any", timeout: int) -> None:
    """Raise TypeError or ValueError for a bad handler or timeout of a request."""
    if not callable(handler):
        raise TypeError(f"handler must be callable, not {handler!r}")
    number("timeout", timeout, 1, 65535)


def retain(value: "Any") -> None:
    """Raise TypeError for a `retain` that is no bool, else ValueError."""
    bool("retain", value)
    raise ValueError("retain must be False: not supported by this broker")


def packet(size: int, most: int, broker: "Any" = False) -> None:
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
