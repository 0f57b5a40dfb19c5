"""Route incoming PUBLISH packets of MQTT 5: by subscription identifier, or by topic name."""

# Imported, a builtin is found at once; else only after a miss in the module.
from builtins import len

from . import client as clock
from .port import const
from .router import Router
from .v5_walk import View, broken, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .message import Message
    from .v5 import Client5

_PUBLISH = const(16)  # see v5_walk.TABLE
_IDENTIFIER = const(0x0B)
_ALIAS = const(0x23)
_SEEN = const(8)  # see router


class Carried(View):
    """The properties of a message. They lie between its topic name or packet identifier and its
    payload; of a message that comes in pieces, where they were moved to."""

    def __init__(self, message: "Message") -> None:
        View.__init__(self, message.buf)
        self._message = message

    def find(self, identifier: int, at: int = 0) -> bool:
        """Look for a property: see `View.find`."""
        m = self._message
        if not at and not m.size:
            self.stop = m.at
            at = m.topic_end + 2 if m.qos else m.topic_end
            self.start = at + 1 + (number(m.buf, at, m.at) & 3)
            at = 0
        return View.find(self, identifier, at)


class Router5(Router):
    """Handlers by topic filter, and by the identifier that each subscription has if the broker
    supports them. A message that carries identifiers goes to their handlers alone: if a broker
    sends one copy for each matching filter, each handler is called once."""

    client: "Client5"

    def __init__(self, client: "Client5") -> None:
        self._handlers: dict[int, Callable[[Message], None]] = {}  # by identifier
        Router.__init__(self, client)
        self.message.properties = self.properties = Carried(self.message)
        # The identifier given out last. In a session that is kept they begin anywhere: messages
        # may still carry those of an earlier run, which were for other subscriptions.
        self._last = 0
        if not client.options["clean_session"]:
            self._last = clock.random.getrandbits(28)
        self._tagged = False  # the message carries an identifier that there is

    def identify(self, supported: int) -> None:
        """CONNACK says whether subscriptions may have an identifier: requests that are made from
        now on have one, or none."""
        for s in self.subscriptions + self.requests:
            self.mark(s, supported)

    def mark(self, s: "Any", supported: int) -> None:
        """Have a request carry the identifier of its subscription, or none."""
        s.head = b"\0"
        if s.handler is None:
            return
        if not s.identifier:
            self._last = s.identifier = self._last % 268435455 + 1
        if supported:
            from .properties import block
            from .unload import unload

            s.head = block({"subscription_identifier": s.identifier})
            unload("properties")

    def forget(self) -> None:
        """Forget the handlers of the last topic names: the subscriptions have changed."""
        Router.forget(self)
        self._handlers.clear()
        for s in self.subscriptions:
            self._handlers[s.identifier] = s.handler

    def publish(self, first: int, at: int, end: int) -> "str | None":
        """Handle a PUBLISH (section 3.3): see `Router.publish`."""
        m = self.message
        m.end = end
        end = at + 2 + (m.buf[at] << 8 | m.buf[at + 1])  # of the topic name
        if end >= m.end:
            return "shorter than its topic name"
        i = self.last
        while m.buf.find(self.names[i], at, end) != at:
            i = i + 1 & _SEEN - 1
            if i == self.last:
                self._tagged = False
                i = self.find(at, end, False)
                break
        if i < 0:
            return "not a topic name"
        self.last = i & _SEEN - 1
        m.topic_at = at + 2
        m.topic_end = m.at = end
        if first != m.first:
            m.set_flags(first)
        at = end + 2 if m.qos else end
        # Few locals: `end` becomes the handler, if it is known already which one it is.
        end = None  # type: ignore[assignment]
        if not m.buf[at]:
            end = self.routes[i]
        elif (
            m.buf[at] == 2
            and at + 2 < m.end
            and m.buf[at + 1] == _IDENTIFIER
            and m.buf[at + 2] < 128
        ):
            end = self._handlers.get(m.buf[at + 2])  # type: ignore[assignment]
        if first < 0x32 and end is not None:
            m.at = at + 1 + m.buf[at]
            end(m)  # type: ignore[operator]
            self.stats.received += 1
            return None
        return self.deliver(end)

    def number(self) -> "str | None":
        """Read the packet identifier of a message, and its properties."""
        what = Router.number(self)
        return self.skip() if what is None else what

    def skip(self) -> "str | None":
        """Read the properties of the message, which begin at `at`. Returns the rule that they
        break."""
        m = self.message
        at = m.at
        if at >= m.end:
            return "property length"
        if not m.buf[at]:
            m.at += 1
            self._tagged = False
            return None
        n = number(m.buf, at, m.end)
        if n < 0:
            return "property length"
        at += 1 + (n & 3)
        n = at + (n >> 2)
        if n > m.end:
            return "property length"
        m.at = n
        return self._check(at)

    def _check(self, at):
        p = self.properties
        p.start = at
        p.stop = self.message.at
        at = broken(p.buf, at, p.stop, _PUBLISH)
        if at is None and p.find(_ALIAS):
            return "topic alias, and none was allowed"
        self._tagged = at is None and self._tags(0)
        return at

    def _tags(self, identifier):
        """Whether the message carries an identifier; with 0, one of any subscription."""
        p = self.properties
        at = 0
        while p.find(_IDENTIFIER, at):
            at = number(p.buf, p.at, p.end) >> 2
            if at == identifier or (not identifier and at in self._handlers):
                return True
            at = p.end
        return False

    def next(self, i, chunks):
        """Return the first subscription from `i` on that takes the message, -1 if none does."""
        if not self._tagged:
            return Router.next(self, i, chunks)
        while i < len(self.subscriptions):
            s = self.subscriptions[i]
            if (s.chunks or not chunks) and self._tags(s.identifier):
                return i
            i += 1
        return -1

    def call(self, chunks: bool) -> bool:
        """Call the handlers of a message: see `Router.call`."""
        if chunks and self.large.blind:
            return False
        return Router.call(self, chunks)

    def begin(self, t: int, have: int) -> "int | str":
        """Begin with a packet larger than the buffer: see `Router.begin`."""
        if not self.large:
            from .v5_chunks import Chunks5

            self.large = Chunks5(self)
        return self.large.begin(t, have)
