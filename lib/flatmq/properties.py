"""Encode the properties of packets that are sent (MQTT 5 section 2.2.2)."""

from . import is_name, is_utf8
from .port import const
from .wire import field, number, put_length

held = False  # whether another module keeps this one: see `port.drop`
TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

# Each property that a client sends: its identifier, and of a number the size in bytes, minimum and
# maximum; of the others how they are checked.
_KNOWN = {
    "payload_format": (0x01, 1, 0, 1),
    "expiry": (0x02, 4, 0, 0xFFFFFFFF),
    "content_type": (0x03, is_utf8),
    "response_topic": (0x08, is_name),
    "correlation_data": (0x09, None),
    "session_expiry": (0x11, 4, 0, 0xFFFFFFFF),
    "auth_method": (0x15, is_utf8),
    "auth_data": (0x16, None),
    "problem_information": (0x17, 1, 0, 1),
    "will_delay": (0x18, 4, 0, 0xFFFFFFFF),
    "receive_maximum": (0x21, 2, 1, 65535),
    "maximum_packet_size": (0x27, 4, 1, 0xFFFFFFFF),
}
_GIVEN = const(  # to Properties
    (
        "payload_format",
        "expiry",
        "content_type",
        "response_topic",
        "correlation_data",
        "will_delay",
    )
)


class Properties:
    """Properties of messages or of a will, encoded once, into `block`.

    Any number of messages may use them.

    expiry            seconds after which the broker discards the message if it has not been
                      delivered, 0 to 4,294,967,295
    content_type      type of the payload, such as b"application/json"
    response_topic    topic name for an answer
    correlation_data  bytes that the answer should carry
    payload_format    1 if the payload is UTF-8 text
    will_delay        only for a will: seconds from the end of the connection until it is
                      published, unless the client is back by then; 0 to 4,294,967,295
    user              User Properties: a list of pairs of name and value, or a dict

    str is encoded as UTF-8. ValueError and TypeError name the argument that broke its rule.
    """

    def __init__(self, user: "Any" = (), **given: "Any") -> None:
        for name in given:
            if name not in _GIVEN:
                raise TypeError(f"Properties has no argument {name!r}")
        self.block = block(given, user)
        self.will = "will_delay" in given  # only a will may have it

    def __repr__(self) -> str:
        return f"<Properties {self.block!r}>"


def block(given: dict, user: "Any" = ()) -> bytes:
    """Return properties, given by name, encoded with their length in front.

    Those that are None are left out.
    """
    out = bytearray()
    for name in sorted(given):
        if given[name] is not None:
            _put(out, name, given[name])
    try:
        pairs = iter(user.items() if isinstance(user, dict) else user)
    except TypeError:
        raise TypeError(f"user must be pairs of name and value, not {user!r}") from None
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"user must be pairs of name and value, not {pair!r}")
        out.append(0x26)
        for value in pair:
            _put_field(out, field("user property", value))
    whole = bytearray()
    put_length(whole, len(out))
    return bytes(whole + out)


def _put(out, name, value):
    known: Any = _KNOWN[name]
    out.append(known[0])
    if len(known) == 2:
        _put_field(out, field(name, value, known[1]))
        return
    number(name, value, known[2], known[3])
    for i in range(known[1] - 1, -1, -1):
        out.append(value >> 8 * i & 255)


def _put_field(out, data):
    out.append(len(data) >> 8)
    out.append(len(data) & 255)
    out.extend(data)
