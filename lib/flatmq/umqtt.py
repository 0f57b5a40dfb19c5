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
- A message is acknowledged even if its callback raises an exception.
"""

import errno

from . import Client, port
from .port import MICROPYTHON, const, ticks_add, ticks_diff

if MICROPYTHON:
    from .stream_tcp import TCP
else:
    from .stream_cpython import TCP

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .message import Message, Subscription

# Counters: see `stats`.
_LOSSES = const(11)

_TIMEOUT = const(10000)  # ms
_QUIET = const(6)  # times `timeout` without a packet until wait_msg checks the link
_BUFFER = const(512)  # bytes of `tx_size` and `rx_size`; larger messages travel in pieces
_FIELDS = const(3)  # items in the queue for each message
_MORE = const(9)  # bytes of a PUBLISH in addition to topic and payload


class MQTTException(Exception):
    """The broker refused. `args[0]` is the return code: 1 to 5 from CONNACK, 0x80 from SUBACK."""


class Link(TCP):
    """A TCP link that keeps, in `error`, an exception raised before the broker accepted."""

    error: "Exception | None" = None

    def why(self, error: "Any") -> None:
        """Keep the exception. Returns None: it needs no further explanation."""
        if isinstance(error, (OSError, ValueError, TypeError)):
            self.error = error


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
        self.lw_topic: bytes | str | None = None
        self.lw_msg: bytes | str | None = None
        self.lw_qos = 0
        self.lw_retain = False
        self.pid: Any = 0
        self.publish_flags = 0
        self.sock: Any = None
        self.error: Exception | None = None
        self._client: Any = None
        self._settings: Any = None  # of the client
        self._timeout = _TIMEOUT
        self._end = 0  # when a call gives up
        # First byte, topic and payload of each received message that waits for the callback.
        # Flat, because an empty list already has room for four items.
        self._queue: list[Any] = []
        self._early = 0  # items of the queue that came before the answer a call waits for
        # Packet identifier that a call waits for; None as soon as the connection is closed.
        self._awaited: int | None = None
        self._depth = 0  # callbacks that are running
        self._next_topic = self._next_msg = b""  # the arguments for the next callback
        self._pings = 0  # calls of ping() for which wait_msg() has not returned None yet
        self._again: list[Subscription] = []  # subscriptions that connect() has renewed
        self._topic = b""  # of the last message
        self._large: bytearray | None = None  # payload of a message that comes in pieces
        self._short = False  # there was no memory for a message

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
        if not 0 <= qos <= 2:
            raise AssertionError(f"qos must be 0 to 2, not {qos!r}")
        if not topic:
            raise AssertionError(f"topic must not be empty: {topic!r}")
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
            if timeout < 0.001:
                raise ValueError(f"timeout must be at least 0.001 s, not {timeout!r}")
            self._timeout = int(timeout * 1000)
        if self._client:
            self._stop()
        self._prepare(bool(clean_session))
        c = self._client
        c.link.error = None
        losses = c.counts[_LOSSES]
        self._pings = 0
        self._end = ticks_add(port.ticks_ms(), self._timeout)
        c.start()
        while not c.connected:
            left = ticks_diff(self._end, port.ticks_ms())
            if left > 0:
                c.poll(left)
            else:
                self._fail(OSError(errno.ETIMEDOUT, "connect"))
            if c.counts[_LOSSES] != losses:
                self._fail()
        self.error = None
        self.sock = getattr(c.stream, "sock", c.stream)
        self._again = list(c.requests)
        return int(c.session_present)

    def disconnect(self) -> None:
        """Send DISCONNECT and close the connection, if there is one."""
        if self._client:
            self._queue.clear()
            self._early = 0
            if self._client.connected:
                self._client.disconnect(min(self._timeout, 1000))
            self._stop()

    def ping(self) -> None:
        """Send PINGREQ.

        wait_msg() returns None when the broker has answered, and raises OSError if it does
        not answer in time.
        """
        self._ready()
        self._pings += 1
        self._client.ping()
        self._client.flush()

    def _prepare(self, clean_session):
        """Make or update the client, offline, for the current values of the attributes."""
        given: dict[str, Any] = {
            "client_id": self.client_id,
            "user": self.user or None,
            "password": self.pswd if self.user else None,
            "keepalive": self.keepalive,
            "clean_session": clean_session,
            "timeout": (self._timeout + 999) // 1000,
        }
        will: Any = (self.lw_topic, self.lw_msg, self.lw_qos, self.lw_retain)
        settings = (given, will, self.server, self.port, self.ssl, self.ssl_params)
        if settings == self._settings:
            return
        self._settings = None
        c = self._client
        if c:  # its link may hold memory that the next one needs
            c.link = None
        link: Any
        if self.ssl:
            from .umqtt_tls import link as secure

            link = secure(self.server, self.port, self.ssl, self.ssl_params)
        else:
            link = Link(self.server, self.port)
        if c:
            c.reconfigure(link=link, will=will if self.lw_topic else None, **given)
        else:
            c = Client(
                tx_size=_BUFFER,
                rx_size=_BUFFER,
                inflight=4,
                subscriptions=255,
                link=link,
                on_message=self._take,
                chunks=True,
                quiet=True,  # the calls raise
                **given,
            )
            c.gate = self._gate
            if self.lw_topic:
                c.set_will(*will)
        self._client = c
        self._settings = settings

    def _stop(self):
        """Close the connection without DISCONNECT.

        Undelivered messages are forgotten: the call that published them raised an
        exception, so the program decides what to do.
        """
        self._awaited = None
        self._client.abandon()

    def _fail(self, error=None):
        """Close the connection, and raise the exception that ended it."""
        self.error = error or self._why()
        if self._client:
            self._stop()
        raise self.error

    def _why(self):
        c = self._client
        e = c.error if c and c.link else None
        if not e:
            return OSError(errno.ENOTCONN, "not connected")
        if e.kind == "refused":
            return MQTTException(e.code)
        raised = c.link.error
        if raised:
            # umqtt raises ValueError for a certificate, too, but with a less precise text.
            is_bad = e.kind == "tls" and not isinstance(raised, OSError)
            return ValueError(e.detail) if is_bad else raised
        if e.kind == "timeout":
            return OSError(errno.ETIMEDOUT, e.detail)
        return OSError(-1, e.detail)

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
        if left > 0:
            c.poll(left)
        else:
            self._fail(OSError(errno.ETIMEDOUT, "no answer from the broker"))
        while self._early:
            self._call()
        self._check()
        if not c.connected:
            self._fail()

    def _check(self):
        if self._short:
            self._short = False
            raise MemoryError("no memory for a message; it is lost")

    # Outgoing messages

    def publish(
        self, topic: "bytes | str", msg: "bytes | str", retain: bool = False, qos: int = 0
    ) -> None:
        """Publish a message.

        At QoS 0 it returns when the message is handed to the network, at QoS 1 and 2 when
        the broker has acknowledged it. `msg` may be any buffer, and of any size at QoS 0
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
        self._offer(topic, msg, flags)
        while self.pid is None:
            self._work()
            self._offer(topic, msg, flags)
        if flags > 1:
            self._wait_for(self.pid)
        else:
            self._written()

    def _offer(self, topic, msg, flags):
        """Hand a message to the client. `pid` becomes None if there is no room."""
        if flags < 4 and len(topic) + len(msg) + _MORE > _BUFFER:
            self.pid = self._client.publish_from(topic, msg, flags >> 1, flags & 1)
        else:
            self.pid = self._client.publish(topic, msg, flags >> 1, flags & 1)

    def _written(self):
        """Wait until all QoS 0 messages are handed to the network.

        Unless it is slow, they are handed over at once.
        """
        c = self._client
        c.flush()
        while c.pending > c.kept and c.connected:
            self._work()
            while self._queue:
                self._call()
        if not c.connected:
            self._fail()

    def _wait_for(self, pid):
        """Wait until a packet identifier is free again.

        Messages that arrive before that go to the callback; later ones wait for the next
        call.
        """
        outer = self._awaited
        self._awaited = pid
        self._early = len(self._queue)
        try:
            self._settled(pid)
        except:  # `finally` would put the frame on the heap
            self._awaited = outer if self._awaited == pid else None
            raise
        self._awaited = outer

    def _settled(self, pid):
        self._client.flush()
        while self._waits(pid):
            self._work()
        if self._awaited != pid:
            raise OSError(errno.ECONNABORTED, "a callback has closed the connection")

    def _waits(self, pid):
        """Return whether a message or request with this packet identifier is not answered."""
        c = self._client
        i = 0
        while i < len(c.requests):
            if c.requests[i].id == pid:
                return True
            i += 1
        return c.awaits(pid)

    # Subscriptions

    def subscribe(self, topic: "bytes | str", qos: int = 0) -> None:
        """Subscribe to a topic filter, and wait for SUBACK.

        MQTTException(0x80) if the broker refuses; OSError as for publish(); AssertionError
        without a callback.
        """
        if self.cb is None:
            raise AssertionError("call set_callback() before subscribe()")
        self._ready()
        new = self._found(topic, qos)
        if not new:
            new = self._client.subscribe(topic, self.cb, qos)
            new.names = [b""]  # `on_message` gets each message once, even if several filters match
        try:
            self._request(new)
        except:
            self._client.withdraw(new)
            raise
        if 0x80 in new.granted:
            self._client.withdraw(new)
            raise MQTTException(0x80)

    def unsubscribe(self, topic: "bytes | str") -> None:
        """End the subscription to a topic filter, and wait for UNSUBACK.

        OSError as for publish().
        """
        self._ready()
        self._found(topic, None)
        self._request(self._client.unsubscribe(topic))

    def _found(self, topic, qos):
        """Return the subscription if connect() has already renewed it, else None.

        A second SUBSCRIBE would make the broker send retained messages twice.
        """
        if isinstance(topic, str):
            topic = topic.encode()
        for s in self._again:
            if s.filters == [topic]:
                self._again.remove(s)
                return s if s.qos == qos else None
        return None

    def _request(self, r):
        pid = r.id
        if pid:
            self._wait_for(pid)
            self.pid = pid
        while r in self._client.requests:  # it waits for others, or for its next try
            self._work()

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
            if not self._pong():
                self._poll(self._timeout * _QUIET if ms is None else ms)
            if not self._queue:
                return None
        return self._call()

    def _poll(self, ms):
        """Poll until a message or the answer to a ping() has come in, or once if `ms` is 0."""
        c = self._client
        left = ms
        end = ticks_add(port.ticks_ms(), ms)
        while not self._queue:
            heard = c.poll(left)  # it may return before that time has passed
            left = ticks_diff(end, port.ticks_ms())
            if heard or left <= 0:
                if ms and not heard:
                    c.ping()
                left = ms
                end = ticks_add(port.ticks_ms(), ms)
            self._check()
            if self._queue or self._pong():
                return
            if not c.connected:
                self._fail()
            if not ms:
                return

    def _pong(self):
        """Return whether a ping() was answered and this was not reported yet."""
        if not self._pings or self._client.asked or not self._client.connected:
            return False
        self._pings -= 1
        return True

    def _call(self):
        """Call the callback with the first queued message.

        Returns the first byte of its PUBLISH.
        """
        queue = self._queue
        op = queue.pop(0)
        self._next_topic = queue.pop(0)
        self._next_msg = queue.pop(0)
        if self._early:
            self._early -= _FIELDS
        self._run()
        self._client.flush()
        return op

    def _run(self):
        # No arguments and no `finally`: either would put the frame on the heap.
        self._depth += 1
        try:
            self.cb(self._next_topic, self._next_msg)
        except:
            self._depth -= 1
            raise
        self._depth -= 1
        self._next_msg = b""

    def _take(self, m: "Message") -> None:
        """Queue a message, as the client's handler.

        The callback is called later, because it may publish and wait for the answer, which
        a handler cannot do.
        """
        try:
            self._keep(m)
        except MemoryError:
            while len(self._queue) % _FIELDS:
                self._queue.pop()
            self._large = None
            self._short = True

    def _keep(self, m):
        msg = self._piece(m) if m.size else m.payload
        if msg is None:
            return
        if not m.is_topic(self._topic):
            self._topic = m.topic
        self._queue.append(m.first)
        self._queue.append(self._topic)
        self._queue.append(msg)
        if self._awaited and self._waits(self._awaited):
            self._early = len(self._queue)

    def _piece(self, m):
        """Collect a message that is larger than the buffer.

        Returns its payload once it is complete, else None.
        """
        if not m.offset:
            self._large = None
            self._large = bytearray(m.total)
        if self._large is None:  # there was no memory for it
            return None
        self._large[m.offset : m.offset + len(m)] = m.payload
        if not m.last:
            return None
        msg = bytes(self._large)
        self._large = None
        return msg

    def _gate(self, same):
        """Return whether acknowledgements may leave.

        They may once the callback has run, or is waiting itself.
        """
        return same is not None or not self._queue or self._depth > 0
