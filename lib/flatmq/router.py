"""Route incoming PUBLISH packets to handlers, and acknowledge them.

Loaded with the first subscription or the first message.
"""

# Imported, a builtin is found at once; else only after a miss in the module.
from builtins import len

from .message import Message
from .port import Shown, const
from .reader import LATER
from .topic import is_name, matches

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .client import Client

_SEEN = const(8)  # topic names whose handlers are remembered; a power of two
_LONGEST = const(46)  # bytes that the longest of them may have
_NEVER = b"\0\0\0"  # not the beginning of any PUBLISH: no topic name is empty


class Subscription(Shown):
    """Topic filters that were subscribed to in one call, and their handler; or, without one,
    filters that were unsubscribed from.

    `granted` is None until SUBACK (section 3.9). Then it has one byte for each filter: the QoS
    that the broker grants, or 0x80 if it refuses; a reason code in MQTT 5. After UNSUBACK it is
    empty; in MQTT 5 it has one reason code for each filter.
    """

    identifier: int  # in MQTT 5: what its messages carry
    head: bytes = b""  # what stands before the filters in the packet: properties, in MQTT 5

    def __init__(self, filters: "list[bytes]", handler: "Any", qos: int, chunks: bool) -> None:
        self.handler = handler
        self.qos = qos
        self.chunks = chunks  # whether the handler takes messages larger than the buffer
        self.granted: bytes | None = None
        # `names` are what topic names must match: other than `filters` for $share/GROUP/FILTER,
        # and b"", which no topic name matches, to leave the messages to on_message.
        self.filters = self.names = filters
        self.asked = filters  # as they were in the packet
        self.id = 0  # the packet identifier while it waits for its answer

    def takes(self, m: "Message") -> bool:
        """Whether the topic name of a message matches one of the filters. Allocates nothing."""
        i = 0
        while i < len(self.names):  # a `for` would put the frame on the heap
            if matches(self.names[i], m.buf, m.topic_at, m.topic_end):
                return True
            i += 1
        return False


class Router:
    """Handlers by topic filter.

    `subscriptions` are those in force; `requests` those that wait for SUBACK or
    UNSUBACK, in the order of the calls; `waiting` is True if some of them found no room; `past`
    is OneByOne, while the peer may have closed a connection on one of them.

    The handlers of the last topic names are remembered, and looked for from the last one on, so
    that names which follow each other in turn are found at once.
    """

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.stats = client.stats
        self.subscriptions: list[Any] = []
        self.requests: list[Any] = []
        self.waiting = False
        self.past: Any = None
        self.message = Message(client.rx)
        self.large: Any = None  # Chunks, once a message was larger than the buffer
        # Each with its length before it; the last one stands for all that are too long.
        self.names: list[Any] = [bytearray(_LONGEST + 2) for _ in range(_SEEN)]
        self.names.append(_NEVER)
        self.routes: list[Any] = [None] * (_SEEN + 1)  # the handler, if there is exactly one
        self.last = self._oldest = 0
        self.done = 0  # subscriptions that are done with a message that others still get,
        self.limit = 0  # and those that were there when it came
        self.forget()

    def forget(self) -> None:
        """Forget the handlers of the last topic names: the subscriptions have changed."""
        for i in range(_SEEN):
            self.names[i][0:] = _NEVER

    def answered(self, first: int, data: bytes) -> "bool | str":
        """Handle a SUBACK or UNSUBACK: see `requests.answered`. In a function of its own, as a
        name in a generator would keep that module in memory."""
        from .requests import answered

        return answered(self, first, data)

    def publish(self, first: int, at: int, end: int) -> "str | None":
        """Handle a PUBLISH (section 3.3) that begins with `first` and goes on from `at` to `end`
        in the receive buffer. Returns None, LATER, or the rule that it breaks."""
        m = self.message
        m.end = end
        # Two bytes behind the end may be looked at: the name is past it then, whatever they say.
        end = at + 2 + (m.buf[at] << 8 | m.buf[at + 1])  # of the topic name
        if end > m.end:
            return "shorter than its topic name"
        i = self.last
        while m.buf.find(self.names[i], at, end) != at:
            i = i + 1 & _SEEN - 1
            if i == self.last:
                i = self.find(at, end, False)
                break
        if i < 0:
            return "not a topic name"
        self.last = i & _SEEN - 1
        m.topic_at = at + 2
        m.topic_end = m.at = end
        if first != m.first:
            m.set_flags(first)
        if first < 0x32 and self.routes[i] is not None:
            self.routes[i](m)
            self.stats.received += 1
            return None
        return self.deliver(self.routes[i])

    def begin(self, t: int, have: int) -> "int | str":
        """Begin with a packet larger than the buffer. The message has its first byte, and where
        it begins and ends; its body begins at `t`, and the bytes up to `have` are there. Returns
        where its payload begins, 0 if its header is cut, or the rule that it breaks."""
        if not self.large:
            from .chunks import Chunks

            self.large = Chunks(self)
        return self.large.begin(t, have)

    def find(self, at: int, end: int, chunks: bool) -> int:
        """Find the handlers of the topic name whose length is at `at` and which goes up to `end`;
        with `chunks`, of those that take messages in pieces. Returns -1 if it is not a topic
        name, else its place in what is remembered."""
        m = self.message
        m.topic_at = at + 2
        m.topic_end = end
        if not is_name(m.buf, at + 2, end):
            return -1
        i = self.next(0, chunks)
        found = None
        if i >= 0 and self.next(i + 1, chunks) < 0:
            found = self.subscriptions[i].handler
        i = _SEEN
        if end - at <= _LONGEST + 2 and not chunks:
            i = self._oldest
            self._oldest = i + 1 & _SEEN - 1
            self.names[i][0:] = b""  # keeps its memory, so append allocates nothing
            while at < end:
                self.names[i].append(m.buf[at])
                at += 1
        self.routes[i] = found
        return i

    def next(self, i, chunks):
        """Return the first subscription from `i` on that matches the message, -1 if none does."""
        while i < len(self.subscriptions):
            s = self.subscriptions[i]
            if (s.chunks or not chunks) and s.takes(self.message):
                return i
            i += 1
        return -1

    def deliver(self, handler: "Any") -> "str | None":
        """Go on with a message that is numbered, or has no handler or several."""
        m = self.message
        stats = self.stats
        what = self.number()
        if what is not None:
            return what
        if m.qos < 2 or m.id not in self.client.received:
            if handler is not None:
                handler(m)
                stats.received += 1
            elif self.call(False):
                stats.received += 1
            else:
                stats.unrouted += 1
        if m.qos:
            self.answer()
        elif m.dup:
            stats.dup0 += 1
        return None

    def number(self) -> "str | None":
        """Read the packet identifier of a message. Returns None, LATER, or the broken rule."""
        m = self.message
        if not m.qos:
            return None
        if m.qos == 3:
            return "QoS 3"
        if m.at + 2 > m.end:
            return "no packet identifier"
        m.id = m.buf[m.at] << 8 | m.buf[m.at + 1]
        if not m.id:
            return "packet identifier 0"
        received = self.client.received
        if m.qos == 2 and m.id not in received and 0 not in received:
            return "more in flight than `incoming`"
        if self.client.answers > self.client.room:
            return LATER
        m.at += 2
        return None

    def call(self, chunks: bool) -> bool:
        """Call the handlers of a message. Returns whether there is any."""
        found = self.done > 0
        self.limit = len(self.subscriptions)  # a handler may add others, for the next message
        while True:
            i = self.next(self.done, chunks)
            if i < 0 or i >= self.limit:
                break
            self.done = i  # where to go on, should this one raise
            s = self.subscriptions[i]
            s.handler(self.message)
            found = True
            # A handler may have ended its own subscription, or one before it.
            if self.done < self.limit and self.subscriptions[self.done] is s:
                self.done += 1
        self.done = 0
        options = self.client.options
        if found or options["on_message"] is None or (chunks and not options["chunks"]):
            return found
        options["on_message"](self.message)
        return True

    def answer(self) -> None:
        """Acknowledge a message at QoS 1 or 2."""
        m = self.message
        if m.qos == 1:
            self.client.answer(0x40, m.id)
            return
        received = self.client.received
        if m.id not in received:
            received[received.index(0)] = m.id
        self.client.answer(0x50, m.id)
