"""MQTTClient and MQTTException of umqtt.simple, on top of `flatmq.Client`.

A program for umqtt.simple changes one line: `from flatmq.umqtt import MQTTClient`. A program for
umqtt.robust imports `MQTTClient` from `flatmq.umqtt_robust`. There are two classes because these
programs expect opposite things. When the connection is lost, a program for umqtt.simple needs
OSError, so that it can bring the Wi-Fi back; a program for umqtt.robust must not see it.

Signatures, defaults, attributes and return values are those of umqtt. Improvements:

- No call waits forever for a broker that is gone: after `timeout` seconds it raises
  OSError(ETIMEDOUT).
- Subscriptions are made again after a reconnect if the broker has forgotten them.
- QoS 2 works in both directions.
- Calls that wait for something send PINGREQ in time.
- Malformed packets end the connection, and invalid arguments raise ValueError.
- A call without a connection raises OSError, even before the first connect().

Differences:

- One call may read several messages from the socket. Callbacks still run one per call, but a
  program that polls `sock` itself has to call check_msg() until it returns None.
- A call that fails closes the connection. Each further call raises OSError until connect() is
  called.
- A message is acknowledged even if its callback raises an exception. For MemoryError, the next
  call tries it again first.
- A message that was received before disconnect() goes to the callback afterwards.
"""

import errno

from . import port
from .engine import HOLD
from .port import const, drop, load, ticks_add, ticks_diff

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .message import Message, Subscription

_TIMEOUT = const(10000)  # ms
_QUIET = const(6)  # times `timeout` without a packet until wait_msg checks the link
_BUFFER = const(512)  # bytes of the client's buffers; larger messages travel in pieces
_FIELDS = const(3)  # items in the queue for each message
_MORE = const(9)  # bytes of a PUBLISH in addition to topic and payload


class MQTTException(Exception):
    """The broker refused. `args[0]` is the return code: 1 to 5 from CONNACK, 0x80 from SUBACK."""


def _rare(name: str, *arguments: "Any") -> "Any":
    """Call a function of `umqtt_rare`, which is loaded for this call.

    MemoryError if it cannot be loaded; then nothing has changed.
    """
    try:
        return getattr(load("umqtt_rare", ""), name)(*arguments)
    finally:
        drop("umqtt_rare")


class MQTTClient:
    """A client with blocking calls.

    client_id      bytes or str
    server, port   the broker's address; port 0 is 1883, with `ssl` 8883
    user, password bytes or str; without a user the password is ignored
    keepalive      seconds, 0 to 65,535; 0 turns it off
    ssl            an SSLContext, or True for ssl.wrap_socket(sock, **ssl_params), which verifies
                   nothing unless `ssl_params` requires it

    They are also attributes, `password` as `pswd`. connect() uses their current values; the first
    connect() claims the memory. `pid` is the last packet identifier used, and `error` the
    exception that ended the connection, None while there is one.
    """

    # Attributes of the class, because few programs set them.
    lw_topic: "bytes | str | None" = None
    lw_msg: "bytes | str | None" = None
    lw_qos = 0
    lw_retain = False

    # Set by connect(), or before they are read
    _end: int  # when a call gives up
    _next_topic: bytes  # the arguments of the callback
    _next_msg: bytes
    _pings: int  # calls of ping() for which wait_msg() has not returned None yet
    _renewed: "list[Subscription]"  # subscriptions that connect() has renewed

    def __init__(
        self,
        client_id: "bytes | str",
        server: str,
        port: int = 0,
        user: "bytes | str | None" = None,
        password: "bytes | str | None" = None,
        keepalive: int = 0,
        ssl: "Any" = None,
        ssl_params: "dict[str, Any]" = {},  # noqa: B006 (as in umqtt; it is not changed)
    ) -> None:
        self.client_id = client_id
        self.server = server
        self.port = port or (8883 if ssl else 1883)
        self.user = user
        self.pswd = password
        self.keepalive = keepalive
        self.ssl = ssl
        self.ssl_params = ssl_params
        self.cb: Any = None  # the argument of set_callback()
        self.pid: Any = 0
        self.publish_flags = 0
        self.sock: Any = None
        self.error: Exception | None = None
        self._client: Any = None
        self._settings: Any = None  # what the client was made for
        self._noted: list[Any] = []  # why the link failed before the broker accepted
        self._timeout = _TIMEOUT
        # First byte, topic and payload of each received message that waits for the callback.
        # Flat, because an empty list already has room for four items.
        self._queue: list[Any] = []
        self._early = 0  # items of the queue that came before the answer a call waits for
        # What a call waits for: the packet identifier of a message, or a request. None as soon as
        # the connection is closed.
        self._awaited: Any = None
        self._depth = 0  # callbacks that are running
        self._topic = b""  # of the last message
        self._large: Any = None  # payload of a message that comes in pieces
        self._short = ""  # what becomes of a message that there was no memory for

    def set_callback(self, f: "Callable[[bytes, bytes], object]") -> None:
        """Set the function called as `f(topic, msg)` for each message; both are bytes."""
        self.cb = f

    def set_last_will(
        self, topic: "bytes | str", msg: "bytes | str", retain: bool = False, qos: int = 0
    ) -> None:
        """Set the message that the broker publishes if the connection ends without disconnect().

        It is for the next connect() and later ones. Raises AssertionError for a bad QoS or
        an empty topic.
        """
        _rare("check_will", topic, qos)
        self.lw_topic = topic
        self.lw_msg = msg
        self.lw_qos = qos
        self.lw_retain = retain

    # The connection

    def connect(self, clean_session: bool = True, timeout: "float | None" = None) -> int:
        """Connect, in one try. Returns 1 if the broker has kept the session, else 0.

        `timeout` limits this call, and each later one that waits for the broker, in seconds. None
        leaves it unchanged; it starts at 10. The name lookup may take longer.

        MQTTException(code) if the broker refuses, OSError if it cannot be reached; ValueError or
        TypeError for an attribute that breaks its rule.
        """
        if timeout is not None:
            if timeout * 1000 < 1:
                _rare("refuse", timeout)
            self._timeout = int(timeout * 1000)
        if self._client:
            self._awaited = None
            self._client.abandon()
        settings = (
            self.client_id, self.user, self.pswd, self.keepalive, bool(clean_session),
            (self._timeout + 999) // 1000, self.lw_topic, self.lw_msg, self.lw_qos,
            self.lw_retain, self.server, self.port, self.ssl, self.ssl_params,
        )  # fmt: skip
        self.error = None
        if settings != self._settings:
            self._settings = None
            self._client = _rare(
                "client", self._client, self._take, self._gate, self._noted.append, *settings
            )
            self._settings = settings
        c = self._client
        self._noted.clear()
        losses = c.stats.losses
        self._pings = 0
        self._end = ticks_add(port.ticks_ms(), self._timeout)
        c.start()
        while not c.connected:
            left = ticks_diff(self._end, port.ticks_ms())
            if left > 0:
                c.poll(left)
            else:
                self._fail(OSError(errno.ETIMEDOUT, "connect"))
            if c.stats.losses != losses:
                self._fail()
        self.sock = getattr(c.stream, "sock", c.stream)
        self._renewed = list(c.requests)
        return int(c.session_present)

    def disconnect(self) -> None:
        """Send DISCONNECT and close the connection, if there is one."""
        c = self._client
        if c:
            if c.connected:
                c.disconnect(min(self._timeout, 1000))
            self._awaited = None
            c.abandon()

    def ping(self) -> None:
        """Send PINGREQ, once the callback has had the messages that wait for it.

        wait_msg() returns None when the broker has answered, and raises OSError if it does
        not answer in time.
        """
        while self._queue and not self._depth:
            self._call()  # until then no request leaves: see `_gate`
        self._ready()
        self._client.ping()
        self._pings += 1
        self._client.flush()

    def _fail(self, error=None):
        """Close the connection, and raise `error`, or the exception that ended it.

        Undelivered messages are forgotten: the call that published them raises, so the program
        decides what to do.
        """
        c = self._client
        if not error:
            e = c.error if c and c.link else None
            if not e or (self.error and e.kind == "refused"):  # which connect() has raised
                error = OSError(errno.ENOTCONN, "not connected")
            elif e.kind == "refused":
                error = MQTTException(e.code)
            elif self._noted and isinstance(self._noted[0], (OSError, ValueError, TypeError)):
                error = self._noted[0]
                # umqtt raises ValueError for a certificate, too, but with a less precise text.
                if e.kind == "tls" and not isinstance(error, OSError):
                    error = ValueError(e.detail)
            else:
                error = OSError(errno.ETIMEDOUT if e.kind == "timeout" else -1, e.detail)
        self.error = error
        if c:
            self._awaited = None
            c.abandon()
        raise error

    def _ready(self):
        """Begin a call. OSError if there is no connection."""
        if not (self._client and self._client.connected):
            self._fail()
        self.sock.setblocking(False)  # a program may have set a timeout
        self._end = ticks_add(port.ticks_ms(), self._timeout)

    def _work(self):
        """Poll until something comes in.

        OSError if the connection has ended, or after `timeout`.
        """
        c = self._client
        left = ticks_diff(self._end, port.ticks_ms())
        if left <= 0:
            self._fail(OSError(errno.ETIMEDOUT, "no answer from the broker"))
        if c.connected:  # else it would wait for the next try
            c.poll(left)
        while self._early:
            self._call()
        self._check()
        if not c.connected:
            self._fail()

    def _check(self):
        if self._short:
            short = self._short
            self._short = ""
            raise MemoryError("no memory for a message; it " + short)

    # Outgoing messages

    def publish(
        self, topic: "bytes | str", msg: "bytes | str", retain: bool = False, qos: int = 0
    ) -> None:
        """Publish a message.

        At QoS 0 it returns when the message is handed to the network, at QoS 1 and 2 when
        the broker has acknowledged it. `msg` may be a buffer of bytes, and of any size at QoS 0
        and 1; at QoS 2 there is room for 500 bytes of topic and `msg`.

        Callbacks may run meanwhile. OSError if the connection ends, or after `timeout`; the
        message may still have been delivered. ValueError or TypeError for a bad argument.
        """
        # Few locals: a frame of more than eleven words would be on the heap, for every call.
        self.publish_flags = qos << 1 | bool(retain)
        self.publish_once(topic, msg)

    def publish_once(self, topic: "bytes | str", msg: "bytes | str") -> None:
        """Publish as publish() does, even if a subclass overrides that.

        QoS and retain are taken from `publish_flags`: twice the QoS, plus 1 for retain.
        """
        flags = self.publish_flags  # a callback may change it
        self._ready()
        if not self._queue:
            # A write to a closed connection succeeds and is lost, so check first.
            self._client.poll()
            if not self._client.connected:
                self._fail()
        if isinstance(msg, str):
            msg = msg.encode()
        if isinstance(topic, str):
            topic = topic.encode()
        if flags > 1:
            hasattr(self._client, "awaits")  # loads it, before a message is accepted
        while True:
            if flags < 4 and len(topic) + len(msg) + _MORE > _BUFFER:
                self.pid = self._client.publish_from(topic, msg, flags >> 1, flags & 1)
            else:
                self.pid = self._client.publish(topic, msg, flags >> 1, flags & 1)
            if self.pid is not None:
                break
            self._work()  # until there is room
        if flags > 1:
            self._wait_for(self.pid)
        else:  # until it is handed to the network, which is at once unless that is slow
            self._client.flush()
            while self._client.pending > self._client.kept and self._client.connected:
                self._work()
                while self._queue:
                    self._call()
            if not self._client.connected:
                self._fail()

    def _wait_for(self, packet):
        """Wait until a message is acknowledged, or a request answered.

        `packet` is the packet identifier of the message, or the request. Messages that arrive
        before the answer go to the callback; later ones wait for the next call.
        """
        outer = self._awaited
        self._awaited = packet
        self._early = len(self._queue)
        # A request that waits for others has no packet identifier yet.
        self.pid = getattr(packet, "id", 0) or self.pid
        try:
            self._client.flush()
            while self._early:  # until then no request leaves: see `_gate`
                self._call()
            while self._awaited == packet and self._waits(packet):
                self._work()
            if self._awaited != packet:
                raise OSError(errno.ECONNABORTED, "a callback has closed the connection")
        except:  # `finally` would put the frame on the heap
            self._awaited = outer if self._awaited == packet else None
            raise
        self._awaited = outer

    def _waits(self, packet):
        c = self._client
        return c.awaits(packet) if packet.__class__ is int else packet in c.requests

    # Subscriptions

    def subscribe(self, topic: "bytes | str", qos: int = 0) -> None:
        """Subscribe to a topic filter, and wait for SUBACK.

        MQTTException(0x80) if the broker refuses; OSError as for publish(); AssertionError
        without a callback.
        """
        if self.cb is None:
            _rare("refuse", None)
        self._ready()
        _rare("subscribe", self._client, self._renewed, self._wait_for, topic, qos)

    def unsubscribe(self, topic: "bytes | str") -> None:
        """End the subscription to a topic filter, and wait for UNSUBACK.

        OSError as for publish().
        """
        self._ready()
        _rare("unsubscribe", self._client, self._renewed, self._wait_for, topic)

    # Incoming messages

    def wait_msg(self) -> "int | None":
        """Wait for a message, however long it takes, and call the callback.

        Returns the first byte of its PUBLISH, or None if the broker has answered a ping().

        If the broker is silent for six times `timeout`, PINGREQ is sent. OSError if there is no
        answer, or if the connection ends.
        """
        return self.receive_once()

    def check_msg(self) -> "int | None":
        """Call the callback if a message has come in.

        Returns the first byte of its PUBLISH, else None. OSError if the connection has
        ended.
        """
        return self.receive_once(0)

    def receive_once(self, ms: "int | None" = None) -> "int | None":
        """Receive once, even if a subclass overrides check_msg() and wait_msg().

        With 0 it does what check_msg() does, without an argument what wait_msg() does.
        """
        if not self._queue:
            self._ready()
            c = self._client
            if ms is None:
                ms = self._timeout * _QUIET
            left: Any = 0  # at first: a message that waited for memory comes at once
            end = ticks_add(port.ticks_ms(), ms)
            while not self._queue and c.connected:
                if self._pings and not c.asked:  # the last one is answered
                    self._pings -= 1
                    return None
                if left is None:  # it was to poll once
                    return None
                heard = c.poll(left)  # it may return before that time has passed
                left = ticks_diff(end, port.ticks_ms())
                if heard or left <= 0:
                    if ms and not heard:
                        c.ping()
                    left = ms or None
                    end = ticks_add(port.ticks_ms(), ms)
                self._check()
            if not self._queue:
                self._fail()
        return self._call()

    def _call(self):
        """Call the callback with the first queued message.

        Returns the first byte of its PUBLISH.
        """
        # A local variable for the queue, or `finally`, would put the frame on the heap.
        op = self._queue.pop(0)
        self._next_topic = self._queue.pop(0)
        self._next_msg = self._queue.pop(0)
        if self._early:
            self._early -= _FIELDS
        self._depth += 1
        try:
            self.cb(self._next_topic, self._next_msg)
        except MemoryError:
            self._depth -= 1
            if self._next_topic:  # else it has received others meanwhile, and is done
                # A slice of the queue would put the frame on the heap.
                self._queue = [op, self._next_topic, self._next_msg] + self._queue  # noqa: RUF005
                self._next_topic = b""
            raise
        except:
            self._depth -= 1
            raise
        self._depth -= 1
        self._next_topic = self._next_msg = b""
        self._client.flush()
        return op

    def _take(self, message: "Message") -> "object | None":
        """Queue a message, as the client's handler.

        The callback is called later, because it may publish and wait for the answer, which
        a handler cannot do. Without memory for a large message it is lost, because there may
        never be enough; another one waits in the client.
        """
        try:
            self._keep(message)
        except MemoryError:
            while len(self._queue) % _FIELDS:
                self._queue.pop()
            self._large = None
            self._short = "waits"
            if not message.size:
                return HOLD
            self._short = "is lost"
        return None

    def _keep(self, message):
        if message.size:  # it comes in pieces
            if not message.offset:
                self._large = None
                self._large = bytearray(message.size)
            if self._large is None:  # there was no memory for it
                return
        msg = message.payload
        if message.size:
            self._large[message.offset : message.offset + len(msg)] = msg
            if not message.last:
                return
            msg = bytes(self._large)
            self._large = None
        if not message.is_topic(self._topic):
            self._topic = message.topic
        self._queue.append(message.first)
        self._queue.append(self._topic)
        self._queue.append(msg)
        if self._awaited and self._waits(self._awaited):
            self._early = len(self._queue)

    def _gate(self, kept):
        """Return whether acknowledgements may leave, and the requests behind them.

        They may once the callback has run, or is waiting itself.
        """
        return kept is not None or not self._queue or self._depth > 0
