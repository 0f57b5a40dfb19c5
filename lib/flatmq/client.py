"""The client: a session with a clock and a connection, driven by one polling loop."""

import random  # noqa: F401 (with ticks_ms, what all modules of the client use)
from builtins import next  # found at once; else only after a miss in the module

from .port import MICROPYTHON, const, ticks_ms
from .session import Session

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from . import blocking, connection, pieces, resend, setup, subscribing
    from . import bulk as queueing
    from .message import Message
    from .router import Router
    from .stream_tls import TLS


class MQTTError(Exception):
    """`kind` is one of

    "refused"   by CONNACK, whose return code is `code` (3.1.1 section 3.2.2.3); in MQTT 5 its
                reason code (section 3.2.2.2), or 0 if `auth` has refused the broker
    "closed"    by the peer, or by the network; in MQTT 5 `code` is the reason code of a
                DISCONNECT, if there was one (section 3.14.2.1)
    "timeout"   an answer did not come in time
    "protocol"  the peer broke a rule of MQTT
    "resource"  something here was too small, or could not be had
    "tls"       broker or client could not be verified, or there is no TLS at that port; `code`
                is 1 if the connection was closed, which the network may have caused instead
    "dropped"   by `aio`: the message was set aside; `code` is its packet identifier

    `detail` is a text that says what happened; `code` is 0 unless another meaning is given here.
    """

    def __init__(self, kind: str, detail: object, code: int = 0) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail
        self.code = code


def silent() -> "Iterator[None]":
    """Do nothing, at each step: what an offline client reads and writes."""
    while True:
        yield None


class Client(Session):
    """An MQTT client: `version` 4 is MQTT 3.1.1, 3 is MQTT 3.1. 5 is MQTT 5, and None is MQTT 5
    or 3.1.1, whichever the broker speaks: see `v5.Client5` for what these have besides.

    client_id      1 to 23 bytes in MQTT 3.1; in 3.1.1 up to 65,535, or none with clean_session
    host, port     where the broker is; the port is 1883, or 8883 with `tls`, unless given. A
                   `link` of your own replaces them (see `stream_tcp`)
    tls            a `stream_tls.TLS`, which says whom to trust; None: TCP without TLS
    user, password None, or up to 65,535 bytes each; see `set_credentials`
    keepalive      s, 0 to 65,535; 0 turns it off, and with it the detection of dead links
    clean_session  False: the broker keeps the session while the client is away
    tx_size        bytes for messages that wait to be sent or acknowledged, 16 or more
    rx_size        bytes of the largest packet that is received whole, 64 or more; the buffer is
                   twice as large. A larger message comes in pieces to handlers that were
                   subscribed with `chunks`; without one it is acknowledged and counted
    inflight       QoS 1 and 2 messages that may wait for an acknowledgement, 1 to 255
    subscriptions  calls of subscribe() that are remembered, 0 to 255
    incoming       received QoS 2 messages not yet released by PUBREL. If the broker sends more,
                   the client disconnects (mosquitto's default limit is 20)
    timeout        s that TCP, CONNACK and PINGRESP may each take
    retry_ms, retry_max_ms   wait before a reconnect: the first one, which doubles up to the second
    give_up        times in a row that the broker may close the connection on a message or a
                   SUBSCRIBE which is alone in flight, before that is set aside; 0 for never
    max_qos        highest QoS that the broker has; publish and subscribe refuse a higher one. AWS
                   IoT Core and Azure IoT Hub have 0 and 1
    answers        bytes for acknowledgements that wait to leave, 8 or more
    on_message     handler of messages that match no filter
    chunks         True: on_message takes messages larger than rx_size too, in pieces
    on_dropped     called as on_dropped(packet_id, topic, reason) when a message is set aside, and
                   with 0 and a topic filter when a subscription is

    The constructor claims all sizes but `subscriptions` and `incoming`, which the first
    subscription claims. str is accepted wherever bytes are, and costs its conversion. ValueError
    and TypeError name an argument that breaks its rule.
    """

    state: str  # "offline", "waiting" (for the next try), "resolving" (the next poll looks the
    # name up, which may block), "connecting" (TCP), "greeting" (CONNECT is sent) or "online"
    connected: bool  # whether that is "online": the broker has accepted the connection
    session_present: bool  # what the last CONNACK said
    error: "MQTTError | None"  # why the last connection ended
    options: "dict[str, Any]"  # the arguments
    hello: "bytearray | None"  # CONNECT; None if it must be made for each connection
    link: "Any"
    connection: "Any"  # Connection, None until start()
    outgoing: "Iterator[Any]"  # writer.writing on this connection
    incoming: "Iterator[Any]"  # reader.reading on it, or what leads to it
    due: int  # when time matters next
    heard: int  # when bytes last came in
    asked: bool  # a PINGREQ has left since
    busy: bool  # what came in is being handled
    rx: bytearray  # the receive buffer
    router: "Router | None"  # the receiving half, once it is needed
    # Is offered the bytes from the beginning of each packet on, `bulk(buf, at, end)`, and returns
    # up to where it took whole packets; to be set before start().
    bulk: "Callable[[bytearray, int, int], int] | None"

    if TYPE_CHECKING:  # the methods that `calls` adds
        queue = queueing.queue
        connect = blocking.connect  # an import in a class has no type
        disconnect = blocking.disconnect
        drop = resend.drop
        publish_from = pieces.publish_from
        set_credentials = setup.set_credentials
        set_will = setup.set_will
        start = connection.start
        subscribe = subscribing.subscribe
        unsubscribe = subscribing.unsubscribe
        ping = connection.ping
        wait = connection.wait

        def __init__(
            self,
            client_id: bytes | str,
            host: str = "",
            port: int | None = None,
            *,
            user: bytes | str | None = None,
            password: bytes | str | Callable[[], bytes | str] | None = None,
            keepalive: int = 60,
            clean_session: bool = True,
            version: int | None = 4,
            tx_size: int = 1024,
            rx_size: int = 512,
            inflight: int = 8,
            subscriptions: int = 8,
            incoming: int = 32,
            timeout: int = 10,
            retry_ms: int = 500,
            retry_max_ms: int = 60000,
            give_up: int = 5,
            max_qos: int = 2,
            tls: TLS | None = None,
            link: Any = None,
            answers: int = 64,
            on_message: Callable[[Message], None] | None = None,
            chunks: bool = False,
            on_dropped: Callable[[int, bytes, str], None] | None = None,
        ) -> None: ...

    else:

        def __new__(kind, *args, **options):  # `cls` would be one more name
            if kind is Client and options.get("version", 4) != 4:
                from .calls import make

                return make(args, options)
            return object.__new__(kind)

        def __init__(self, *args, **options):
            from .setup import make

            make(self, *args, **options)

    def __getattr__(self, name):
        # Methods that are called now and then are loaded with the first call.
        from .calls import method

        return method(self, name)

    def poll(self, ms: int = 0) -> bool:
        """Do what there is to do, and wait up to `ms` milliseconds for something to come in.
        Returns whether something did, as soon as it did. Only a name lookup may take longer.

        What a handler raises comes out here; the next call delivers that message again.
        """
        if self.busy:  # a handler called
            return False
        self.now = ticks_ms()
        # The clock wraps at 30 bits: the sign of the difference is bit 29.
        if not self.now - self.due & 0x20000000 and self.connection:
            self.connection.late()
        if self.queued:
            self.flush()
        try:
            moved = next(self.incoming)
        except:  # to name BaseException would have the frame on the heap
            self._interrupted()
            raise
        if moved is None:
            if ms <= 0:
                return False
            if self.connection:
                self.connection.wait(ms)
            else:
                self.link.wait(ms, False)
            return self.poll()
        if moved is not True:
            return self._stopped(moved)
        if self.queued:
            self.flush()
        return True

    def flush(self) -> None:
        """Hand what is queued to the network, as far as it takes it now. Reads nothing."""
        if self.answers and self.gate is not None:
            self.held = self.gate(None) is False
        try:
            e = next(self.outgoing)
        except:
            self._interrupted()
            raise
        if e is not None:
            self.connection.lost(e, "closed", "write")

    def _stopped(self, what):
        """Raise what a handler raised, or end the connection for what was read. Returns whether
        anything came in."""
        if self.busy:
            self.busy = False
            if not isinstance(what, Exception):
                self._recount()
            raise what
        if isinstance(what, str):
            kind = "resource" if "rx_size" in what or "incoming" in what else "protocol"
            self.connection.lost(None, kind, what)
            return True
        self.connection.lost(what, "closed", "read")
        return False

    def _interrupted(self):
        """Ctrl-C has ended what reads or writes."""
        self.busy = False
        if self.connection:
            self.connection.make()
        if self.state != "offline":
            self.connection.lost(None, "closed", "interrupted")
        else:
            self.outgoing = self.incoming = silent()
        self._recount()

    def _recount(self):
        from .resend import recount  # Ctrl-C may come at any instruction

        recount(self)

    def load(self) -> "Router":
        """Return the receiving half, which a client that only publishes does not load."""
        if not self.router:
            from .router import Router

            if not self.received:
                self.received = [0] * self.options["incoming"]
            self.router = Router(self)
        return self.router


if not MICROPYTHON:
    from . import calls

    for name in calls.MODULES:
        setattr(Client, name, calls.method(None, name))
    # CPython does not specialize what it does with attributes of a class that has one.
    del Client.__getattr__
