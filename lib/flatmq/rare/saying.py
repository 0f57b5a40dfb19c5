"""Change what CONNECT says: will, credentials and the rest. Loaded for one call."""

from .. import is_name
from ..port import const
from ..wire import connect, field, number
from .hello import parts_of

TYPE_CHECKING = const(0)
_NEVER = const(268435455)
if TYPE_CHECKING:
    from collections.abc import Callable

    from .. import Client


def set_will(
    self: "Client",
    topic: "bytes | str | None",
    payload: "bytes | str" = b"",
    qos: int = 0,
    retain: bool = False,
) -> None:
    """Set the message that the broker publishes if a connection ends without DISCONNECT.

    It is for connections from the next one on (section 3.1.2.5). A topic of None removes it.
    """
    will = None
    if topic is not None:
        will = (
            field("will topic", topic, is_name),
            field("will payload", payload, None),
            number("will qos", qos, 0, self.max_qos),
            retain,
        )
    _, user, password, _ = parts_of(self)
    _change(self, user, password, will)


def set_credentials(
    self: "Client",
    user: "bytes | str | None",
    password: "bytes | str | Callable[[], bytes | str] | None" = None,
) -> None:
    """Set user and password for the next connections.

    `password` may be a function, which is called for each CONNECT.
    """
    ask = password if callable(password) else None
    if ask and user is None:
        raise ValueError("password needs a user")
    _change(self, user, None if ask else password, parts_of(self)[3])
    self.password = ask


def reconfigure(
    self: "Client", client_id, user, password, keepalive, clean_session, timeout, will, link
) -> None:
    """Set what an offline client is connected with; subscriptions and memory stay.

    The arguments are those of `Client`; `will` is None or the arguments of `set_will`.
    """
    number("keepalive", keepalive, 0, 65535)
    hello = connect(self.version, client_id, clean_session, keepalive, user, password, None)
    self.hello = hello
    self.password = None
    self.clean = clean_session
    self.keepalive = keepalive
    self.interval = keepalive * 750 or _NEVER
    self.timeout_ms = timeout * 1000
    self.tick = min(self.tick, self.interval)
    self.link = link
    self.set_will(*(will or (None,)))


def _change(c, user, password, will):
    client_id = parts_of(c)[0]
    c.hello = connect(c.version, client_id, c.clean, c.keepalive, user, password, will)
