"""Encode the properties of packets that are sent (MQTT 5 section 2.2.2)."""

from .port import const
from .wire import field, number, put_length

held = False  # whether another module keeps this one: see `port.drop`
TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

# The type of a value: the size of a number in bytes, or one of these.
_BYTES = const(6)
_TEXT = const(7)
_NAME = const(8)  # a topic name

# Each property that a client sends: identifier, type, minimum and maximum.
_KNOWN = {
    "payload_format": (0x01, 1, 0, 1),
    "expiry": (0x02, 4, 0, 0xFFFFFFFF),
    "content_type": (0x03, _TEXT, 0, 0),
    "response_topic": (0x08, _NAME, 0, 0),
    "correlation_data": (0x09, _BYTES, 0, 0),
    "session_expiry": (0x11, 4, 0, 0xFFFFFFFF),
    "auth_method": (0x15, _TEXT, 0, 0),
    "auth_data": (0x16, _BYTES, 0, 0),
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
    pairs = user.items() if isinstance(user, dict) else user
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"user must be pairs of name and value, not {pair!r}")
        out.append(0x26)
        for value in pair:
            _put_field(out, field("user property", value))
    length = bytearray(4)
    return bytes(length[: put_length(length, 0, len(out))] + out)


def _put(out, name, value):
    identifier, kind, least, most = _KNOWN[name]
    out.append(identifier)
    if kind < _BYTES:
        number(name, value, least, most)
        for i in range(kind):
            out.append(value >> 8 * (kind - 1 - i) & 255)
    elif kind == _BYTES:
        _put_field(out, field(name, value, None))
    elif kind == _NAME:
        from . import is_name

        _put_field(out, field(name, value, is_name))
    else:
        _put_field(out, field(name, value))


def _put_field(out, data):
    out.append(len(data) >> 8)
    out.append(len(data) & 255)
    out.extend(data)
