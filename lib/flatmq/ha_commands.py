"""The commands that components of Home Assistant (`ha`) take. Loaded with the first of these."""

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .ha import Component
    from .message import Message

PRESSES = {b"button": b"PRESS", b"update": b"INSTALL"}


def wanted(c: "Component", message: "Message") -> "Any":
    """Return what a command asks of a component; None if that is not allowed."""
    kind = c.platform
    if kind in PRESSES:
        return (message.is_payload(PRESSES[kind]) and not message.retain) or None
    if kind == b"number" and c.limits:
        return _number(message, c.limits)
    on = True if message.is_payload(b"ON") else False if message.is_payload(b"OFF") else None
    if kind == b"switch":
        return on
    if kind == b"light":
        value = message.number() if on is None else 255 if on else 0
        return value if value is not None and 0 <= value <= 255 else None
    return message.payload


def _number(message, limits):
    value = _scaled(message, limits[3])
    if value is None or not limits[0] <= value <= limits[1] or (value - limits[0]) % limits[2]:
        return None
    return value


def _scaled(message, decimals):
    """Return a decimal number in the payload as an int of 10 ** -`decimals`, rounded, or None.

    Home Assistant computes in floating point: 0.1 + 0.2 is 0.30000000000000004.
    """
    n = len(message)
    if not n or not 48 <= message[n - 1] <= 57:
        return None
    n = 0
    more = -1  # digits after the point to be read, one of them for rounding; -1: no point yet
    for i in range(len(message)):
        c = message[i]
        if 48 <= c <= 57 and n < 100000000:
            if more:
                n = n * 10 + c - 48
                more -= more > 0
        elif c == 46 and more < 0:
            more = decimals + 1
        elif c != 45 or i:
            return None
    if more < 0:
        more = decimals + 1
    while more:
        n *= 10
        more -= 1
    n = (n + 5) // 10
    return -n if message[0] == 45 else n
