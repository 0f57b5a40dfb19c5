"""Check the arguments of an MQTT 5 client. Loaded for one call."""

from .. import is_name
from ..message import Message
from ..port import MICROPYTHON, const, drop, load
from ..wire import field, number
from . import packets

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from . import Client5

_FOREVER = const(0xFFFFFFFF)


def new(args: tuple, values: dict) -> "Client5":
    """Return a client. `args` and `values` are those of `Client`."""
    from . import Client5

    client: Client5 = object.__new__(Client5)
    if MICROPYTHON:  # which calls __init__ only for an object of the class that was called
        client.__init__(*args, **values)  # type: ignore[misc]
    return client


def setup(
    c: "Client5",
    *args: "Any",
    version: "int | None" = 5,
    session_expiry: "int | None" = None,
    user_properties: "Any" = None,
    auth: "Any" = None,
    maximum_packet_size: "int | None" = None,
    response_topic: "Any" = None,
    requests: int = 4,
    **given: "Any",
) -> None:
    """Set up a new client from the arguments of its constructor."""
    from ..properties import block

    if auth is not None and (
        not isinstance(auth, (tuple, list)) or len(auth) != 2 or not callable(auth[1])
    ):
        raise TypeError(f"auth must be a pair of a name and a function, not {type(auth).__name__}")
    number("requests", requests, 1, 255)
    if response_topic is not None:
        response_topic = field("response_topic", response_topic, is_name)
    if session_expiry is None and not given.get("clean_session", True):
        session_expiry = _FOREVER
    incoming = given.get("incoming", 32)
    number("incoming", incoming, 1, 65535)
    c.ends = not session_expiry  # the session, with its connection
    c.auth = auth
    c.asks = block(
        {
            "session_expiry": session_expiry,
            "receive_maximum": incoming if incoming < 65535 else None,
            "maximum_packet_size": maximum_packet_size,
            "problem_information": 0,
            "auth_method": auth[0] if auth else None,
        },
        user_properties or (),
    )
    del block
    drop("properties")  # before the buffers: there is room for them then
    c.level = 5
    c.unanswered = 0 if version is None else None
    c.response_topic = response_topic
    c.most_requests = requests
    c.replies = c.properties = c.flow = c.blocks = c.owners = c.said = None
    c.offers = [None] * 14
    load("connack", "v5.").limits(c.offers, lambda identifier, default=None: default)
    if not MICROPYTHON:  # where a client has no __getattr__
        c.server = load("server", "v5.").Server(c)
    c.block = b"\0"
    c.owed = []
    c.strict = c.greeting = False
    c.high = -3  # as `carry` sets it
    c.aliases = c.numbered = 0
    load("setup", "").setup(c, *args, version=5, five=packets, **given)
    if version is None and not c.clean:  # the rule of 3.1.1
        number("client_id length", len(load("hello", "").parts_of(c)[0]), 1, 65535)
    if (auth or version is None) and not c.password:
        # It returns False: the password stays, and the rest of CONNECT changes.
        c.password = bool  # type: ignore[assignment]
    if not MICROPYTHON:  # where a message has no __getattr__
        Message(c.rx, c)
        load("carry", "v5.").begin(c)
    c.slots = c.inflight
    c.own_qos = c.max_qos
    drop("setup", "hello", "wire")
