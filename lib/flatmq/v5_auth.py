"""Build and answer AUTH packets (MQTT 5 section 3.15).

Loaded with the first of them.
"""

from .port import const
from .properties import block

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from .v5 import Client5
    from .v5_connection import Connection5
    from .v5_walk import View

_CONTINUE = const(0x18)


def packet(reason: int, method: "bytes | str", data: "bytes | str | None") -> bytes:
    """Return an AUTH packet."""
    from .wire import put_length

    body = bytes((reason,)) + block({"auth_method": method, "auth_data": data})
    head = bytearray(5)
    head[0] = 0xF0
    return bytes(head[: put_length(head, 1, len(body))] + body)


def check(client: "Client5", packet: bytes) -> None:
    """Raise ValueError if AUTH is larger than the broker accepts while online."""
    most = client.server.maximum_packet_size
    if client.connected and 0 < most < len(packet):
        raise ValueError(f"AUTH must be at most {most} bytes, not {len(packet)}")


def answer(connection: "Connection5", reason: int, said: "View") -> "str | None":
    """Answer an AUTH packet from the broker. Returns the rule that it breaks, else None."""
    c = connection.client
    auth = c.options["auth"]
    name = auth[0].encode() if isinstance(auth[0], str) else auth[0]
    if said.get(0x15) != name:
        return "authentication method"
    data = said.get(0x16)
    if data is None and not reason:
        return None
    try:
        data = auth[1](data)
    except Exception as e:
        # If `poll` raised it, the packet would be handled again.
        connection.lost(e, "refused", "auth")
        return None
    if reason == _CONTINUE:
        reply = packet(_CONTINUE, name, data)
        try:
            check(c, reply)
        except ValueError as e:
            connection.lost(e, "refused", "auth")
            return None
        connection.send(reply)
    return None
