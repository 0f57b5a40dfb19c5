"""The client: a session with a clock and a connection, driven by one polling loop."""

from builtins import next  # an imported builtin is found without a miss in the module

from . import port as clock
from .port import MICROPYTHON, const
from .session import Session

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from . import blocking, connection, pieces, resend, setup, subscribing
    from . import bulk as queueing
    from .errors import MQTTError
    from .message import Message
    from .router import Router
    from .stream_tls import TLS


# Raised by a handler so that the client keeps the message. A single object, because raising must
# not allocate; of a builtin class, because only those release their traceback on a board.
_HELD = Exception("the message is kept for the next poll")


def silent() -> "Iterator[None]":
    """Do nothing at each step: an offline client reads and writes nothing."""
    while True:
        yield None


class Client(Session):
    """An MQTT client.

    `version` 4 is MQTT 3.1.1, 3 is MQTT 3.1, 5 is MQTT 5, and None is MQTT 5 or 3.1.1,
    whichever the broker speaks. `v5.Client5` describes what 5 and None add.

    client_id      1 to 23 bytes in MQTT 3.1; up to 65,535 in 3.1.1, empty only with clean_session
    host, port     the broker's address; the default port is 1883, with `tls` 8883. A `link` of
                   your own replaces both (see `stream_tcp`)
    tls            a `stream_tls.TLS`, which says whom to trust; None: TCP without TLS
    user, password up to 65,535 bytes each, or None; see `set_credentials`
    keepalive      seconds, 0 to 65,535; 0 turns off keep alive and the detection of dead links
    clean_session  False: the broker keeps the session while the client is away
    tx_size        bytes for messages waiting to be sent or acknowledged, 16 or more
    rx_size        bytes of the largest packet received whole, 64 or more; the buffer is twice as
                   large. A larger message comes in pieces to handlers that were subscribed with
                   `chunks`; if there is none, it is acknowledged and counted
    inflight       QoS 1 and 2 messages that may wait for an acknowledgement, 1 to 255
    subscriptions  calls of subscribe() that are remembered, 0 to 255
    incoming       received QoS 2 messages not yet released by PUBREL. If the broker sends more,
                   the client disconnects (mosquitto's default limit is 20)
    timeout        seconds that TCP, CONNACK and PINGRESP may each take
    retry_ms, retry_max_ms   wait before a reconnect: it starts at the first and doubles up to the
                   second
    give_up        times in a row that the broker may close the connection on a message or
                   SUBSCRIBE alone in flight before it is set aside; 0: never set aside
    max_qos        highest QoS that the broker supports; publish and subscribe refuse a higher
                   one. AWS IoT Core and Azure IoT Hub support 0 and 1
    answers        bytes for acknowledgements waiting to be sent, 8 or more
    on_message     handler for messages that match no filter
    chunks         True: on_message also takes messages larger than rx_size, in pieces
    on_dropped     called as on_dropped(packet_id, topic, reason) when a message is set aside, and
                   with 0 and the topic filter when a subscription is

    The constructor claims all this memory, except `subscriptions` and `incoming`: the first
    subscription claims those. str is accepted wherever bytes are, but conversion takes memory.
    ValueError and TypeError name the argument that broke its rule.
    """

    state: str  # "offline", "waiting" (for the next try), "resolving" (the next poll looks up the
    # name, which may block), "connecting" (TCP), "greeting" (CONNECT is sent) or "online"
    connected: bool  # state is "online": the broker has accepted the connection
    session_present: bool  # as in the last CONNACK
    error: "MQTTError | None"  # why the last connection ended
    options: "dict[str, Any]"  # the arguments
    hello: "bytearray | None"  # CONNECT; None if it must be built for each connection
    link: "Any"
    connection: "Any"  # Connection, None until start()
    outgoing: "Iterator[Any]"  # writer.writing on this connection
    incoming: "Iterator[Any]"  # reader.reading on this connection, or the steps towards it
    due: int  # when something is next due by the clock
    heard: int  # when bytes last came in
    asked: bool  # a PINGREQ has been queued since
    busy: bool  # received bytes are being handled
    rx: bytearray  # the receive buffer
    router: "Router | None"  # the receiving half, once it is needed
    # Called as `bulk(buf, at, end)` with the received bytes from the start of a packet on. Returns
    # where the whole packets that it took end. Set it before start().
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
            return object.__new__(kind)

        def __init__(self, *args, **options):
            from .setup import make

            make(self, *args, **options)

    def __getattr__(self, name):
        # Rarely called methods are loaded with their first call.
        from .calls import method

        return method(self, name)

    def poll(self, ms: int = 0) -> bool:
        """Do everything that is due, and wait up to `ms` milliseconds for incoming bytes.

        Returns True as soon as some came in, else False. Only a name lookup may take
        longer.

        An exception from a handler is raised here; the next call delivers that message again.
        """
        if self.busy:  # called by a handler
            return False
        self.now = clock.ticks_ms()
        # The clock wraps at 30 bits: the sign of the difference is bit 29.
        if not self.now - self.due & 0x20000000 and self.connection:
            self.connection.late()
        if self.queued:
            self.flush()
        try:
            moved = next(self.incoming)
        except:  # naming BaseException would put the frame on the heap
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

    def hold(self) -> None:
        """End a handler so that it is called with the same message at the next poll."""
        _HELD.__traceback__ = None
        raise _HELD

    def awaits(self, packet_id: int) -> bool:
        """Return whether the message with this packet identifier is not settled yet."""
        return packet_id in self.ids

    def flush(self) -> bool:
        """Hand queued packets to the network, as much as it takes now. Reads nothing.

        Returns whether some are left.
        """
        if self.answers and self.gate is not None:
            self.held = self.gate(None) is False
        try:
            e = next(self.outgoing)
        except:
            self._interrupted()
            raise
        if e is not None:
            self.connection.lost(e, "closed", "write")
        return self.queued

    def _stopped(self, what):
        """Raise the exception of a handler, or end the connection because of what was read.
        Returns whether anything came in."""
        if self.busy:
            self.busy = False
            if what is _HELD:
                self.heard = self.now  # what has come since is not read
                self.asked = False
                return False
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
        """Recover after Ctrl-C has ended a generator that reads or writes."""
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
    # CPython does not specialize attribute access in a class that has a __getattr__.
    del Client.__getattr__
