"""Check the arguments of a client, claim its memory, and build its CONNECT.

Loaded when needed, and not kept.
"""

import random

from .port import MICROPYTHON, const
from .session import Stats
from .topic import is_name
from .unload import unload
from .v5_client import silent
from .wire import field, number, packet

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .session import Session
    from .v5_client import Client

_ANSWERS = const(64)  # bytes
_NAMES = const(8)  # topic names remembered as valid
_MOST = const(0x10000000)


def claim(
    s: "Session", tx_size: int, inflight: int, last_id: int, answers: int = _ANSWERS
) -> None:
    """Give a session its ring, its records and its counters."""
    s.size = s.limit = tx_size
    s.buf = memoryview(bytearray(tx_size + answers))
    s.room = answers - 4
    s.tail = s.at = s.part = s.end = s.top = s.answers = s.count = s.pending = 0
    s.max_qos = 2
    s.slots = inflight
    s.ids = [0] * (inflight + 1)
    s.received = []
    s.urgent = []
    s.offs = [-1] * inflight
    s.waits = bytearray(inflight)
    s.last_id = last_id
    s.own = 65535
    s.now = s.wrote = 0
    s.options = {}
    s.open = s.queued = s.blocked = s.held = s.plain = False
    s.same = True
    s.past = s.large = s.gate = s.on_dropped = None
    s.topic = s
    s.name = bytearray()
    s.names = [object()] * _NAMES  # equal to no topic name
    s.fields = [bytearray()] * (_NAMES + 1)
    s.oldest = 0
    s.is_name = None
    s.stats = Stats()
    n = s.stats
    n.received = n.unrouted = n.skipped = n.strays = n.dup0 = n.resent = n.renewed = 0
    n.dropped = n.downgraded = n.connects = n.losses = 0


def make(c: "Client", *args: "Any", **given: "Any") -> None:
    """Set up a new client from the arguments of its constructor."""
    prepare(c, options(*args, **given))
    c.hello = hello_of(c.options)
    unload("setup", "wire", "topic")


def prepare(c: "Client", o: dict) -> None:
    """Set up everything of a client except CONNECT, from its `options`."""
    # A random first packet identifier: a reboot must not reuse those that it left in flight.
    claim(c, o["tx_size"], o["inflight"], random.getrandbits(15), o["answers"])
    c.max_qos = o["max_qos"]
    c.rx = bytearray(2 * o["rx_size"] + 2)
    c.router = c.bulk = c.error = c.connection = None
    c.connected = c.session_present = c.asked = c.busy = False
    c.heard = c.due = 0
    c.state = "offline"
    c.options = o
    c.on_dropped = o["on_dropped"]
    c.outgoing = c.incoming = silent()
    c.link = o["link"]


def tcp(host: str, port: int) -> "Any":
    """Return a TCP link for this interpreter."""
    if MICROPYTHON:
        from .stream_tcp import TCP
    else:
        from .stream_cpython import TCP
    return TCP(host, port)


def options(
    client_id: "bytes | str",
    host: str = "",
    port: "int | None" = None,
    tls: "Any" = None,
    **given: "Any",
) -> dict:
    """Return the arguments of a client as a dict, with its link.

    `tls` is left out: the dict is kept, and `tls` may hold certificates. TypeError or
    ValueError for a bad argument.
    """
    o: dict[str, Any] = {
        "user": None,
        "password": None,
        "keepalive": 60,
        "clean_session": True,
        "version": 4,
        "tx_size": 1024,
        "rx_size": 512,
        "inflight": 8,
        "subscriptions": 8,
        "incoming": 32,
        "timeout": 10,
        "retry_ms": 500,
        "retry_max_ms": 60000,
        "give_up": 5,
        "max_qos": 2,
        "answers": _ANSWERS,
        "link": None,
        "on_message": None,
        "chunks": False,
        "on_dropped": None,
    }
    for name in given:
        if name not in o:
            raise TypeError(f"Client has no argument {name!r}")
    o.update(given)
    if port is None:
        port = 8883 if tls else 1883
    o.update({"client_id": client_id, "host": host, "port": port, "will": None})
    for name, least, most in (
        ("version", 3, 5),
        ("keepalive", 0, 65535),
        ("tx_size", 16, _MOST),
        ("rx_size", 64, _MOST),
        ("inflight", 1, 255),
        ("subscriptions", 0, 255),
        ("incoming", 1, 65535),
        ("timeout", 1, 65535),
        ("retry_max_ms", 1, _MOST),
        ("give_up", 0, 100),
        ("max_qos", 0, 2),
        ("answers", 8, _MOST),
    ):
        number(name, o[name], least, most)
    if o["version"] == 5:
        raise TypeError("version must be 3 or 4 for a subclass of Client: use v5.Client5")
    number("retry_ms", o["retry_ms"], 1, o["retry_max_ms"])
    if not o["link"]:
        if not isinstance(host, str) or not host:
            raise ValueError(f"host must be a name or an address, not {host!r}")
        number("port", port, 1, 65535)
    for name in ("on_message", "on_dropped"):
        if o[name] is not None and not callable(o[name]):
            raise TypeError(f"{name} must be callable, not {o[name]!r}")
    if tls and not hasattr(tls, "link"):
        raise TypeError(f"tls must be a TLS, not {tls!r}")
    if tls and o["link"]:
        raise ValueError("tls must be None with a link: the link decides")
    o["link"] = o["link"] or (tls.link if tls else tcp)(host, port)
    return o


def hello_of(o: dict, ask: bool = False) -> "bytearray | None":
    """Return the CONNECT packet for these options.

    A password that is a function is called only with `ask`; without `ask` its options are
    checked, and None is returned.
    """
    password = o["password"]
    if callable(password):
        password = password() if ask else b""
    session = (o["version"], o["client_id"], o["clean_session"], o["keepalive"])
    hello = connect(*session, o["user"], password, o["will"])
    return hello if ask or password is o["password"] else None


def connect(
    version: int, client_id, clean_session: bool, keepalive: int, user, password, will
) -> bytearray:
    """Return a CONNECT (section 3.1) at protocol level `version`: 4 is MQTT 3.1.1, 3 is MQTT 3.1.

    `will` is None, or topic, payload, QoS and retain. ValueError for a value out of range.
    """
    flags = 2 if clean_session else 0
    fields = [field("client_id", client_id)]
    if number("version", version, 3, 4) == 3 or not clean_session:
        number("client_id length", len(fields[0]), 1, 23 if version == 3 else 65535)
    if will is not None:
        flags |= 4 | will[2] << 3 | (32 if will[3] else 0)
        fields.extend(will[:2])
    if user is not None:
        flags |= 128
        fields.append(field("user", user))
    if password is not None:
        if user is None:
            raise ValueError("password needs a user")
        flags |= 64
        fields.append(field("password", password, None))
    number("keepalive", keepalive, 0, 65535)
    head = b"\0\4MQTT\4" if version == 4 else b"\0\6MQIsdp\3"
    return packet(0x10, head + bytes((flags, keepalive >> 8, keepalive & 255)), fields)


def converted(payload: "Any", qos: int, most: int) -> bytes:
    """Return as bytes a payload that is not a plain buffer.

    TypeError or ValueError for a bad payload, or for a QoS above `most`.
    """
    number("qos", qos, 0, most)
    return payload.encode() if isinstance(payload, str) else field("payload", payload, None)


def bound(client: "Client", name: str) -> "Callable":
    """Return one of the functions below as a method of `client`."""
    return lambda *a, **options: (set_will if name == "set_will" else set_credentials)(
        client, *a, **options
    )


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
    _change(self, {"will": will})


def set_credentials(
    self: "Client",
    user: "bytes | str | None",
    password: "bytes | str | Callable[[], bytes | str] | None" = None,
) -> None:
    """Set user and password for the next connections.

    `password` may be a function, which is called for each CONNECT.
    """
    _change(self, {"user": user, "password": password})


def _change(client, new):
    options = dict(client.options)
    options.update(new)
    client.hello = hello_of(options)
    client.options = options
    unload("setup", "wire", "topic")
