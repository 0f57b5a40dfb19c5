"""Check the arguments of a client, and claim its memory.

Loaded for one call.
"""

import random

from ..core.engine import run
from ..core.message import Message
from ..core.route import NEVER
from ..load import drop, load
from ..port import MICROPYTHON, Shown, const
from ..wire import number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from ..client import Client

_MOST = const(0x10000000)
_NEVER = const(268435455)  # ms, 3 days
_STEADY = const(10000)  # ms online after which the wait before a reconnect is short again


class Stats(Shown):
    """Counters since the client was made. On a board they stay small ints up to 1,073,741,823."""

    received: int  # messages handed to handlers
    unrouted: int  # messages that no filter matched and no on_message took
    skipped: int  # messages larger than rx_size: acknowledged, not delivered
    strays: int  # acknowledgements of packet identifiers that were not in flight
    dup0: int  # messages with DUP at QoS 0, which is not allowed [MQTT-3.3.1-2]
    resent: int  # publishes and PUBRELs sent again after a reconnect
    renewed: int  # of those, sent as new because the broker had forgotten the session
    refused: int  # calls of publish for which there was no room
    dropped: int  # messages set aside, and messages whose handler raised: see `give_up`
    downgraded: int  # QoS 2 messages that the broker settled with PUBACK
    connects: int  # connections that a CONNACK accepted
    losses: int  # connections that ended, or could not be made


def make(
    c: "Client",
    client_id: "bytes | str",
    host: str = "",
    port: "int | None" = None,
    *,
    user: "bytes | str | None" = None,
    password: "Any" = None,
    keepalive: int = 60,
    clean_session: bool = True,
    version: int = 4,
    tx_size: int = 1024,
    rx_size: int = 512,
    inflight: int = 8,
    subscriptions: int = 8,
    incoming: int = 32,
    timeout: int = 10,
    ack_timeout: "int | None" = None,
    retry_ms: int = 500,
    retry_max_ms: int = 60000,
    give_up: int = 5,
    max_qos: int = 2,
    tls: "Any" = None,
    link: "Any" = None,
    answers: int = 64,
    on_message: "Any" = None,
    chunks: bool = False,
    on_dropped: "Any" = None,
    on_connect: "Any" = None,
    on_disconnect: "Any" = None,
    **unknown: "Any",
) -> None:
    """Set up a new client from the arguments of its constructor."""
    for name in unknown:
        raise TypeError(f"Client has no argument {name!r}")
    if port is None:
        port = 8883 if tls else 1883
    if ack_timeout is None:
        ack_timeout = 3 * timeout
    for name, value, least, most in (
        ("version", version, 3, 5),
        ("keepalive", keepalive, 0, 65535),
        ("tx_size", tx_size, 16, _MOST),
        ("rx_size", rx_size, 64, _MOST),
        ("inflight", inflight, 1, 255),
        ("subscriptions", subscriptions, 0, 255),
        ("incoming", incoming, 1, 65535),
        ("timeout", timeout, 1, 65535),
        ("ack_timeout", ack_timeout, 0, 196605),
        ("retry_max_ms", retry_max_ms, 1, _MOST),
        ("give_up", give_up, 0, 100),
        ("max_qos", max_qos, 0, 2),
        ("answers", answers, 8, _MOST),
    ):
        number(name, value, least, most)
    if version == 5:
        raise TypeError("version must be 3 or 4 for a subclass of Client: use v5.Client5")
    number("retry_ms", retry_ms, 1, retry_max_ms)
    if not link:
        if not isinstance(host, str) or not host:
            raise ValueError(f"host must be a name or an address, not {host!r}")
        number("port", port, 1, 65535)
    for name, value in (
        ("on_message", on_message),
        ("on_dropped", on_dropped),
        ("on_connect", on_connect),
        ("on_disconnect", on_disconnect),
    ):
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {value!r}")
    if tls and not hasattr(tls, "link"):
        raise TypeError(f"tls must be a TLS, not {tls!r}")
    if tls and link:
        raise ValueError("tls must be None with a link: the link decides")
    c.version = version
    c.clean = clean_session
    c.password = password if callable(password) else None
    c.hello = load("hello").connect(
        version, client_id, clean_session, keepalive, user, None if c.password else password, None
    )
    if c.password and user is None:
        raise ValueError("password needs a user")
    drop("hello")  # before the buffers: there is room for them then
    c.keepalive = keepalive
    # A quarter of the keep alive is left for the journey of PINGREQ.
    c.interval = keepalive * 750 or _NEVER
    c.timeout_ms = timeout * 1000
    c.answer_ms = min(c.timeout_ms, c.interval)  # for PINGRESP
    c.ack_ms = ack_timeout * 1000
    c.tick = min(c.interval, c.ack_ms // 3 or _NEVER, _STEADY)  # between two looks at the clock
    c.retry_ms = c.delay = retry_ms
    c.retry_max_ms = retry_max_ms
    c.give_up = give_up
    c.max_qos = max_qos
    c.inflight = inflight
    c.most = subscriptions
    c.incoming = incoming
    c.on_message = on_message
    c.pieces_too = chunks
    c.on_dropped = on_dropped
    c.on_connect = on_connect
    c.on_disconnect = on_disconnect
    c.link = link or (tls.link if tls else tcp)(host, port)
    claim(c, tx_size, rx_size, answers)
    c.run = run  # so that a client at MQTT 5 does without this engine
    run(c)
    drop("setup", "wire")


def claim(c: "Client", tx_size: int, rx_size: int, answers: int) -> None:
    """Give a client its buffers, its records and its counters."""
    c.room = tx_size
    c.q = bytearray(tx_size)
    c.q[0:] = b""
    c.space = answers - 4
    c.acks = bytearray(answers + 2)
    c.acks[0:] = b""
    c.ack = bytearray(b"\x40\2\0\0")
    c.rx = bytearray(2 * rx_size + 2)
    c.rx_size = rx_size
    c.message = Message(c.rx, c)
    c.heads = [bytearray(), bytearray(), bytearray()]
    c.topics = [c, c, c]
    c.head = c.heads[0]
    c.topic = c  # equal to no topic name
    c.error = c.stream = c.gate = c.bulk = c.large = c.pieces = c.alone = c.two = None
    c.leaving = c.since = c.gone = c.renamed = None
    c.known = [c] * 8  # equal to no name
    c.names = [NEVER] * 9
    c.routes = [None] * 9
    c.subscriptions = []
    c.requests = []
    c.received = []
    c.qos = c.end = c.kept = c.pending = c.oldest = c.learned = c.newest = c.done = c.limit = 0
    c.sent = c.began = c.raised = c.tries = c.due = 0
    c.full = c.connected = c.session_present = c.asked = c.apart = c.progress = c.found = False
    c.unsure = False  # whether `received` may hold identifiers of an earlier session
    c.trusted = True
    # A random first packet identifier: a reboot must not reuse those that it left in flight.
    c.last_id = random.getrandbits(15)
    c.stop = c.last_id - 1 & 65535 or 65535
    c.own = 65535
    c.state = "offline"
    c.saved = None
    n = c.stats = Stats()
    n.received = n.unrouted = n.skipped = n.strays = n.dup0 = n.resent = n.renewed = 0
    n.refused = n.dropped = n.downgraded = n.connects = n.losses = 0


def tcp(host: str, port: int) -> "Any":
    """Return a TCP link for this interpreter."""
    if MICROPYTHON:
        from ..stream_tcp import TCP
    else:
        from ..stream_cpython import TCP
    return TCP(host, port)
