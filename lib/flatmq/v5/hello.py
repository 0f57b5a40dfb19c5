"""Build CONNECT (MQTT 5 section 3.1). Loaded for one call."""

from ..port import const, load
from ..wire import field, get_length, put_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

_NAMED = const(54)  # a rule: see `v5.reasons`


def connect(
    c: "Client5",
    client_id: "Any",
    user: "Any",
    password: "Any",
    will: "Any" = None,
    auth_data: bytes = b"",
) -> None:
    """Set the CONNECT of a client.

    `will` is None, or topic, payload, QoS, retain and encoded properties. `auth_data` is a
    property for one connection.
    """
    flags = 2 if c.clean else 0
    body = bytearray((c.keepalive >> 8, c.keepalive & 255))
    block = c.asks
    if auth_data:
        n = get_length(block, 0, len(block)) & 3
        block = _block(block[n + 1 :] + auth_data)
    body.extend(block)
    _add(body, field("client_id", client_id))
    if will is not None:
        flags |= 4 | will[2] << 3 | (32 if will[3] else 0)
        body.extend(will[4])
        _add(body, will[0])
        _add(body, will[1])
    if user is not None:
        flags |= 128
        _add(body, field("user", user))
    if password is not None:
        flags |= 64
        _add(body, field("password", password, None))
    head = bytearray(5)
    head[0] = 0x10
    head = head[: put_length(head, 1, len(body) + 8)]
    head.extend(b"\0\4MQTT\5")
    head.append(flags)
    c.hello = head + body


def _block(data):
    length = bytearray(4)
    return bytes(length[: put_length(length, 0, len(data))] + data)


def _add(body, data):
    body.append(len(data) >> 8)
    body.append(len(data) & 255)
    body.extend(data)


def parts_of(c: "Client5") -> "tuple[Any, Any, Any, Any]":
    """Return what the CONNECT of a client says: client identifier, user, password and will."""
    hello = c.hello
    at = 12 + (get_length(hello, 1, len(hello)) & 3)
    flags = hello[at - 3]
    found: list[Any] = []
    at += _skip(hello, at)
    while at < len(hello):
        if len(found) == 1 and flags & 4:
            n = _skip(hello, at)
            found.append(bytes(hello[at : at + n]))
            at += n
        n = at + 2 + (hello[at] << 8 | hello[at + 1])
        found.append(bytes(hello[at + 2 : n]))
        at = n
    client_id = found.pop(0)
    will = None
    if flags & 4:
        block = found.pop(0)
        will = found.pop(0), found.pop(0), flags >> 3 & 3, flags & 32, block
    user = found.pop(0) if flags & 128 else None
    password = found.pop(0) if flags & 64 else None
    return client_id, user, password, will


def _skip(buf, at):
    """Return the size of the block of properties at `at`."""
    n = get_length(buf, at, len(buf))
    return 1 + (n & 3) + (n >> 2)


def update(c: "Client5", password: "bytes | str | None") -> bytearray:
    """Return the CONNECT of a client for its next connection.

    `password` is None to keep it. The function of `auth` gives the data.
    """
    data = b""
    if c.auth:
        data = load("hello").ask(c.auth[1], None)
        if data is None:
            data = b""
        else:
            data = field("auth_data", data, None)
            data = bytes((0x16, len(data) >> 8, len(data) & 255)) + data
    client_id, user, old, will = parts_of(c)
    connect(c, client_id, user, old if password is None else password, will, data)
    return c.hello


def rename(c: "Client5", name: bytes) -> int:
    """Use the client identifier that the broker has assigned to a client without one.

    Returns the rule that it breaks if the client has one, else 0.
    """
    client_id, user, password, will = parts_of(c)
    if not client_id:
        connect(c, name, user, password, will)
    return _NAMED if client_id else 0


def keep() -> None:
    """Return None: the password stays, and only the data of `auth` change."""
    return None
