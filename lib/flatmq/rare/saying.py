"""Change what CONNECT says: will, credentials and the rest. Loaded for one call."""

from .. import is_name
from ..hello import parts_of
from ..port import const, load
from ..wire import connect, field, number

TYPE_CHECKING = const(0)
_NEVER = const(268435455)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
    replace(self, topic, payload, qos, retain, b"\0")


def replace(c: "Client", topic, payload, qos: int, retain: bool, block: bytes) -> None:
    """Set the will of a client, or remove it. `block`: its encoded properties, in MQTT 5."""
    will = None
    if topic is not None:
        if qos.__class__ is not int or qos < 0 or qos > c.max_qos:
            load("checks").qos(qos, c.max_qos, "will qos")
        if retain not in (False, True):
            load("checks").bool("will retain", retain)
        will = (
            field("will topic", topic, is_name),
            field("will payload", payload, None),
            qos,
            retain,
            block,
        )
    client_id, user, password, _ = parts_of(c)
    connect(c, client_id, user, password, will)


def set_credentials(
    self: "Client",
    user: "bytes | str | None",
    password: "bytes | str | Callable[[], bytes | str] | None" = None,
) -> None:
    """Set user and password for the next connections.

    `password` may be a function, which is called for each CONNECT.
    """
    ask: Any = password if callable(password) else None
    if ask and user is None and not self.five:
        raise ValueError("password needs a user")
    client_id, _, _, will = parts_of(self)
    connect(self, client_id, user, None if ask else password, will)
    five: Any = self.five and self
    if five and not ask and (five.auth or five.unanswered is not None):
        ask = bool  # see `v5.setup`
    self.password = ask


def reconfigure(
    self: "Client", client_id, user, password, keepalive, clean_session, timeout, will, link
) -> None:
    """Set what an offline client is connected with; subscriptions and memory stay.

    The arguments are those of `Client`; `will` is None or the arguments of `set_will`.
    """
    number("keepalive", keepalive, 0, 65535)
    before = self.clean, self.keepalive
    self.clean = clean_session
    self.keepalive = keepalive
    try:
        connect(self, client_id, user, password, None)
    except:
        self.clean, self.keepalive = before
        raise
    self.password = None
    self.interval = keepalive * 750 or _NEVER
    self.timeout_ms = timeout * 1000
    self.tick = min(self.tick, self.interval)
    self.link = link
    self.set_will(*(will or (None,)))
