"""Which handlers does a message go to, and what does the broker hear of it?

The receiving half of a client: subscriptions, PUBLISH and PUBREL. The client loads it with the
first subscription, or the first message; a board that only publishes does not pay for it.
"""

from .message import Message
from .port import const
from .session import LATER, ROOM, Session
from .topic import is_filter, matches
from .wire import field, is_name, number, packet

_SEEN = const(64)  # bytes: the longest topic name whose handlers are remembered

# What a request waits for.
_SEND = const(0)
_ANSWER = const(1)
_NOTHING = const(2)

# A builtin is found after a miss in the module; a module global is found at once.
_len = len


class Subscription:
    """Topic filters that were subscribed to together, and their handler.

    `granted` is None until the SUBACK (section 3.9) is there. Then it has one byte for each
    filter: the QoS that the broker grants, or 0x80 where it refuses.
    """

    def __init__(self, filters: "list[bytes]", handler, qos: int, chunks: bool = False) -> None:
        self.handler = handler  # None: an UNSUBSCRIBE
        self.chunks = chunks  # whether it takes messages larger than the buffer, in pieces
        self.qos = qos
        self.granted: bytes | None = None
        self.filters = filters
        self.wait = _SEND
        self.narrow(filters)

    def narrow(self, filters: "list[bytes]") -> None:
        """Have these filters, and no others."""
        if self.granted:
            self.granted = bytes([self.granted[self.filters.index(f)] for f in filters])
        self.filters = filters
        first, tail = (0x82, bytes((self.qos,))) if self.handler is not None else (0xA2, b"")
        self.packet = packet(first, b"\0\0", filters, tail)
        if self.wait == _ANSWER:
            self.wait = _SEND

    def takes(self, m: Message) -> bool:
        """Whether the topic name of a message matches one of the filters."""
        i = 0
        while i < _len(self.filters):  # a `for` would put the frame on the heap
            if matches(self.filters[i], m.buf, m.topic_at, m.topic_end):
                return True
            i += 1
        return False


class Router:
    """At most `size` requests of a `session`, and the packet identifiers of at most `incoming`
    QoS 2 messages that were received and are not released (section 4.3.3, method B)."""

    def __init__(
        self, session: Session, buf: bytearray, size: int, incoming: int, on_message
    ) -> None:
        self._session = session
        self._stats = session.stats
        self._slots: list[Subscription | None] = [None] * size
        self._seen = bytearray(_SEEN)  # the topic name found last
        self._seen_n = -1
        self._routes: list = [None] * size  # and its handlers
        self._count = 0
        self._one = None  # the handler, if there is just one
        # Handlers that are done with a message of which a later one raised.
        self._handled = 0
        self._on_message = on_message
        self._pid = 0  # the packet identifier of the message
        self._ids = [0] * incoming
        self.message = Message(buf)

    # Requests

    def subscribe(self, filters, handler, qos: int, chunks: bool = False) -> Subscription:
        """Remember a subscription; one to the same filters is replaced. ValueError for a bad
        filter or QoS, no handler, or when every slot is taken."""
        number("qos", qos, 0, 2)
        if handler is None:
            raise ValueError("handler: None")
        filters = _checked(filters)
        for i, s in enumerate(self._slots):
            if s and s.handler is not None and s.filters == filters:
                self._clear(i)
        return self._put(Subscription(filters, handler, qos, chunks))

    def unsubscribe(self, filters) -> None:
        """Forget filters, and have the broker told. ValueError for one that is not subscribed to,
        or when every slot is taken."""
        filters = _checked(filters)
        for f in filters:
            if not any(s and s.handler is not None and f in s.filters for s in self._slots):
                raise ValueError(f"topic filter: not subscribed to: {f!r}")
        rest = [
            [f for f in s.filters if f not in filters] if s and s.handler is not None else None
            for s in self._slots
        ]
        if [] not in rest:
            self._check_room()
        for i, s in enumerate(self._slots):
            left = rest[i]
            if s and left is not None and left != s.filters:
                self._clear(i)
                if left:
                    s.narrow(left)
                    self._slots[i] = s
        self._put(Subscription(filters, None, 0))

    def _check_room(self):
        if None not in self._slots:
            n = len(self._slots)
            raise ValueError(f"subscriptions: {n + 1}, allowed is {n}")

    def _put(self, request):
        self._check_room()
        self._slots[self._slots.index(None)] = request
        self._changed()
        return request

    def _clear(self, i):
        """Free a slot. An answer that is still on its way finds nobody who waits for it."""
        self._slots[i] = None
        self._session.ids[i - len(self._slots)] = 0

    def _changed(self):
        self._seen_n = -1
        self._session.plain = False
        self._session.due = sum(s.wait == _SEND for s in self._slots if s)

    def resume(self, remembered: bool, same: bool) -> None:
        """A connection is there. Requests that were not answered go again, and all subscriptions
        unless the broker has `remembered` them; identifiers mean nothing to another session than
        the `same`."""
        for i, s in enumerate(self._slots):
            self._session.ids[i - len(self._slots)] = 0
            if s and not remembered and s.handler is None:
                self._slots[i] = None
            elif s and (s.wait == _ANSWER or not remembered):
                s.wait = _SEND
        m = self.message
        self._handled = m.offset = m.size = m.first = 0
        if not same:
            for i in range(len(self._ids)):
                self._ids[i] = 0
        self._changed()

    def request(self) -> bool:
        """Begin to send the next SUBSCRIBE or UNSUBSCRIBE; one must be due."""
        i = 0
        s = self._slots[0]
        while s is None or s.wait != _SEND:
            i += 1
            s = self._slots[i]
        session = self._session
        pid = session.next_id()
        session.ids[i - len(self._slots)] = pid
        i = 1
        while s.packet[i] > 127:
            i += 1
        s.packet[i + 1] = pid >> 8
        s.packet[i + 2] = pid & 255
        session.src = s.packet
        session.out = 0
        session.left = len(s.packet)
        s.wait = _ANSWER
        session.due -= 1
        return True

    def answered(self, first: int, at: int, end: int) -> "bool | None":
        """A SUBACK or UNSUBACK that begins with `first` and goes on from `at` to `end`. Returns
        whether it was waited for, None when its return codes break a rule."""
        pid = self.message.buf[at] << 8 | self.message.buf[at + 1]
        codes = bytes(self.message.buf[at + 2 : end])
        if first == 0x90 and (not codes or any(c > 2 and c != 128 for c in codes)):
            return None
        for i, s in enumerate(self._slots):
            if s and self._session.ids[i - len(self._slots)] == pid:
                if (first == 0x90) != (s.handler is not None):
                    return False
                if codes and len(codes) != len(s.filters):
                    return None  # and the request is still to be answered
                self._session.ids[i - len(self._slots)] = 0
                s.wait = _NOTHING
                s.granted = codes
                if s.handler is None:
                    self._slots[i] = None
                return True
        return False

    # Messages

    def publish(self, first: int, at: int, end: int) -> "str | None":
        """Handle a PUBLISH (section 3.3) that begins with `first` and goes on from `at` to `end`
        in the message's buffer. Returns None, LATER, or what is wrong."""
        m = self.message
        # Two bytes behind the end may be looked at: then n is past it whatever they say.
        n = at + 2 + (m.buf[at] << 8 | m.buf[at + 1])
        if n > end:
            return "shorter than its topic name"
        at += 2
        m.topic_at = at
        m.topic_end = m.at = n
        # Bytes that are the same as last time need no second look.
        if n - at != self._seen_n or m.buf.find(self._seen, at, n) != at:
            if not is_name(m.buf, at, n):
                return "not a topic name"
            self._find(m)
        m.end = end
        if first != m.first or self._one is None:
            return self._flagged(first)
        self._one(m)
        self._stats.received += 1
        return None

    def begin(self, first: int, at: int, end: int, size: int) -> "str | None":
        """The same for a message larger than the buffer, of which topic name and packet identifier
        lie from `at` to `end`; `size` bytes of payload follow, for `piece`."""
        m = self.message
        m.size = size
        m.end = end
        m.topic_at = at + 2
        m.topic_end = m.at = end - 2 if first & 6 else end
        if not is_name(m.buf, m.topic_at, m.topic_end):
            return "not a topic name"
        self._find(m)
        # The name moves to where nothing is read to, and lasts until the last piece is handled.
        at = 0
        while m.topic_at < m.topic_end:
            m.buf[at] = m.buf[m.topic_at]
            at += 1
            m.topic_at += 1
        m.topic_at = 0
        m.topic_end = at
        self._seen_n = -1  # the handlers of the next message are others
        m.offset = 0
        return self._numbered(first)

    def piece(self, at: int, end: int) -> "str | None":
        """The next bytes of that payload. Returns None, or LATER."""
        m = self.message
        m.at = at
        m.end = end
        last = m.last
        if last and m.qos and self._session.answers > ROOM:
            return LATER
        new = m.qos < 2 or self._pid not in self._ids
        if new:
            self._call()
        if last:
            self._answer()
        m.offset += m.end - m.at
        if last:
            m.offset = m.size = m.first = 0
            if new and self._count:
                self._stats.received += 1
            elif new:
                self._stats.skipped += 1
        return None

    def _find(self, m):
        """Find the handlers for a message's topic name, and remember it."""
        self._count = 0
        self._seen_n = -1
        for s in self._slots:
            if s and s.handler is not None and (s.chunks or not m.size) and s.takes(m):
                self._routes[self._count] = s.handler
                self._count += 1
        self._one = self._routes[0] if self._count == 1 else None
        n = m.topic_end - m.topic_at
        if n <= _SEEN:
            self._seen_n = n
            self._seen[0:] = b""  # keeps its memory, so that append allocates nothing
            n = m.topic_at
            while n < m.topic_end:
                self._seen.append(m.buf[n])
                n += 1

    def _flagged(self, first):
        """Go on with a message that has other flags than the one before, or is numbered."""
        what = self._numbered(first)
        if what is not None:
            return what
        m = self.message
        if m.qos and self._session.answers > ROOM:
            return LATER
        if m.qos < 2 or self._pid not in self._ids:
            self._call()
            if self._count or self._on_message is not None:
                self._stats.received += 1
            else:
                self._stats.unrouted += 1
        self._answer()
        return None

    def _numbered(self, first):
        """Read the flags and the packet identifier. Returns what is wrong with them."""
        m = self.message
        if first & 6 == 6:
            return "QoS 3"
        if first & 14 == 8:
            return "DUP at QoS 0"
        m.first = 0 if first & 6 else first  # a numbered message always comes this way
        m.qos = first >> 1 & 3
        m.retain = first & 1
        m.dup = first >> 3 & 1
        if m.qos:
            if m.at + 2 > m.end:
                return "no packet identifier"
            self._pid = m.buf[m.at] << 8 | m.buf[m.at + 1]
            m.at += 2
            if not self._pid:
                return "packet identifier 0"
            if m.qos == 2 and self._pid not in self._ids and 0 not in self._ids:
                return "more in flight than `incoming`"
        return None

    def _call(self):
        i = self._handled
        while i < self._count:
            self._handled = i  # where to go on, should this one raise
            self._routes[i](self.message)
            i += 1
        self._handled = 0
        if not (i or self._on_message is None or self.message.size):
            self._on_message(self.message)

    def _answer(self):
        pid = self._pid
        if self.message.qos == 1:
            self._session.answer(0x40, pid)
        elif self.message.qos:
            if pid not in self._ids:
                self._ids[self._ids.index(0)] = pid
            if self._session.journal is not None:
                self._session.journal.keep(self._ids)
            self._session.answer(0x50, pid)

    def pubrel(self, pid: int) -> None:
        """PUBREL (section 3.6): forget `pid`. Answered with PUBCOMP, known or not."""
        if pid in self._ids:
            self._ids[self._ids.index(pid)] = 0
        if self._session.journal is not None:
            self._session.journal.keep(self._ids)
        self._session.answer(0x70, pid)


def _checked(filters):
    if isinstance(filters, (bytes, str)):
        filters = [filters]
    number("topic filters", len(filters), 1, 65535)
    return [field("topic filter", f, is_filter) for f in filters]
