"""Route incoming PUBLISH packets to handlers, and acknowledge them.

Loaded with the first subscription or the first message.
"""

# An imported builtin is found without a miss in the module.
from builtins import len

from .message import Message
from .port import Shown, const
from .reader import LATER
from .topic import is_name, matches

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .v5_client import Client

_SEEN = const(8)  # topic names whose handlers are remembered; a power of two
_LONGEST = const(46)  # bytes of the longest name that is remembered
_NEVER = b"\0\0\0"  # no PUBLISH begins like this: a topic name is never empty


class Subscription(Shown):
    """The topic filters of one subscribe() and their handler.

    With no handler, it has the filters of one unsubscribe().

    `granted` is None until SUBACK (section 3.9). Then it has one byte for each filter: the QoS
    granted by the broker, or 0x80 if it refused; in MQTT 5, a reason code. After UNSUBACK it is
    empty; in MQTT 5 it has one reason code for each filter.
    """

    identifier: int  # MQTT 5: the subscription identifier, which its messages carry
    head: bytes = b""  # the bytes before the filters in the packet: the properties, in MQTT 5

    def __init__(self, filters: "list[bytes]", handler: "Any", qos: int, chunks: bool) -> None:
        self.handler = handler
        self.qos = qos
        self.chunks = chunks  # whether the handler takes messages larger than the buffer
        self.granted: bytes | None = None
        # `names` are the filters that topic names must match. For $share/GROUP/FILTER they differ
        # from `filters`; b"" matches no topic name and leaves the messages to on_message.
        self.filters = self.names = filters
        self.asked = filters  # the filters in the packet that was sent
        self.id = 0  # the packet identifier while the answer is awaited

    def takes(self, m: "Message") -> bool:
        """Return whether a message's topic name matches one of the filters. Allocates nothing."""
        i = 0
        while i < len(self.names):  # a `for` would put the frame on the heap
            if matches(self.names[i], m.buf, m.topic_at, m.topic_end):
                return True
            i += 1
        return False


class Router:
    """The handlers of a client, by topic filter.

    `subscriptions` are those in force. `requests` are those that wait for SUBACK or UNSUBACK, in
    the order of the calls. `waiting` is True if some of them found no room. `past` is a OneByOne
    while the peer may have closed a connection because of one of them.

    The handlers of the last topic names are remembered. The search starts at the last name found,
    so names that repeat in the same order are found at once.
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
        # Each with its length in front; the last one stands for all that are too long.
        self.names: list[Any] = [bytearray(_LONGEST + 2) for _ in range(_SEEN)]
        self.names.append(_NEVER)
        self.routes: list[Any] = [None] * (_SEEN + 1)  # the handler, if there is exactly one
        self.last = self._oldest = 0
        self.done = 0  # subscriptions that have had the current message,
        self.limit = 0  # of those that existed when it came
        self.forget()

    def forget(self) -> None:
        """Forget the handlers of the last topic names: the subscriptions have changed."""
        for i in range(_SEEN):
            self.names[i][0:] = _NEVER

    def answered(self, first: int, data: bytes) -> "bool | str":
        """Handle a SUBACK or UNSUBACK: see `requests.answered`.

        This is a function of its own because a name in a generator would keep that module
        in memory.
        """
        from .requests import answered

        return answered(self, first, data)

    def publish(self, first: int, at: int, end: int) -> "str | None":
        """Handle a PUBLISH (section 3.3) whose first byte is `first`.

        Its body is in the receive buffer from `at` to `end`. Returns None, LATER, or the
        rule that it breaks.
        """
        m = self.message
        m.end = end
        # This may read the two bytes behind the end; the name then ends past `end` in any case.
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
        """Begin with a packet larger than the buffer.

        `message` has its first byte and its limits; the body begins at `t`, and the bytes
        up to `have` have come. Returns where the payload begins, 0 if more of the header
        must come first, or the rule that the packet breaks.
        """
        if not self.large:
            from .chunks import Chunks

            self.large = Chunks(self)
        return self.large.begin(t, have)

    def find(self, at: int, end: int, chunks: bool) -> int:
        """Find the handlers for the topic name that ends at `end` and whose length is at `at`.

        With `chunks`, finds only handlers that take messages in pieces. Returns -1 if it
        is not a valid topic name, else its place among the remembered names.
        """
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
        """Return the index of the first subscription, from `i` on, that matches; -1 if none."""
        while i < len(self.subscriptions):
            s = self.subscriptions[i]
            if (s.chunks or not chunks) and s.takes(self.message):
                return i
            i += 1
        return -1

    def deliver(self, handler: "Any") -> "str | None":
        """Deliver a message that has a packet identifier, or no handler or several."""
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
        """Read the packet identifier of a message. Returns None, LATER, or the rule it breaks."""
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
        """Call all handlers of a message. Returns whether there are any."""
        found = self.done > 0
        self.limit = len(self.subscriptions)  # a handler may add others, for the next message
        while True:
            i = self.next(self.done, chunks)
            if i < 0 or i >= self.limit:
                break
            self.done = i  # where to continue if this handler raises
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
