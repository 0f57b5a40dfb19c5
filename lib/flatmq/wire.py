"""Check fields of packets that are sent rarely, read and write Remaining Length, build CONNECT.

Loaded when needed, and not kept by MQTT 3.1.1.
"""

from . import is_utf8
from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

held = False  # whether another module keeps this one: see `port.drop`
_HASH = const(35)
_PLUS = const(43)
_SLASH = const(47)


def put_length(buf: bytearray, n: int) -> None:
    """Append Remaining Length `n`: 0 to 268,435,455, in 1 to 4 bytes (section 2.2.3)."""
    while n > 127:
        buf.append(n & 127 | 128)
        n >>= 7
    buf.append(n)


def get_length(buf: "bytes | bytearray | memoryview", at: int, end: int) -> int:
    """Read a Remaining Length that starts at `at`, from bytes that end at `end`.

    For code that parses packets itself, such as `Client.bulk`.

    Returns `value << 2 | bytes - 1`; -1 if more bytes are needed; -2 if there is a fifth byte,
    where section 2.2.3 allows four.
    """
    value = 0
    for i in range(4):
        if at + i >= end:
            return -1
        value |= (buf[at + i] & 127) << 7 * i
        if buf[at + i] < 128:
            return value << 2 | i
    return -2


def number(name: str, value: int, min: int, max: int) -> int:
    """Return `value` if it is an int from `min` to `max`.

    Otherwise raise ValueError or TypeError, which begin with `name`.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name} must be {min} to {max}, not {value!r}")
    if not min <= value <= max:
        raise ValueError(f"{name} must be {min} to {max}, not {value!r}")
    return value


def field(name: str, value: "bytes | str", match=is_utf8) -> bytes:
    """Return `value` as bytes, with str encoded as UTF-8.

    ValueError, beginning with `name`, if it has more than 65,535 bytes (section 1.5.3) or fails
    `match`; TypeError if it is not bytes.
    """
    if isinstance(value, str):
        try:
            value = value.encode()
        except ValueError:  # which on CPython has the value
            raise ValueError(f"{name} must be UTF-8 text") from None
    elif not isinstance(value, bytes):
        try:
            value = bytes(memoryview(value))  # bytes(5) would be five zeros
        except TypeError:
            raise TypeError(f"{name} must be bytes or str, not {type(value).__name__}") from None
    if len(value) > 65535:
        raise ValueError(f"{name} must be at most 65535 bytes, not {len(value)}")
    if match and not match(value, 0, len(value)):
        raise ValueError(f"{name} {value!r}: {reason(value, match)}")
    return value


def reason(value, match):
    """Return the rule that a field breaks."""
    if not is_utf8(value, 0, len(value)):
        return "U+0000 is not allowed" if b"\0" in value else "not UTF-8 text"
    if not value:
        return "must not be empty"
    if match is is_filter:
        return "a wildcard must be a whole level, and # the last one"
    return "wildcards are not allowed"


def is_filter(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end` are a topic filter.

    It has at least one byte, is UTF-8, no U+0000, "+" and "#" only as a whole level, "#" only
    as the last level.
    """
    for i in range(at, end):
        c = buf[i]
        if c == _PLUS or c == _HASH:
            if i > at and buf[i - 1] != _SLASH:
                return False
            if i + 1 < end and (c == _HASH or buf[i + 1] != _SLASH):
                return False
    return at < end and is_utf8(buf, at, end)


def connect(
    c: "Any", client_id: "Any", user: "Any", password: "Any", will: "Any", block: bytes = b""
) -> None:
    """Set the CONNECT of a client (section 3.1). ValueError for a value out of range.

    `will` is None, or topic, payload, QoS, retain and, for MQTT 5, encoded properties. `block` has
    those of this CONNECT if they are not the usual ones.
    """
    five = c.five
    old = c.version == 3
    flags = 2 if c.clean else 0
    fields: list[Any] = [field("client_id", client_id)]
    if old or not (five or flags):
        number("client_id length", len(fields[0]), 1, 23 if old else 65535)
    if will is not None:
        flags |= 4 | will[2] << 3 | (32 if will[3] else 0)
        fields.extend((will, will[0], will[1]))
    if user is not None:
        flags |= 128
        fields.append(field("user", user))
    if password is not None:
        if user is None and not five:
            raise ValueError("password needs a user")
        flags |= 64
        fields.append(field("password", password, None))
    body = bytearray(b"\0\6MQIsdp" if old else b"\0\4MQTT")
    body.extend(bytes((c.version, flags, c.keepalive >> 8, c.keepalive & 255)))
    if five:
        body.extend(block or c.asks)
    for f in fields:
        if f is not will:
            body.extend(bytes((len(f) >> 8, len(f) & 255)) + f)
        elif five:
            body.extend(will[4])
    head = bytearray(b"\x10")
    put_length(head, len(body))
    c.hello = head + body
