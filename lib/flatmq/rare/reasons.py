"""Build the MQTTError that says why a connection ended, from a number or an exception."""

from ..errors import MQTTError
from ..port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..client import Client

_END = const(1)
_REFUSED = const(256)
_CLOSED = const(6)  # these and smaller numbers end a connection without a packet
_RESOURCE = (32, 33)  # something is too small here

TEXTS = {
    2: "connecting",
    3: "greeting",
    4: "PINGRESP",
    5: "no acknowledgement",
    6: "interrupted",
    16: "Remaining Length of 5 bytes",
    17: "CONNACK is not first",
    18: "not a topic name",
    19: "shorter than its topic name",
    20: "QoS 3",
    21: "no packet identifier",
    22: "packet identifier 0",
    23: "length",
    24: "type or flags",
    25: "a second CONNACK",
    26: "flags",
    27: "return codes",
    32: "larger than rx_size",
    33: "topic name > rx_size",
}
# Return codes of CONNACK (3.1.1, section 3.2.2.3)
CODES = (
    "unacceptable protocol version", "client identifier rejected", "server unavailable",
    "bad user name or password", "not authorized",
)  # fmt: skip


def explained(c: "Client", what: "Any", doing: "Any", accepted: bool) -> MQTTError:
    """Return the reason for `what` happened while `doing`: see `dial.lost`.

    The first one is printed, if the application is not called.
    """
    error = _reason(c, what, doing, accepted)
    if not (c.stats.losses or c.quiet or (accepted and c.on_disconnect)):
        print(f"flatmq: {error}; trying again")
    return error


def _reason(c, what, doing, accepted):
    """Before CONNACK a link may know the cause: its `why(error)` returns an MQTTError, or None."""
    if isinstance(what, MQTTError):
        return what
    link = c.link
    if what.__class__ is int and what is not _END:
        if what >> 8 == 1:
            code = what - _REFUSED
            text = f"CONNACK: return code {code}"
            if code <= len(CODES):
                text += f", {CODES[code - 1]}"
            if c.five:
                text = load("reasons", "v5").refusal(c, code)
            return MQTTError("refused", text, code)
        text = TEXTS.get(what) or load("reasons", "v5").rule(what)
        if what >= 16:
            kind = "resource" if what in _RESOURCE else "protocol"
            return MQTTError(kind, f"packet {doing:#x}: {text}")
        return MQTTError("closed" if what >= _CLOSED else "timeout", text)
    why = getattr(link, "why", None)
    found = why(0 if what is _END else what) if why and not accepted else None
    if found:
        return found
    where = f" {link.host}:{link.port}" if getattr(link, "host", None) else ""
    text = "closed by the peer" if what is _END else f"{type(what).__name__}: {what}"
    return MQTTError("resource" if doing == "lookup" else "closed", f"{doing}{where}: {text}")
