"""The client: one polling loop over a stream, a clock and a session."""

import random

from .error import MQTTError
from .port import const, ticks_add, ticks_diff, ticks_ms
from .session import LATER, PUBACK, PUBCOMP, PUBREC, ROOM, Session
from .wire import connect, field, get_length, is_name, number

_STEADY = const(10000)  # ms online after which the back-off starts anew with the next loss
_NEVER = const(268435455)  # ms, 3 days
_LOOK_UP = const(4)  # after so many failed tries the name is looked up again

TYPE_CHECKING = False
if TYPE_CHECKING:  # there is no typing on a board
    from collections.abc import Callable
    from typing import Any

    from .message import Message
    from .router import Subscription

# A builtin is found after a miss in the module; a module global is found at once.
_str = str


class Client:
    """An MQTT 3.1.1 (`version` 4) or 3.1 (`version` 3) client.

    client_id      1 to 23 bytes in MQTT 3.1; in 3.1.1 up to 65,535, and none with clean_session
    host, port     where the broker is; a `link` of your own replaces them (see `stream_tcp`)
    user, password None, or up to 65,535 bytes each
    keepalive      s, 0 to 65,535; 0 turns it off, and with it the search for dead links
    clean_session  False: the broker keeps the session while the client is away
    tx_size        bytes for publishes that wait to be sent, or to be acknowledged
    rx_size        bytes of the largest packet that is received, 64 or more; as much again is
                   claimed to read into. A larger message comes in pieces to handlers that were
                   subscribed with `chunks`; without one it is acknowledged and counted
    inflight       QoS 1 and 2 publishes that may wait for an acknowledgement, 1 to 255
    subscriptions  calls of subscribe() that are remembered, 0 to 255
    incoming       received QoS 2 messages that may wait for their release. From a broker that has
                   more in flight the client disconnects (mosquitto has 20, where not told else)
    timeout        s that an answer may take: TCP, CONNACK, PINGRESP
    retry_ms, retry_max_ms   between two tries: at first, and at most; it doubles in between
    on_message     handler of messages that match no filter

    `state` is "offline", "waiting" (for the next try), "resolving" (the next poll looks the name
    up, which may block), "connecting" (TCP), "greeting" (CONNACK is awaited) or "online".
    `session_present` is what the last CONNACK said, `error` None or why the last connection
    ended, `stats` counts.

    Sizes are claimed here, `subscriptions` and `incoming` with the first subscription. str is
    taken for bytes everywhere, and costs its conversion. ValueError names a value that is out of
    its limits.
    """

    default_link: "Any" = None  # what makes a link of a host and a port

    def __init__(
        self,
        client_id: "bytes | str",
        host: str = "",
        port: int = 1883,
        *,
        user: "bytes | str | None" = None,
        password: "bytes | str | None" = None,
        keepalive: int = 60,
        clean_session: bool = True,
        version: int = 4,
        tx_size: int = 1024,
        rx_size: int = 512,
        inflight: int = 8,
        subscriptions: int = 8,
        incoming: int = 32,
        timeout: int = 10,
        retry_ms: int = 500,
        retry_max_ms: int = 60000,
        link: "Any" = None,
        on_message: "Callable[[Message], None] | None" = None,
    ) -> None:
        self._who = (version, client_id, clean_session, keepalive, user, password)
        self._hello = connect(*self._who, None)
        # Packet identifiers start anywhere: a reboot must not use again what it left in flight.
        self._session = Session(tx_size, inflight, subscriptions, random.getrandbits(15))
        self.stats = self._session.stats
        self._receiving = (subscriptions, number("incoming", incoming, 1, 65535), on_message)
        self._router: Any = None
        # Bytes are read to `rx_size` in this buffer, and parsed where they lie. What is left of a
        # packet that is cut moves to before `rx_size`, so that the next bytes complete it.
        # Two bytes more let a packet be looked at without asking at each byte if it is there.
        number("rx_size", rx_size, 64, 1 << 28)
        self._buf = bytearray(2 * rx_size + 2)
        self._into = memoryview(self._buf)[rx_size:-2]
        self._rx_size = rx_size
        self._at = self._have = rx_size  # what is still to be parsed
        self._start = rx_size  # where that will begin when the next bytes are there
        self._cut = False  # that is the beginning of a packet
        self._more = 0  # bytes that are still to come of a message larger than rx_size
        self._busy = False  # a handler is running
        self._link = link or Client.default_link(host, port)
        self._stream: Any = None
        self._topic: bytes | str | None = None  # what publish was last given,
        self._name = b""  # and the same checked
        self.state = "offline"
        self.session_present = False
        self.error: MQTTError | None = None
        # Time is in ms. A quarter of the keep alive is left for the way.
        self._timeout = number("timeout", timeout, 1, 65535) * 1000
        self._interval = keepalive * 750 or _NEVER
        self._retry_max = number("retry_max_ms", retry_max_ms, 1, 1 << 28)
        self._retry = number("retry_ms", retry_ms, 1, retry_max_ms)
        self._delay = retry_ms  # before the next try
        self._tries = 0
        self._now = 0
        self._due = 0  # when time matters next
        self._wrote = self._heard = 0  # when bytes last went out, and came in
        self._asked = False  # a PINGREQ is on its way, and nothing came in since

    # What an application calls

    def set_will(
        self,
        topic: "bytes | str",
        payload: "bytes | str" = b"",
        qos: int = 0,
        retain: bool = False,
    ) -> None:
        """Have the broker publish this when the connection ends without DISCONNECT (section
        3.1.2.5), from the next connection on."""
        will = (
            field("will topic", topic, is_name),
            field("will payload", payload, None),
            number("will qos", qos, 0, 2),
            retain,
        )
        self._hello = connect(*self._who, will)

    def subscribe(
        self,
        filters: "bytes | str | list[bytes] | list[str]",
        handler: "Callable[[Message], None]",
        qos: int = 0,
        chunks: bool = False,
    ) -> "Subscription":
        """Have `handler(message)` called for messages that match a topic filter, or any of a list
        of them, at `qos` at the most. Sent when online, and again when the broker has forgotten.
        With `chunks` it gets messages larger than `rx_size` too, in pieces: see `Message`.

        Returns a Subscription, whose `granted` tells what the broker said. ValueError for a bad
        filter or QoS, and for more than `subscriptions`.
        """
        return self._load().subscribe(filters, handler, qos, chunks)

    def unsubscribe(self, filters: "bytes | str | list[bytes] | list[str]") -> None:
        """End the subscription to a topic filter, or to each of a list of them."""
        self._load().unsubscribe(filters)

    def start(self) -> None:
        """Begin to connect; `poll` does the rest, for good."""
        if self.state == "offline":
            self.state = "waiting"
            self._due = ticks_ms()

    def publish(
        self,
        topic: "bytes | str",
        payload: "bytes | bytearray | memoryview | str" = b"",
        qos: int = 0,
        retain: bool = False,
    ) -> "int | None":
        """Accept a message, for `poll` or `flush` to send.

        Returns its packet identifier at QoS 1 and 2, 0 at QoS 0, and None when there is no room
        now. ValueError for a bad topic name or QoS, and for a packet larger than `tx_size`.
        Allocates nothing when the topic is bytes, and the payload bytes or another buffer.
        """
        if topic is not self._topic:
            self._name = field("topic name", topic, is_name)
            self._topic = topic if self._name is topic or isinstance(topic, str) else None
        if payload.__class__ is _str:  # isinstance costs more, and this is asked every time
            payload = payload.encode()
        if qos:
            qos = number("qos", qos, 0, 2) << 1
            return self._session.publish((0x31 if retain else 0x30) | qos, self._name, payload)  # type: ignore[arg-type]
        return self._session.publish_qos0(0x31 if retain else 0x30, self._name, payload)  # type: ignore[arg-type]

    def publish_from(
        self,
        topic: "bytes | str",
        source: "Any",
        qos: int = 0,
        retain: bool = False,
    ) -> "int | None":
        """Accept a message of up to 268 MB, whose payload is sent in pieces from where it is: a
        buffer, or a file that was opened for reading bytes and is sent whole. It has to stay as
        it is until `pending` is 0; at QoS 1 a lost connection has it sent from its start again.

        Returns its packet identifier at QoS 1, 0 at QoS 0, and None when something is pending:
        one such message is taken at a time, after what was published before. What is published
        after it leaves after it. ValueError for a bad topic name, and QoS 2. A file that ends
        early, or cannot be read, ends the connection with "resource", and the message with it.
        """
        s = self._session
        if s.large is None:
            from .pieces import Pieces

            s.large = Pieces(s, s.slots)
        head = (0x31 if retain else 0x30) | number("qos", qos, 0, 1) << 1
        return s.large.publish(head, field("topic name", topic, is_name), source)

    def poll(self, ms: int = 0) -> bool:
        """Do what there is to do, and wait up to `ms` for something to come in. Returns whether
        something did, and as soon as it did. Only a name lookup may take longer.

        What a handler raises comes out here; the next call delivers that message again.
        """
        if self._busy:  # a handler called
            return False
        while True:
            self._now = ticks_ms()
            late = ticks_diff(self._now, self._due) >= 0
            if self.state != "online":
                moved = self._connect(late)
            else:
                if late:
                    self._keep_alive()
                self.flush()
                moved = self._receive()
            if moved or ms <= 0:
                return moved
            if self.state != "offline":
                ms = min(ms, ticks_diff(self._due, self._now))
            if ms > 0:
                s = self._session
                self._link.wait(ms, s.left > 0 or s.feed is not None or self.state == "connecting")
            ms = 0

    def flush(self) -> None:
        """Hand what is queued to the network, as far as it takes it now. Reads nothing."""
        s = self._session
        n = 0
        if s.plain:
            if not s.end:
                return
            n = self._write(s)
            if n == s.end:
                s.end = 0
                return
            s.left = s.end
            s.plain = False
        while n is not None:
            if n < 0:
                self._lost("closed", "write")
                return
            if n:
                s.sent(n)
                self._wrote = self._now
            if not s.left:
                if s.at == s.end and not (s.answers or s.due or s.feed):
                    s.src = s.buf
                    s.out = 0
                    s.plain = not (s.end or s.tail) and self.state == "online"
                    return
                if self.state != "online" or not self._next(s):
                    return
            n = self._write(s)

    def _next(self, s):
        if s.due and not (s.feed and s.feed.begun):
            return self._router.request()
        if s.next():
            return True
        if s.failed:
            self._lost("resource", s.failed)
        return False

    def ping(self) -> None:
        """Have a PINGREQ sent. The connection ends if nothing comes in for `timeout` s, or for
        three quarters of the keep alive where that is less."""
        if self.state == "online" and not self._asked:
            if self._session.answers <= ROOM:  # else bytes wait to go out, which will do as well
                self._session.answer(0xC0)
            self._asked = True
            self._now = ticks_ms()
            self._due = ticks_add(self._now, min(self._timeout, self._interval))

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted the connection."""
        return self.state == "online"

    @property
    def pending(self) -> int:
        """Publishes accepted and not yet acknowledged, or at QoS 0 not yet handed to the network.
        0 is what to wait for before deep sleep."""
        return self._session.pending()

    def connect(self, timeout_ms: int = 10000) -> None:
        """Start, and poll until online. MQTTError after `timeout_ms`, and at once when the broker
        refuses; the client goes on trying if it is polled."""
        self.error = None
        self.start()
        end = ticks_add(ticks_ms(), timeout_ms)
        while self.state != "online":
            left = ticks_diff(end, ticks_ms())
            if left <= 0 or (self.error and self.error.kind == "refused"):
                raise self.error or MQTTError("timeout", f"{self.state} after {timeout_ms} ms")
            self.poll(left)

    def wait(self, timeout_ms: int) -> bool:
        """Poll until `pending` is 0, for `timeout_ms` at the most. Returns whether it is."""
        end = ticks_add(ticks_ms(), timeout_ms)
        while self._session.pending() and ticks_diff(end, ticks_ms()) > 0:
            self.poll(ticks_diff(end, ticks_ms()))
        return not self._session.pending()

    def disconnect(self, timeout_ms: int = 1000) -> None:
        """Send what is queued and DISCONNECT (section 3.14), wait for the broker to close, for
        `timeout_ms` at the most in all, and close. What is not acknowledged is kept for the next
        `start`; what comes in meanwhile is not."""
        s = self._session
        end = ticks_add(ticks_ms(), timeout_ms)
        said = False
        while self.state == "online":
            self.flush()
            if not said and s.at == s.end and not (s.left or s.feed):
                said = True
                s.answer(0xE0)
                continue
            # To close with bytes unread would reset the connection, and what was sent with it.
            left = ticks_diff(end, ticks_ms())
            if left <= 0 or not self._stream or (said and self._fill() == 0):
                break
            self._link.wait(left, s.left > 0 or s.feed is not None)
        self._lost(None)

    # Time

    def _keep_alive(self):
        now = self._now
        left = self._timeout - ticks_diff(now, self._wrote)
        if left > 0 and self._session.feed:
            # PINGREQ waits for the end of the message; that bytes are taken shows life as well.
            self._due = ticks_add(now, left)
            return
        if self._asked:
            self._lost("timeout", "PINGRESP")
            return
        self._tries = 0
        self._delay = self._retry
        left = ticks_diff(now, self._wrote)
        left = self._interval - max(left, ticks_diff(now, self._heard))
        if left > 0:
            self._due = ticks_add(now, left)
        elif self._interval != _NEVER:
            self.ping()

    # Connecting. Here memory may be allocated: by the lookup, the socket, an error, a SUBACK.

    def _connect(self, late):
        try:
            if self.state == "waiting" and late:
                self.state = "resolving"
                late = self._link.address is not None
            elif self.state == "resolving":
                self._link.resolve()
                late = True
            elif late and self.state != "offline":
                self._lost("timeout", self.state)
            elif self.state == "connecting":
                self._stream = self._link.stream()
                if self._stream:
                    self._greet()
            if self.state == "resolving" and late:
                self._due = ticks_add(ticks_ms(), self._timeout)
                self.state = "connecting"
                self._link.connect()
        except OSError as e:
            self._lost("resource" if self.state == "resolving" else "closed", e)
        if self.state != "greeting":
            return False
        self.flush()
        return self._receive()

    def _greet(self):
        s = self._session
        s.src = self._hello
        s.out = s.answers = 0
        s.left = len(self._hello)
        self._at = self._have = self._start = self._rx_size
        self._more = 0
        self._cut = False
        self.state = "greeting"

    def _on_connack(self, flags, code):
        version = self._who[0]
        clean = self._who[2]
        if self.state != "greeting":
            return "a second CONNACK"
        if version == 4 and (flags > 1 or (flags and (clean or code))):
            return "flags"
        if code:
            self._lost("refused", f"CONNACK: return code {code}", code)
            return LATER
        self.stats.connects += 1
        self.error = None
        self.session_present = version == 4 and flags == 1
        # MQTT 3.1 does not tell; there the broker is taken to remember what it was asked to.
        same = self.session_present or (version == 3 and not clean)
        self._session.same = same
        if not same:
            self._session.forget()
        if self._router:
            self._router.resume(self.session_present, same)
        self._wrote = self._heard = self._now
        self._asked = False
        self._due = ticks_add(self._now, min(self._interval, _STEADY))
        self.state = "online"
        return None

    def _lost(self, kind, detail=None, code=0):
        """The connection has ended, or could not be made: try again later. Returns False."""
        self._link.close()
        self._stream = None
        self._session.lost()
        self._session.failed = ""
        self._at = self._have = self._start = self._rx_size
        if not kind:
            self.state = "offline"
            return False
        self.state = "waiting"
        self.error = MQTTError(kind, detail, code)
        self.stats.losses += 1
        self._tries += 1
        if self._tries % _LOOK_UP == 0:
            self._link.address = None
        half = self._delay // 2
        self._due = ticks_add(ticks_ms(), half + (half * random.getrandbits(8) >> 8))
        self._delay = min(self._delay * 2, self._retry_max)
        return False

    # The stream. With a `try` two locals are all that a frame off the heap has room for.

    def _write(self, s):
        try:
            return self._stream.write(s.src, s.out, s.left or s.end)  # `end`: see `plain`
        except OSError:
            return -1

    def _fill(self):
        try:
            return self._stream.readinto(self._into)
        except OSError:
            return 0

    # Receiving

    def _receive(self):
        """Read, unless something that was read before is still to be handled, and handle what
        there is. Returns whether there was anything."""
        if self._at == self._have or self._cut:
            if self._cut:
                self._shift()
            n = self._fill() if self._stream else None
            if not n:
                return False if n is None else self._lost("closed", "read")
            self._at = self._start
            self._have = self._rx_size + n
            self._heard = self._now
            self._asked = self._cut = False
            if self.state == "greeting" and self._buf[self._at] != 0x20:
                return self._fault("CONNACK is not first") > 0
        self._busy = True
        try:
            n = self._piece() if self._more else self._at
            while n > 0:
                self._at = n
                if n >= self._have:
                    self._start = self._rx_size
                    break
                n = self._packet()
            else:
                self._cut = n == 0
        finally:
            self._busy = False
        self.flush()
        return True

    def _shift(self):
        """Move the packet that is cut to where the next bytes will complete it."""
        buf = self._buf
        at = self._at
        to = self._rx_size - self._have + at
        self._at = self._start = to
        if at != to:
            while at < self._have:
                buf[to] = buf[at]
                at += 1
                to += 1
            self._have = to

    def _packet(self):
        """Handle one packet. Returns where it ends, 0 when it is cut, -1 when it has to wait or
        the connection was lost."""
        buf = self._buf
        at = self._at + 1
        first = buf[at - 1]
        n = buf[at]  # if it is not there yet, n is past the end whatever it says
        if n < 128:
            at += 1
            n += at
        else:
            n = get_length(buf, at, self._have)
            if n < 0:
                return 0 if n == -1 else self._fault("Remaining Length of 5 bytes")
            at += (n & 3) + 1
            n = at + (n >> 2)
        if n > self._have:
            return 0 if n - self._at <= self._rx_size else self._on_large(first, at, n)
        if first & 0xF0 == 0x30:
            first = (self._router or self._load()).publish(first, at, n)
        else:
            first = self._on_packet(first, at, n)
        return n if first is None else self._fault(first)

    def _on_large(self, first, at, end):
        """Handle a packet larger than rx_size: of a PUBLISH the topic name and the packet
        identifier have to be there, and the payload is handed on as it comes."""
        n = at + 2
        if n > self._have:
            return 0
        if first & 0xF0 != 0x30:
            return self._fault("larger than rx_size" if first == 0x90 else "length")
        n += (self._buf[at] << 8 | self._buf[at + 1]) + (2 if first & 6 else 0)
        if n > self._have:
            return 0 if n - self._at <= self._rx_size else self._fault("topic name > rx_size")
        end -= n
        first = self._load().begin(first, at, n, end)
        if first is not None:
            return self._fault(first)
        self._at = n
        self._more = end
        return n if n == self._have else self._piece()

    def _piece(self):
        """Hand on what is there of a message larger than rx_size. Returns as `_packet` does."""
        n = min(self._more, self._have - self._at)
        what = self._router.piece(self._at, self._at + n)
        if what is not None:
            return self._fault(what)
        self._more -= n
        return self._at + n

    def _fault(self, what):
        """The packet has to wait, or broke a rule. Returns -1."""
        if what != LATER:
            kind = "resource" if "rx_size" in what or "incoming" in what else "protocol"
            self._lost(kind, f"packet {self._buf[self._at]:#x}: {what}")
        return -1

    def _on_packet(self, first, at, end):
        """Handle anything but a PUBLISH. Returns None, LATER, or the rule that it breaks."""
        if first == 0xD0 and at == end:
            return None
        if end - at < 2 or (end - at > 2 and first != 0x90):
            return "length"
        pid = self._buf[at] << 8 | self._buf[at + 1]
        if first == 0x20:
            return self._on_connack(pid >> 8, pid & 255)
        if not pid:
            return "packet identifier 0"
        if first == 0x40:
            pid = self._session.settle(pid, PUBACK)
        elif first == 0x70:
            pid = self._session.settle(pid, PUBCOMP)
        elif first == 0x90 or first == 0xB0:
            pid = self._load().answered(first, at, end)
        elif self._session.answers > ROOM:
            return LATER
        elif first == 0x50:
            pid = self._session.settle(pid, PUBREC)
        elif first == 0x62 or (first == 0x6A and self._who[0] == 3):  # MQTT 3.1 may set DUP
            self._load().pubrel(pid)
        else:
            return "type or flags"
        if pid is None:
            return "return codes"
        if not pid:
            self.stats.strays += 1
        return None

    def _load(self):
        """The receiving half, made when it is first needed."""
        if not self._router:
            from .router import Router

            self._router = Router(self._session, self._buf, *self._receiving)
        return self._router
