"""Build and answer AUTH packets (MQTT 5 section 3.15). Loaded with the first of them."""

from .. import MQTTError, properties, wire
from ..engine import HOLD
from ..port import const
from ..properties import block
from ..wire import put_length

wire.held = True
properties.held = True

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

# What the broker offers: see `v5.server`.
_MAXIMUM_PACKET_SIZE = const(3)

_CONTINUE = const(0x18)
_AGAIN = const(0x19)
_CODE = const(47)
_METHOD = const(50)
_AUTH_FIRST = const(52)
_CONNACK_FIRST = const(53)
_AUTH = const(128)  # see walk.TABLE


def authenticate(self: "Client5") -> None:
    """Authenticate again while online (section 4.12.1), with the function of `auth`.

    The connection ends if the broker acknowledges nothing for `ack_timeout`.
    """
    if not self.auth:
        raise ValueError("authenticate needs a client that was made with auth")
    if self.connected:
        self.acks.extend(_packet(self, _AGAIN, self.auth[1](None)))
        if 0 not in self.owed:  # as a packet that awaits an answer
            self.owed.append(0)


def _packet(c, reason, data):
    """Return an AUTH packet. ValueError if it is larger than the broker accepts while online."""
    body = bytes((reason,)) + block({"auth_method": c.auth[0], "auth_data": data})
    packet = bytearray((0xF0,))
    put_length(packet, len(body))
    packet.extend(body)
    most = c.offers[_MAXIMUM_PACKET_SIZE]
    if c.connected and 0 < most < len(packet):
        raise ValueError(f"AUTH must be at most {most} bytes, not {len(packet)}")
    return packet


def other(c: "Client5", t: int, end: int) -> "Any":
    """Handle AUTH. Returns what `packets.other` does."""
    if len(c.acks) > (c.space if c.connected else 0):
        return HOLD  # there is no room to answer; before CONNACK the last answer has not left
    if c.began and not c.connected:
        return _AUTH_FIRST
    code = 0 if t == end else c.rx[t]
    if c.connected and not code:
        c.five.settle(c, 0)
        if end - t < 2:
            return None  # success, in the short form
    return c.five.properties(c, t + 1, end, _AUTH) or _answer(c, code) or True


def accepted(c: "Client5") -> "Any":
    """Handle what CONNACK says about authentication. Returns what `packets.other` does."""
    if c.acks:
        return HOLD
    if c.began:  # its limits would come too late for the rest of that packet
        return _CONNACK_FIRST
    return _answer(c, -1)


def _answer(c, code):
    """Answer an AUTH with this reason code, or with -1 check CONNACK.

    Returns the rule that it breaks, why it ends the connection, or None.
    """
    if code >= 0 and code != _CONTINUE and (code or not c.connected):
        return _CODE | code << 9
    name = c.auth[0].encode() if isinstance(c.auth[0], str) else c.auth[0]
    said = c.said
    if not said or said.get(0x15) != name:
        return _METHOD
    data = said.get(0x16)
    if data is None and code != _CONTINUE:
        return None
    try:
        data = c.auth[1](data)
        if code == _CONTINUE:
            c.acks.extend(_packet(c, code, data))
    except MQTTError as e:
        return e
    except Exception as e:
        # If `poll` raised it, the packet would be handled again.
        return MQTTError("refused", f"auth: {type(e).__name__}")  # its text may be secret
    return None
