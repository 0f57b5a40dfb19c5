"""Build the MQTTError that says why a connection ended, from a number or an exception.

Each name of this module, and each text of up to ten bytes, stays in the table of names of a board.
"""

from . import MQTTError
from .port import const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client

_END = const(1)
_NO_CONNACK = const(3)  # this and 2 are timeouts
_CLOSED = const(6)  # these and smaller numbers end a connection without a packet


def reason(c: "Client", error: "Any", step: "Any", accepted: bool) -> MQTTError:
    """Return why a connection ended, by an `error` in a `step`: see `dial.lost`.

    The first one is printed, if the application is not called. Before CONNACK a link may know the
    cause: its `why(error)` gets an exception, 0 for the end of the stream, or another number for
    a timeout, and returns an MQTTError, or None.
    """
    link = c.link
    made = error if isinstance(error, MQTTError) else None
    if (
        not (made or accepted)
        and (error.__class__ is not int or error <= _NO_CONNACK)
        and getattr(link, "why", None)
    ):
        made = link.why(0 if error is _END else error)
    if not made and error.__class__ is int and error is not _END:
        text = {
            2: "no TCP connection in time",
            3: "no CONNACK in time",
            4: "no PINGRESP in time",
            5: "no acknowledgement in time",
            6: "interrupted",
            16: "Remaining Length of 5 bytes",
            17: "CONNACK is not first",
            19: "shorter than its topic name",
            20: "both bits of QoS 3",
            21: "no packet identifier",
            22: "packet identifier 0",
            23: "not of this length",
            24: "not of this type or with these flags",
            25: "a second CONNACK",
            26: "not with these flags",
            27: "not with these return codes",
            32: f"larger than rx_size, which is {len(c.rx) // 2 - 1} bytes",
            # Return codes of CONNACK (3.1.1, section 3.2.2.3)
            257: "CONNACK: return code 1, unacceptable protocol version",
            258: "CONNACK: return code 2, client identifier rejected",
            259: "CONNACK: return code 3, server unavailable",
            260: "CONNACK: return code 4, bad user name or password",
            261: "CONNACK: return code 5, not authorized",
        }.get(error)
        if c.five and (not text or error > 255):
            text = load("reasons", "v5.").explained(c, error) or text
        if error >> 8 == 1:
            text = text or f"CONNACK: return code {error & 255}"
            made = MQTTError("refused", text, error & 255)
        elif error < 16:
            made = MQTTError("closed" if error >= _CLOSED else "timeout", text)
        else:
            kind = "resource" if error >> 1 == 16 else "protocol"  # something is too small here
            made = MQTTError(kind, f"packet {step:#x}: {text}")
    if not made:
        if step == "connect" and link.address is None:
            step = "lookup"
        short = step == "lookup" or isinstance(error, MemoryError)
        kind = "resource" if short else "closed"
        text = "closed by the peer" if error is _END else f"{type(error).__name__}: {error}"
        if getattr(link, "host", None):
            text = f"{step} {link.host}:{link.port}: {text}"
        else:
            text = f"{step}: {text}"
        made = MQTTError(kind, text)
    if not (c.stats.losses or c.quiet or (accepted and c.on_disconnect)):
        print(f"flatmq: {made}; trying again")
    return made
