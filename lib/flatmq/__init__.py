"""flatmq: an MQTT client that allocates nothing once it is running.

Here is what a program calls, and the check of topic names and of text; `engine` does the work.
"""

# Imported builtins are found without a miss in the module.
from builtins import bytes, len

from . import port
from .port import MICROPYTHON, const, load

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from . import subscribing, waiting
    from .alone import Alone
    from .message import Message, Subscription
    from .rare import bulk as queueing
    from .rare import connecting, handover, parts, publishing, saying, strays
    from .setup import Stats
    from .stream_tls import TLS

__version__ = "0.2.0"

utf8: "Any" = None  # `rare.utf8`, once it is loaded


class MQTTError(Exception):
    """The reason why a connection ended or a message failed.

    `kind` is one of

    "refused"   the broker refused the connection; `code` is the return code of CONNACK (3.1.1
                section 3.2.2.3), in MQTT 5 its reason code (section 3.2.2.2), 0 if `auth` refused
    "closed"    the peer or the network closed the connection; in MQTT 5 `code` is the reason code
                of DISCONNECT, if there was one (section 3.14.2.1)
    "timeout"   an answer did not come in time
    "protocol"  the peer broke a rule of MQTT
    "resource"  something on this side was too small or not available
    "tls"       the broker or the client was not verified, or the port has no TLS; `code` is 1 if
                the connection was closed, which may also be a fault of the network
    "dropped"   in `aio`: the message was set aside; `code` is its packet identifier

    `detail` is a text that says what happened. `code` is 0 unless stated otherwise above. `str()`
    has the kind and the detail.
    """

    def __init__(self, kind: str, detail: object, code: int = 0) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.code = code


def is_utf8(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end` are UTF-8 as section 1.5.3 requires.

    That is the shortest form, no surrogates, nothing past U+10FFFF, no U+0000.
    """
    global utf8
    if buf.find(b"\0", at, end) >= 0:
        return False
    while at < end and buf[at] < 128:
        at += 1
    if at == end:
        return True
    if utf8 is None:
        utf8 = load("utf8").is_utf8
    return utf8(buf, at, end)


def is_name(buf: "bytes | bytearray", at: int, end: int) -> bool:
    """Return whether the bytes from `at` to `end` are a topic name (section 4.7).

    It has at least one byte, is UTF-8, and has no wildcard and no U+0000.
    """
    return (
        at < end
        and buf.find(b"+", at, end) < 0
        and buf.find(b"#", at, end) < 0
        and is_utf8(buf, at, end)
    )


def plain(payload: "Any") -> "Any":
    """Return a payload that has one byte per item. TypeError if it is no buffer and not str."""
    if payload.__class__ is str:
        return payload.encode()
    if payload.__class__ is not bytearray and (
        payload.__class__ is not memoryview or getattr(payload, "itemsize", 1) != 1
    ):
        return load("checks").payload(payload)
    return payload


class Client(port.Shown):
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
    incoming       received QoS 2 messages not yet released by PUBREL for which there is memory
                   from the first one on; if the broker has more in flight, it grows
    timeout        seconds that TCP, CONNACK and PINGRESP may each take, 1 to 999
    ack_timeout    seconds without any acknowledgement, while one is awaited, after which the
                   connection is ended and everything sent again; 0: never, None: 3 * timeout
    retry_ms, retry_max_ms   wait before a reconnect: it starts at the first and doubles up to the
                   second, which is at most 4 hours
    give_up        times that the broker may close the connection on a message alone in flight
                   before it is set aside, and that a handler may raise for a message; 0: any
                   number. A message is only set aside once the broker has taken another one
                   meanwhile; until then it goes behind the others
    max_qos        highest QoS that the broker supports; publish and subscribe refuse a higher
                   one. AWS IoT Core and Azure IoT Hub support 0 and 1
    answers        bytes for acknowledgements waiting to be sent, 8 or more
    on_message     handler for messages that match no filter
    chunks         True: on_message also takes messages larger than rx_size, in pieces
    on_dropped     called as on_dropped(packet_id, topic, reason) when a message is set aside; with
                   0 for a received one, because its handler raised or it is too large; and with
                   0 and the topic filter when the broker refuses a subscription, closes on
                   it or breaks a rule in its answer: it is tried again later
    release        True: a steady connection lets go of the code that connects. The next one takes
                   its memory again, or waits until there is some
    quiet          True: the first failure is not printed. It is, unless on_disconnect is called
    on_connect     called as on_connect(client) when the broker has accepted a connection,
    on_disconnect  and as on_disconnect(client) when such a connection has ended

    The constructor claims all this memory, except `subscriptions` and `incoming`: the first
    subscription claims those. str is accepted wherever bytes are, but conversion takes memory.
    ValueError and TypeError name the argument that broke its rule.
    """

    # For the application
    state: str  # "offline", "waiting" (for the next try), "resolving" (the next poll looks up the
    # name, which may block), "connecting" (TCP), "greeting" (CONNECT is sent) or "online"
    connected: bool  # state is "online": the broker has accepted the connection
    session_present: bool  # as in the last CONNACK
    error: "MQTTError | None"  # why the last connection ended
    pending: int  # messages accepted but not yet acknowledged; at QoS 0, not yet handed to the
    # network. Wait for 0 before deep sleep
    stats: "Stats"

    # For modules that are built on the client: see the guide
    gate: "Callable[[bool | None], bool | None] | None"
    bulk: "Callable[[bytearray, int, int], int] | None"
    received: "Any"  # packet identifiers of QoS 2 messages received but not released (section
    # 4.3.3, method B), 0 for each free place; a list from the first one on

    # Arguments that stay as they are, most of them
    version: int
    clean: bool
    keepalive: int
    timeout_ms: int
    ack_ms: int
    retry_ms: int
    retry_max_ms: int
    give_up: int
    max_qos: int
    inflight: int
    most: int  # subscriptions
    incoming: int
    link: "Any"
    password: "Callable[[], bytes | str] | None"  # one that is called for each CONNECT
    on_message: "Callable[[Message], Any] | None"
    chunks: bool  # `on_message` takes pieces
    release: "Callable[..., None] | None"  # `port.drop`
    quiet: bool
    on_dropped: "Callable[[int, bytes, str], None] | None"
    on_connect: "Callable[[Any], None] | None"
    on_disconnect: "Callable[[Any], None] | None"

    # `publish` and the engine: messages to be sent, see `engine`
    q: bytearray
    end: int  # bytes of whole packets in it
    room: int  # bytes that it may have
    acks: bytearray
    space: int  # if it has more bytes, there is no room for another acknowledgement
    kept: int  # messages in `q` that wait for an acknowledgement
    full: bool  # a message found no room
    last_id: int  # the packet identifier assigned last,
    stop: int  # and the next one that may be in use
    own: int  # the highest one that the client assigns
    topic: "Any"  # topic and QoS of the last message
    qos: int
    head: bytearray  # and what goes before its payload, but for its first byte
    heads: "list[Any]"  # the same for each QoS; then the topics of these
    known: "list[Any]"  # topic names that are valid, the newest first

    # The engine
    step: "Callable[[int | None], Any]"  # returns a bool, or an exception to be raised
    sent: int  # bytes of `q` written on this connection
    began: int  # how far the connection came: see `dial.lost`

    # The engine and `message`: what comes in
    rx: bytearray
    message: "Any"  # a Message, once there is a subscription or a message
    ack: bytearray  # the next PUBACK, PUBREC, PUBREL or PUBCOMP
    names: "list[Any]"  # the last topic names, each after its length,
    routes: "list[Any]"  # and their handlers
    learned: int  # how many names are remembered,
    index: int  # and the place for the next one
    subscriptions: "list[Subscription]"
    done: int  # of the message that goes to several handlers: how many have had it,
    limit: int  # of how many,
    found: bool  # and whether there was one; made with the first such message

    # The engine and `dial`: the connection
    hello: bytearray  # CONNECT
    stream: "Any"
    due: int  # when something is to be done next
    since: "int | None"  # when it was accepted, until it is a steady one
    tries: int  # since the last steady one
    interval: int  # ms of silence before a PINGREQ
    tick: int  # ms between two looks at the clock at most
    asked: int  # when a PINGREQ was queued that is not answered yet, or 0; at 0 it is -1
    # (): disconnecting; bytes: what is still to be sent for it; bytearray: then it connects again
    leaving: "bytes | bytearray | tuple[()] | None"
    # `received` may have identifiers of an earlier session. 1: PINGRESP is awaited, 2: it came
    unsure: int
    trusted: int  # 0: a CONNACK was lost that may have said that the session is a new one; 2 or
    # more: this CONNACK says that it is the same

    # Rare things, None or empty while there are none
    requests: "list[Subscription]"  # SUBSCRIBE and UNSUBSCRIBE: not answered, or refused
    apart: bool  # they are sent one at a time
    five: "Any"  # the module `v5.packets`, None in 3.1.1
    two: "Any"  # the module `rare.qos2`, once it is loaded,
    subs: "Any"  # and `subs`
    large: "parts.Parts | None"
    pieces: "Any"
    alone: "Alone | None"
    gone: "list[int] | None"  # dropped messages that are still in `q`
    renamed: "Any"  # a dict: new packet identifiers by those that `publish` returned

    if TYPE_CHECKING:
        # The methods that `methods` adds
        abandon = connecting.abandon
        queue = queueing.queue
        connect = connecting.connect
        disconnect = connecting.disconnect
        drop = strays.drop
        handover = handover.handover
        publish_from = parts.publish_from
        reconfigure = saying.reconfigure
        set_credentials = saying.set_credentials
        set_will = saying.set_will
        awaits = waiting.awaits
        subscribe = subscribing.subscribe
        unsubscribe = subscribing.unsubscribe
        ping = waiting.ping
        publish_wait = publishing.publish_wait
        wait = waiting.wait
        withdraw = subscribing.withdraw

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
            ack_timeout: int | None = None,
            retry_ms: int = 500,
            retry_max_ms: int = 60000,
            give_up: int = 5,
            max_qos: int = 2,
            tls: TLS | None = None,
            link: Any = None,
            answers: int = 64,
            on_message: Callable[[Message], None] | None = None,
            chunks: bool = False,
            release: bool = False,
            quiet: bool = False,
            on_dropped: Callable[[int, bytes, str], None] | None = None,
            on_connect: Callable[[Any], None] | None = None,
            on_disconnect: Callable[[Any], None] | None = None,
        ) -> None: ...

    else:

        def __new__(kind, *args, **values):  # `cls` would be one more name
            return load("setup", "").new(kind, args, values)

        def __init__(self, *args, **values):
            load("setup", "").setup(self, *args, **values)

    def __getattr__(self, name):
        # Rarely called methods are loaded with their first call.
        return load("methods", "").get(self, name)

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 0,
        retain: bool = False,
    ) -> "int | None":
        """Accept a message, which `poll` or `flush` will send.

        Returns its packet identifier at QoS 1 and 2, 0 at QoS 0, and None if there is no room
        now. ValueError for a bad topic name or QoS and for a packet larger than `tx_size`,
        TypeError for a payload that is neither a buffer nor str. Allocates nothing if the topic
        is bytes and the payload is bytes or another buffer.
        """
        # Few locals: a frame of more than eleven words would be on the heap, for every call.
        if topic is not self.topic or qos != self.qos:
            self.address(topic, qos)
        if payload.__class__ is not bytes:
            payload = plain(payload)
        topic = self.q  # type: ignore[assignment]
        head = self.head
        n = len(head) + len(payload) - 2
        if (self.end + n + 5 > self.room or (qos and self.kept >= self.inflight)) and self.no_room(
            n, qos
        ):
            return None
        head[1] = n & 127
        if qos:
            qos = self.last_id + 1 & 65535 or 1
            if qos == self.stop:
                qos = load("strays").next_id(self)
            self.last_id = qos
            head[-2] = qos >> 8
            head[-1] = qos & 255
        # This also removes what Ctrl-C may have left.
        topic[self.end :] = head  # type: ignore[index]
        topic.extend(payload)  # type: ignore[union-attr]
        if n > 127:
            self.widen(n)
        # The first byte last: a packet without it is not in the queue yet.
        n = 0x30 | self.qos << 1
        if retain:
            if retain != 1:
                load("checks").retain(retain)
            n |= 1
        topic[self.end] = n  # type: ignore[index]
        if qos:
            self.kept += 1
        self.pending += 1
        self.end = len(topic)
        return qos

    def address(self, topic: "bytes | str", qos: int) -> None:
        """Set `head` for this topic name and QoS.

        ValueError or TypeError if they are not valid.
        """
        if qos.__class__ is not int or qos < 0 or qos > self.max_qos:
            load("checks").qos(qos, self.max_qos)
        head = self.heads[qos]
        changes = topic.__class__ is bytearray
        if changes or self.heads[qos + 3] is not topic:
            self.heads[qos + 3] = self
            self.topic = self  # until this one is found to be valid
            name: Any = topic.encode() if topic.__class__ is str else topic
            if name not in self.known:
                if (
                    (name.__class__ is not bytes and name.__class__ is not bytearray)
                    or len(name) > 65535
                    or not is_name(name, 0, len(name))
                ):
                    name = load("checks").name(name)
                if not changes:
                    self.known.pop()
                    self.known.insert(0, name)
            head[0:] = b"\0\0"
            head.append(len(name) >> 8)
            head.append(len(name) & 255)
            head.extend(name)
            if qos:
                head.extend(b"\0\0")
            if self.five:
                head.extend(self.block)
            self.heads[qos + 3] = topic
        self.head = head
        self.qos = qos
        self.topic = self if changes else topic

    def widen(self, n: int) -> None:
        """Give the last packet, of `n` bytes after its header, a longer Remaining Length."""
        q = self.q
        at = self.end + 1
        while n > 127:
            q[at] = n & 127 | 128
            n >>= 7
            at += 1
            q[at:at] = b"\0"
        q[at] = n

    def no_room(self, n: int, qos: int) -> bool:
        """Return whether there is no room for a packet of `n` bytes after its fixed header."""
        size = n + 2
        while n > 127:
            n >>= 7
            size += 1
        n = self.room
        if size > n:
            load("checks").packet(size, n)
        if self.end + size <= n and (
            not qos
            or self.kept < self.inflight
            # Messages that have gone behind the others keep none out: see `alone`.
            or (self.alone and self.kept - self.alone.behind() < self.inflight)
        ):
            return False
        self.full = True  # the engine cuts out what is not needed
        self.stats.refused += 1
        return True

    def start(self) -> None:
        """Begin to connect. `poll` does the rest, and reconnects after each loss.

        After `disconnect` in a handler, the client leaves first.
        """
        if self.leaving is not None:  # in a handler, or Ctrl-C has interrupted `disconnect`
            self.leaving = bytearray(self.leaving)
        elif self.state == "offline":
            self.state = "waiting"
            self.due = port.ticks_ms()

    def poll(self, ms: int = 0) -> bool:
        """Do everything that is due, and wait up to `ms` milliseconds for incoming bytes.

        Returns True as soon as some came in, else False. Only a name lookup may take
        longer.

        An exception from a handler is raised here; the next call delivers that message again.
        """
        try:
            # TypeError here, before the engine has it. Another local: a frame on the heap.
            ms = self.step(ms | 0)
        except ValueError:
            return False  # called by a handler
        except StopIteration:
            load("setup", "").start(self)
            return False
        if ms is False or ms is True:
            return ms
        raise ms  # type: ignore[misc]

    def flush(self) -> bool:
        """Hand queued packets to the network, as much as it takes now. Reads nothing.

        Returns whether some are left.
        """
        try:
            left = self.step(None)
        except ValueError:
            return True
        except StopIteration:
            self.poll()
            return True
        if left is False or left is True:
            return left
        raise left


if not MICROPYTHON:
    load("methods", "").install(Client)
    # CPython does not specialize attribute access in a class that has a __getattr__.
    del Client.__getattr__
