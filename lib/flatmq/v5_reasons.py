"""Texts for reason codes (MQTT 5 section 2.4), and messages that the broker refuses.

Loaded with the first reason code that reports a failure.
"""

from .port import const

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .v5 import Client5

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
        for more in (client.server.reason, client.server.reference):
            if more:
                said += f", {more.decode()}"
    return said


def refused(c: "Client5", first: int, pid: int, code: int) -> bool:
    """Settle a message that the broker refused with PUBACK or PUBREC, or has forgotten.

    The latter is what its PUBCOMP says. Returns False if nothing waits for the packet.
    """
    if pid not in c.ids:
        return False
    i = c.ids.index(pid)
    if i > c.slots:
        return False
    reason = text({0x40: "PUBACK", 0x50: "PUBREC"}.get(first, "PUBCOMP"), code)
    if i == c.slots:
        if first != 0x40 or c.large.sending:
            return False
        c.large.set_aside(reason)
        return True
    if first == 0x70:
        return c.settle(first, pid)
    if c.waits[i] != first:
        return False
    at = c.offs[i] + 1
    while c.buf[at] > 127:
        at += 1
    n = c.buf[at + 1] << 8 | c.buf[at + 2]
    topic = bytes(c.buf[at + 3 : at + 3 + n])
    c.release(i)
    c.stats.dropped += 1
    if c.on_dropped:
        c.on_dropped(pid, topic, reason)
    return True
