"""Check the arguments of an MQTT 5 client, and build its CONNECT.

Loaded when needed, and not kept.
"""

from .port import const
from .properties import block
from .setup import options, prepare
from .topic import is_name
from .unload import unload
from .v5_server import Server
from .wire import field, number, put_length

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .v5 import Client5

# The arguments that only MQTT 5 has.
_OWN = {
    "session_expiry": None,
    "user_properties": None,
    "auth": None,
    "maximum_packet_size": None,
    "response_topic": None,
    "requests": 4,
}
_FOREVER = 0xFFFFFFFF


def make(c: "Client5", *args: "Any", version: "int | None" = 5, **given: "Any") -> None:
    """Set up a new client from the arguments of its constructor."""
    own: dict[str, Any] = {name: given.pop(name, _OWN[name]) for name in _OWN}
    o = options(*args, **given)
    o.update(own)
    o["version"] = 5
    o["falls_back"] = version is None
    auth = o["auth"]
    if auth is not None and (
        not isinstance(auth, (tuple, list)) or len(auth) != 2 or not callable(auth[1])
    ):
        raise TypeError(f"auth must be a pair of a name and a function, not {auth!r}")
    number("requests", o["requests"], 1, 255)
    if o["response_topic"] is not None:
        field("response_topic", o["response_topic"], is_name)
    if o["session_expiry"] is None and not o["clean_session"]:
        o["session_expiry"] = _FOREVER
    prepare(c, o)
    c.level = 5
    c.server = Server()
    c.properties = None
    c.block = c.empty = b"\0"
    c.scratch = bytearray()
    c.quota = c.slots
    c.gone = []
    c.strict = False
    c.hello = hello_of(o)
    forget()


def forget() -> None:
    """Unload the modules that are needed only to build a CONNECT."""
    unload("v5_setup", "setup", "properties", "wire", "topic", "v5_subscribing", "subscribing")


def hello_of(o: dict, ask: bool = False) -> "bytearray | None":
    """Return the CONNECT packet for these options (section 3.1).

    Functions for the password or `auth` are called only with `ask`; without it, if there are
    any, returns None.
    """
    password = o["password"]
    data = None
    if callable(password) or o["auth"]:
        password = password() if ask and callable(password) else password
        data = o["auth"][1](None) if ask and o["auth"] else None
        if not ask:
            password = b"" if callable(password) else password
    flags = 2 if o["clean_session"] else 0
    given = {
        "session_expiry": o["session_expiry"],
        "receive_maximum": o["incoming"] if o["incoming"] < 65535 else None,
        "maximum_packet_size": o["maximum_packet_size"],
        "problem_information": 0,
        "auth_method": o["auth"][0] if o["auth"] else None,
        "auth_data": data,
    }
    number("keepalive", o["keepalive"], 0, 65535)
    body = bytearray((o["keepalive"] >> 8, o["keepalive"] & 255))
    body.extend(block(given, o["user_properties"] or ()))
    _add(body, field("client_id", o["client_id"]))
    will = o["will"]
    if will is not None:
        flags |= 4 | will[2] << 3 | (32 if will[3] else 0)
        body.extend(will[4])
        _add(body, will[0])
        _add(body, will[1])
    if o["user"] is not None:
        flags |= 128
        _add(body, field("user", o["user"]))
    if password is not None:
        flags |= 64
        _add(body, field("password", password, None))
    head = bytearray(5)
    head[0] = 0x10
    head = head[: put_length(head, 1, len(body) + 8)]
    head.extend(b"\0\4MQTT\5")
    head.append(flags)
    return head + body if ask or not (callable(o["password"]) or o["auth"]) else None


def _add(body, data):
    body.append(len(data) >> 8)
    body.append(len(data) & 255)
    body.extend(data)


def change(client: "Client5", new: dict) -> None:
    """Change options of a client from the next connection on."""
    o = dict(client.options)
    o.update(new)
    client.hello = hello_of(o)
    client.options = o
    forget()
