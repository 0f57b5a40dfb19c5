"""Rarely called methods of an MQTT 5 client.

Loaded with each call, and not kept.
"""

from .port import const
from .unload import unload

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable

    from .properties import Properties
    from .v5 import Client5

_WITH_WILL = const(4)  # the reason code of a DISCONNECT after which the will is published
_AGAIN = const(0x19)  # the reason code of an AUTH that asks to authenticate again


def bound(client: "Client5", name: str) -> "Callable":
    """Return one of the functions below as a method of `client`."""
    function = globals()[name]

    def call(*args, **options):
        try:
            return function(client, *args, **options)
        finally:
            unload("v5_methods")

    return call


def set_will(
    self: "Client5",
    topic: "bytes | str | None",
    payload: "bytes | str" = b"",
    qos: int = 0,
    retain: bool = False,
    properties: "Properties | None" = None,
) -> None:
    """Set the message that the broker publishes if a connection ends without DISCONNECT.

    It is for connections from the next one on (section 3.1.2.5). A topic of None removes it.
    """
    if self.level == 4:
        from .setup import set_will

        return set_will(self, topic, payload, qos, retain)
    from .topic import is_name
    from .v5 import block_of
    from .v5_setup import change
    from .wire import field, number

    will = None
    if topic is not None:
        will = (
            field("will topic", topic, is_name),
            field("will payload", payload, None),
            number("will qos", qos, 0, self.max_qos),
            retain,
            b"\0" if properties is None else block_of(properties, True),
        )
    return change(self, {"will": will})


def set_credentials(
    self: "Client5",
    user: "bytes | str | None",
    password: "bytes | str | Callable[[], bytes | str] | None" = None,
) -> None:
    """Set user and password for the next connections.

    `password` may be a function, which is called for each CONNECT.
    """
    if self.level == 4:
        from .setup import set_credentials

        return set_credentials(self, user, password)
    from .v5_setup import change

    return change(self, {"user": user, "password": password})


def drop(self: "Client5", packet_id: int) -> bool:
    """Set a pending message aside: see `Client.drop`."""
    from . import resend

    if self.level == 5 and packet_id in self.ids:
        from .v5_resend import Resend5, is_in_flight

        if not self.past:
            self.past = Resend5(self)
            self.plain = False
        if is_in_flight(self, packet_id):
            self.gone.append(packet_id)
        done = resend.drop(self, packet_id)
        if self.connected:
            self.allot()
        return done
    return resend.drop(self, packet_id)


def disconnect(
    self: "Client5",
    timeout_ms: int = 1000,
    with_will: bool = False,
    session_expiry: "int | None" = None,
) -> bool:
    """Send everything queued and DISCONNECT (section 3.14), and close: see `Client.disconnect`.
    `with_will`: the broker still publishes the will. `session_expiry`: seconds for which it keeps
    the session from now on; must be 0 if the client was made with 0."""
    from .blocking import leave

    packet = b"\xe0\0"
    if self.level == 5 and (with_will or session_expiry is not None):
        from .properties import block
        from .wire import number

        if session_expiry and not self.options["session_expiry"]:
            number("session_expiry of a client that was made with 0", session_expiry, 0, 0)
        data = block({"session_expiry": session_expiry})
        packet = bytes((0xE0, 1 + len(data), _WITH_WILL if with_will else 0)) + data
        most = self.server.maximum_packet_size
        if self.connected and 0 < most < len(packet):
            raise ValueError(f"DISCONNECT must be at most {most} bytes, not {len(packet)}")
    try:
        return leave(self, timeout_ms, packet)
    finally:
        unload("blocking", "properties", "wire", "topic")


def authenticate(self: "Client5") -> None:
    """Authenticate again while online (section 4.12.1), with the function of `auth`."""
    auth = self.options["auth"]
    if not auth:
        raise ValueError("authenticate needs a client that was made with auth")
    if self.connected:
        from .v5_auth import check, packet

        data = packet(_AGAIN, auth[0], auth[1](None))
        check(self, data)
        self.urgent.append(data)
        self.queued = True
        self.plain = False
