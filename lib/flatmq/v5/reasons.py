"""Texts for reason codes (MQTT 5 section 2.4), and messages that the broker refuses.

Loaded for a reason code that reports a failure, and for the end of a connection.
"""

import errno

from .. import MQTTError
from ..engine import end_of
from ..port import const, load
from ..queue import find
from .walk import TABLE

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from . import Client5

# What the broker offers: see `v5.server`.
_REFERENCE = const(12)
_REASON = const(13)

_DISCONNECT = const(64)  # see walk.TABLE
# Reason codes of DISCONNECT with which a broker may refuse a message or a topic filter.
_ACCUSING = const(b"\x80\x81\x82\x83\x87\x8f\x90\x95\x97\x99\x9a\x9b\x9e\xa1\xa2")
# For each rule from 16 on, the last digits of the reason code with which DISCONNECT says that the
# broker broke it: 0x80 and these. 0: nothing is said.
_SAID = const(
    b"\1\2\0\1\1\1\2\1\1\2\1\2\0\0\0\0\x15\x15\0\0\0\0\0\0\1\1\2\1\2\1\x14\2\2\0\2\2\2\2\2"
)
_FORGOTTEN = const(0x92)
# The QoS bits of the message that may wait for a packet: see `engine`.
_WAITS = {0x40: 2, 0x50: 4, 0x70: 6}
_RULES = {
    40: "property length",
    41: "property {} is not allowed here",
    42: "property {} twice",
    43: "property {} is not whole",
    44: "value of property {}",
    45: "text of property {}",
    46: "topic alias that is not allowed",
    47: "reason code {}",
    48: "session present",
    49: "Maximum Packet Size below 4",
    50: "authentication method",
    51: "AUTH without an authentication method",
    52: "AUTH before CONNECT has left",
    53: "CONNACK before CONNECT has left",
    54: "a client identifier that was not asked for",
}
_NAMES = {
    0x04: "disconnect with will",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep alive timeout",
    0x8E: "session taken over",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found",
    0x93: "receive maximum exceeded",
    0x94: "topic alias invalid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}


def text(packet: str, code: int, client: "Client5 | None" = None) -> str:
    """Return a text for a packet with this reason code.

    With a client, include the reason and the server reference that the broker sent.
    """
    said = f"{packet}: reason code {code:#x}"
    if code in _NAMES:
        said += f", {_NAMES[code]}"
    if client:
        for more in (client.offers[_REASON], client.offers[_REFERENCE]):
            if more:
                said += f", {more.decode()}"
    return said


def explained(c: "Client5", what: int) -> str:
    """Return the text for a CONNACK that refuses, or for a rule that a packet breaks."""
    code = what & 255
    if what >> 8 == 1:
        if code < 128 and c.level < 5:
            return ""  # as in 3.1.1
        if code < 128:
            return f"CONNACK of MQTT 3.1.1: return code {code}"
        return text("CONNACK", code, c)
    if what & 511 == 41 and not TABLE[what >> 9 : (what >> 9) + 1].strip(b"\0"):
        return f"property {what >> 9:#x} is unknown"
    return _RULES[what & 511].format(hex(what >> 9))


def other(c: "Client5", t: int, end: int) -> "MQTTError | int":
    """Handle DISCONNECT (section 3.14). Returns why the connection ends."""
    code = 0 if t == end else c.rx[t]
    what = c.five.properties(c, t + 1, end, _DISCONNECT)
    if what:
        return what
    said = c.said
    c.offers[_REFERENCE] = said and said.get(0x1C)
    c.offers[_REASON] = said and said.get(0x1F)
    error = MQTTError("closed", text("DISCONNECT", code, c), code)
    if code in _ACCUSING:  # as if the peer had closed: what was sent last may be the cause
        error.errno = errno.ECONNRESET  # type: ignore[attr-defined]
    return error


def send(c: "Client5", rule: int) -> None:
    """Send DISCONNECT with the reason code for a rule that the broker broke, if there is one."""
    if _SAID[rule - 16]:
        packet = bytes((0xE0, 1, 0x80 + _SAID[rule - 16]))
        c.stream.write(packet, 0, len(packet))


def refused(c: "Client5", first: int, t: int) -> "bool | None":
    """Settle a message that the broker refused, or with PUBCOMP 0x92 has forgotten.

    The packet that says so has the first byte `first`, and its packet identifier and its reason
    code are at `t` in the buffer. Returns True if the message was in the queue, else None.
    """
    pid = c.rx[t] << 8 | c.rx[t + 1]
    taken = _refused(c, first, pid, c.rx[t + 2])
    c.five.settle(c, pid)
    return taken


def _refused(c, first, pid, code):
    q = c.q
    p = find(c, pid)
    reason = text({0x40: "PUBACK", 0x50: "PUBREC"}.get(first, "PUBCOMP"), code)
    if c.large and c.large.waits and c.large.pid == pid and first == 0x40 and not c.large.sending:
        c.large.set_aside(reason)
    elif 0 <= p < c.sent and end_of(q, p) <= c.sent and q[p] & 6 == _WAITS[first]:
        if first == 0x70 and code != _FORGOTTEN:
            q[p] &= 0xFD  # `report` leaves out what is past PUBREC
        load("strays").remove(c, p, pid, reason)
        return True
    else:
        c.stats.strays += 1
    return None
