"""Change what CONNECT says: will and credentials. Loaded for one call."""

from .. import is_name
from ..port import const, load
from ..wire import field, number
from .hello import connect, keep, parts_of

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable

    from ..properties import Properties
    from . import Client5


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
    if not self.five:
        return load("saying").set_will(self, topic, payload, qos, retain)
    will = None
    if topic is not None:
        if properties is not None and not hasattr(properties, "block"):
            load("checks").properties(properties)
        will = (
            field("will topic", topic, is_name),
            field("will payload", payload, None),
            number("will qos", qos, 0, self.max_qos),
            retain,
            b"\0" if properties is None else properties.block,
        )
    client_id, user, password, _ = parts_of(self)
    return connect(self, client_id, user, password, will)


def set_credentials(
    self: "Client5",
    user: "bytes | str | None",
    password: "bytes | str | Callable[[], bytes | str] | None" = None,
) -> None:
    """Set user and password for the next connections.

    `password` may be a function, which is called for each CONNECT.
    """
    if not self.five:
        return load("saying").set_credentials(self, user, password)
    ask = callable(password)
    client_id, _, _, will = parts_of(self)
    connect(self, client_id, user, None if ask else password, will)
    self.password = password if ask else keep if self.auth else None  # type: ignore[assignment]
    return None
