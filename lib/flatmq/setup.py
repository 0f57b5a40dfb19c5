"""Check the arguments of a client, and claim its memory. Loaded for that call."""

import random

from . import Client
from .engine import run
from .port import MICROPYTHON, Shown, collect, const, drop, load
from .wire import connect, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

_NEVER = const(268435455)  # ms, 3 days
_STEADY = const(10000)  # ms online after which the wait before a reconnect is short again


class Stats(Shown):
    """Counters since the client was made. On a board they stay small ints up to 1,073,741,823."""

    received: int  # messages handed to handlers
    unrouted: int  # messages that no filter matched and no on_message took
    skipped: int  # messages acknowledged and not delivered: larger than rx_size, or with a topic
    # name that is not valid
    strays: int  # acknowledgements of packet identifiers that were not in flight; and messages
    # delivered without a property that is not allowed (MQTT 5)
    dup0: int  # messages with DUP at QoS 0, which is not allowed [MQTT-3.3.1-2]
    resent: int  # publishes and PUBRELs sent again after a reconnect
    renewed: int  # of those, sent as new because the broker had forgotten the session
    refused: int  # calls of publish for which there was no room
    dropped: int  # messages set aside, and messages whose handler raised: see `give_up`
    downgraded: int  # QoS 2 messages that the broker settled with PUBACK
    connects: int  # connections that a CONNACK accepted
    losses: int  # connections that ended, or could not be made


def start(c: Client) -> None:
    """Start another engine: Ctrl-C has ended the one before."""
    if c.stream:
        c.connected = False
        c.state = "waiting"
    run(c)


def new(kind: "Any", args: tuple, values: dict) -> "Any":
    """Return a client of the class for its version. The arguments are those of `Client`."""
    if kind is Client and values.get("version", 4) in (5, None):
        # By its name: MQTT 5 is a package of its own.
        return __import__("flatmq.v5.setup", None, None, ("new",)).new(args, values)
    return object.__new__(kind)


def setup(
    c: Client,
    client_id: "bytes | str | None" = None,
    host: str = "",
    port: "int | None" = None,
    *args: "Any",
    **values: "Any",
) -> None:
    """Set up a new client from the arguments of its constructor."""
    if client_id is None:
        raise TypeError("Client needs a client_id")
    if args:
        raise TypeError(f"arguments after port must be named, not {args[0]!r}")
    if values.get("ack_timeout", 0) is None:
        del values["ack_timeout"]
    # Names in texts: each name in code would take memory of a board permanently.
    table = """\
version 4 3 5
keepalive 60 0 65535
tx_size 1024 16 268435456
rx_size 512 64 268435456
inflight 8 1 255
subscriptions 8 0 255
incoming 32 1 65535
timeout 10 1 999
ack_timeout -1 0 196605
retry_max_ms 60000 1 14400000
give_up 5 0 100
max_qos 2 0 2
answers 64 8 268435456"""
    numbers = []
    for line in table.splitlines():  # name, default, smallest and largest value
        name, default, least, most = line.split()
        if name in values:
            number(name, values[name], int(least), int(most))
        numbers.append(values.pop(name, int(default)))
    (
        version, keepalive, tx_size, rx_size, inflight, subscriptions, incoming,
        timeout, ack_timeout, retry_max_ms, give_up, max_qos, answers,
    ) = numbers  # fmt: skip
    retry_ms = number("retry_ms", values.pop("retry_ms", 500), 1, retry_max_ms)
    handlers = []
    table = "on_message on_dropped on_connect on_disconnect"
    for name in table.split():
        value = values.pop(name, None)
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {value!r}")
        handlers.append(value)
    table = "user password tls link"
    user, password, tls, link = [values.pop(name, None) for name in table.split()]
    five = values.pop("five", None)
    flags = []
    table = "clean_session chunks release quiet"
    for name in table.split():
        value = values.pop(name, name == "clean_session")
        if value not in (False, True):
            load("checks").bool(name, value)
        flags.append(value)
    clean, c.chunks, release, c.quiet = flags
    c.release = drop if release else None
    for name in values:
        raise TypeError(f"Client has no argument {name!r}")
    if ack_timeout < 0:
        ack_timeout = 3 * timeout
    if version == 5 and not five:
        raise TypeError("version must be 3 or 4 for a subclass of Client: use v5.Client5")
    if port is None:
        port = 8883 if tls else 1883
    if not link:
        if not isinstance(host, str) or not host:
            raise ValueError(f"host must be a name or an address, not {host!r}")
        if "/" in host or host.count(":") == 1:
            host = host.rpartition("@")[2]  # without the password of a URL
            raise ValueError(f"host must have neither scheme nor port, not {host!r}")
        number("port", port, 1, 65535)
    if tls is not None and not hasattr(tls, "link"):
        raise TypeError(f"tls must be a TLS, not {type(tls).__name__}")
    if link is not None and not hasattr(link, "stream"):
        raise TypeError(f"link must be a link, not {type(link).__name__}")
    if tls and link:
        raise ValueError("tls must be None with a link: the link decides")
    c.version = version
    c.five = five
    c.clean = clean
    c.password = password if callable(password) else None
    c.keepalive = keepalive
    if c.password and user is None and not five:
        raise ValueError("password needs a user")
    connect(c, client_id, user, None if c.password else password, None)
    collect()  # before the buffers: there is room for them then
    # A quarter of the keep alive is left for the journey of PINGREQ.
    c.interval = keepalive * 750 or _NEVER
    c.timeout_ms = timeout * 1000
    c.ack_ms = ack_timeout * 1000
    c.tick = min(c.interval, c.ack_ms // 3 or _NEVER, _STEADY)  # between two looks at the clock
    c.retry_ms = retry_ms
    c.retry_max_ms = retry_max_ms
    c.give_up = give_up
    c.max_qos = max_qos
    c.inflight = inflight
    c.most = subscriptions
    c.incoming = incoming
    c.on_message, c.on_dropped, c.on_connect, c.on_disconnect = handlers
    if not link:
        if MICROPYTHON:
            from .stream_tcp import TCP
        else:
            from .stream_cpython import TCP
        link = (tls.link if tls else TCP)(host, port)
    c.link = link
    c.room = tx_size
    c.q = bytearray(tx_size)
    c.q[0:] = b""
    c.space = answers - 4
    c.acks = bytearray(answers + 2 + 4 * inflight)  # after a loss, PUBRELs besides
    c.acks[0:] = b""
    c.ack = bytearray(b"\x40\2\0\0")
    c.rx = bytearray(2 * rx_size + 2)
    c.message = None  # until there is a subscription or a message
    c.heads = [bytearray(), bytearray(), bytearray(), c, c, c]
    c.head = c.heads[0]
    c.topic = c  # equal to no topic name
    c.error = c.stream = c.gate = c.bulk = c.large = c.pieces = c.alone = c.two = c.subs = None
    c.leaving = c.since = c.gone = c.renamed = None
    c.known = [c] * 8  # equal to no name
    c.subscriptions = []
    c.requests = []
    c.received = ()
    c.qos = c.end = c.kept = c.pending = c.learned = c.index = c.done = c.limit = 0
    c.sent = c.began = c.tries = c.due = c.asked = 0
    c.full = c.connected = c.session_present = c.apart = False
    c.unsure = 0
    c.trusted = 1
    # A random first packet identifier: a reboot must not reuse those that it left in flight.
    c.last_id = random.getrandbits(15)
    c.stop = c.last_id or 65535  # all others are free
    c.own = 65535
    c.state = "offline"
    n: Any = Shown() if MICROPYTHON else Stats()  # on a board without a class of its own
    c.stats = n
    n.received = n.unrouted = n.skipped = n.strays = n.dup0 = n.resent = n.renewed = 0
    n.refused = n.dropped = n.downgraded = n.connects = n.losses = 0
    run(c)
    drop("setup")  # and `dial` lets go of `wire`: `subscribe` may need it before
