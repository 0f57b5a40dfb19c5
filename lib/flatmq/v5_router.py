"""Route incoming MQTT 5 PUBLISH packets by subscription identifier, or by topic name."""

# An imported builtin is found without a miss in the module.
from builtins import len

from .port import const
from .router import Router
from .v5_walk import View, broken, number

TYPE_CHECKING = const(0)
if TYPE_CHECKING:
    from typing import Any

    from .message import Message
    from .v5 import Client5

_PUBLISH = const(16)  # see v5_walk.TABLE
_IDENTIFIER = const(0x0B)
_ALIAS = const(0x23)
_SEEN = const(8)  # see router
_HEAD = const(80)  # most bytes of a topic name and properties that are searched for together
_OFTEN = const(16)  # twice _SEEN
_NUMBERED = const(0x32)  # the lowest first byte of a PUBLISH with a packet identifier
_EMPTY = b"\0"  # no properties


class Carried(View):
    """The properties of a message.

    They lie between its topic name or packet identifier and its payload; those of a message in
    pieces were moved to the start of the buffer.
    """

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
    """The handlers of a client, by topic filter and by subscription identifier.

    Identifiers are used if the broker supports them. A message with identifiers goes only to
    the handlers of those: if a broker sends one copy for each matching filter, each handler is
    called once.

    A broker that keeps the session may send messages with identifiers from before a reboot, when
    they belonged to other subscriptions. So an identifier counts only if the topic name matches
    its subscription. The handler found is remembered with the topic name.
    """

    client: "Client5"

    def __init__(self, client: "Client5") -> None:
        # For each of the last topic names, the properties of the last message, with their length
        # in front, and the handler that got it.
        self._blocks = [bytearray(_EMPTY) for _ in range(_SEEN + 1)]
        self._handlers: list[Any] = [None] * (_SEEN + 1)
        # Successive QoS 0 messages of one topic usually begin alike. These are the topic name and
        # properties with which the last ones began, and the handler that got them.
        self._head = bytearray(_HEAD)
        self._taker: Any = None
        self._below = 0  # _NUMBERED if these are compared first
        self._often = 0  # the place of a topic name that repeats, plus _SEEN for each repetition
        self._place = 0  # the place of the message's topic name, if its handler is not known
        self._body = 0  # where its payload begins, if the handler is known
        Router.__init__(self, client)
        self.message.properties = self.properties = Carried(self.message)
        self._last = 0  # the last identifier assigned
        self._tagged = False  # the identifiers of the message decide who gets it

    def identify(self, supported: int) -> None:
        """Give all requests an identifier, or none, as CONNACK allows.

        Applies to those sent from now on.
        """
        for s in self.subscriptions + self.requests:
            self.mark(s, supported)

    def mark(self, s: "Any", supported: int) -> None:
        """Give a request the identifier of its subscription, or none."""
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
        self._below = 0

    def publish(self, first: int, at: int, end: int) -> "str | None":
        """Handle a PUBLISH (section 3.3): see `Router.publish`."""
        m = self.message
        m.end = end
        # Few locals: `end` is first where the payload begins, then where the topic name ends;
        # later `at` is the handler.
        if first < self._below:
            end = at + len(self._head)
            if end <= m.end and m.buf.find(self._head, at, end) == at:
                m.topic_at = at + 2
                m.topic_end = at + 2 + (m.buf[at] << 8 | m.buf[at + 1])
                m.at = end
                if first != m.first:
                    m.set_flags(first)
                self._taker(m)
                self.stats.received += 1
                return None
            self._below = 0
            self._often = 0
        end = at + 2 + (m.buf[at] << 8 | m.buf[at + 1])
        if end >= m.end:
            return "shorter than its topic name"
        i = self.last
        while m.buf.find(self.names[i], at, end) != at:
            i = i + 1 & _SEEN - 1
            if i == self.last:
                i = self.find(at, end, False)
                break
        if i < 0:
            return "not a topic name"
        m.topic_at = at + 2
        m.topic_end = end
        if first != m.first:
            m.set_flags(first)
        if first < _NUMBERED:
            if not m.buf[end]:
                m.at = end + 1
                at = self.routes[i]
            elif m.buf.find(self._blocks[i], end, m.end) == end:
                m.at = end + 1 + m.buf[end]
                at = self._handlers[i]
            else:
                at = None  # type: ignore[assignment]
            if at is not None:
                if i != self.last:
                    self.last = i & _SEEN - 1
                elif self._often == i + _OFTEN:
                    self._learn(at)
                else:
                    self._often = self._often + _SEEN if self._often & _SEEN - 1 == i else i
                at(m)  # type: ignore[operator]
                self.stats.received += 1
                return None
        m.at = end
        self.last = i & _SEEN - 1
        return self._other(i)

    def _other(self, i):
        """Handle a message with a packet identifier, or one whose handler is not known."""
        m = self.message
        at = m.at + 2 if m.qos else m.at  # where its properties begin
        self._place = i
        self._body = 0
        i = self._known(i, at) if m.qos else None
        if i is not None:
            self._body = at + 1 + m.buf[at]
            if m.qos == 1 and self._body <= m.end and self.client.answers <= self.client.room:
                m.id = m.buf[m.at] << 8 | m.buf[m.at + 1]
                if m.id:
                    m.at = self._body
                    i(m)
                    self.stats.received += 1
                    self.client.answer(0x40, m.id)
                    return None
        return self.deliver(i)

    def _known(self, i, at):
        """Return the handler of a message with this topic name and these properties."""
        if not self.message.buf[at]:
            return self.routes[i]
        found = self.message.buf.find(self._blocks[i], at, self.message.end) == at
        return self._handlers[i] if found else None

    def _learn(self, handler):
        """Remember how the message, which has QoS 0, begins, and which handler gets it."""
        m = self.message
        at = m.topic_at - 2
        if m.at - at > _HEAD:
            return
        self._taker = handler
        self._below = _NUMBERED
        if m.at - at == len(self._head) and m.buf.find(self._head, at, m.at) == at:
            return
        self._head[0:] = b""  # keeps its memory
        while at < m.at:
            self._head.append(m.buf[at])
            at += 1

    def find(self, at: int, end: int, chunks: bool) -> int:
        """Find the handlers of a topic name: see `Router.find`."""
        self._tagged = False
        i = Router.find(self, at, end, chunks)
        if i >= 0:
            self._blocks[i][0:] = _EMPTY
        return i

    def number(self) -> "str | None":
        """Read the packet identifier of a message, and its properties."""
        what = Router.number(self)
        if what is not None:
            return what
        if not self._body:
            return self.skip()
        self.message.at = self._body
        return None if self._body <= self.message.end else "property length"

    def _single(self):
        """Return the handler of the message; None if there is none, or more than one."""
        i = self.next(0, False)
        if i < 0 or self.next(i + 1, False) >= 0:
            return None
        return self.subscriptions[i].handler

    def _remember(self, handler):
        """Remember the handler for messages with this topic name and these properties."""
        m = self.message
        at = m.topic_end + 2 if m.qos else m.topic_end
        if m.buf[at] > 127:  # then their length takes more than one byte
            return
        block = self._blocks[self._place]
        block[0:] = b""  # keeps its memory
        while at < m.at:
            block.append(m.buf[at])
            at += 1
        self._handlers[self._place] = handler

    def skip(self) -> "str | None":
        """Read the properties of the message, which begin at its `at`.

        Returns the rule that they break, else None.
        """
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
        self._tagged = False
        at = broken(p.buf, at, p.stop, _PUBLISH)
        if at is not None:
            return at
        # Searching for a byte is faster than walking through the properties.
        at = p.start
        if p.buf.find(b"\x23", at, p.stop) >= 0 and p.find(_ALIAS):
            return "topic alias, and none was allowed"
        if p.buf.find(b"\x0b", at, p.stop) >= 0:
            self._tagged = self._decides()
        return None

    def _decides(self):
        """Return whether the identifiers of the message decide who gets it.

        They do if one of them belongs to a subscription that matches, or all belong to
        subscriptions that have ended.
        """
        p = self.properties
        ended = False
        at = 0
        while p.find(_IDENTIFIER, at):
            at = number(p.buf, p.at, p.end) >> 2
            at = self._owner(at)
            if at is not None:
                return at
            ended = True
            at = p.end
        return ended

    def _owner(self, identifier):
        """Return whether the subscription with this identifier matches; None if it has ended.

        An identifier never assigned, or one that does not match, is from before a reboot.
        """
        i = 0
        while i < len(self.subscriptions):
            s = self.subscriptions[i]
            if s.identifier == identifier:
                return s.takes(self.message)
            i += 1
        return False if identifier > self._last else None

    def _has(self, identifier):
        """Return whether the message carries this identifier."""
        p = self.properties
        at = 0
        while p.find(_IDENTIFIER, at):
            if number(p.buf, p.at, p.end) >> 2 == identifier:
                return True
            at = p.end
        return False

    def next(self, i, chunks):
        """Return the index of the next subscription, from `i` on, for the message; or -1."""
        if not self._tagged:
            return Router.next(self, i, chunks)
        while i < len(self.subscriptions):
            s = self.subscriptions[i]
            if (s.chunks or not chunks) and self._has(s.identifier) and s.takes(self.message):
                return i
            i += 1
        return -1

    def call(self, chunks: bool) -> bool:
        """Call the handlers of a message: see `Router.call`.

        If there is exactly one, remember it for messages with this topic name and these
        properties.
        """
        if chunks or self.done:
            return not (chunks and self.large.blind) and Router.call(self, chunks)
        handler = self._single() if self._tagged else self.routes[self._place]
        if handler is None:
            return Router.call(self, False)
        self._remember(handler)
        handler(self.message)
        return True

    def begin(self, t: int, have: int) -> "int | str":
        """Begin with a packet larger than the buffer: see `Router.begin`."""
        if not self.large:
            from .v5_chunks import Chunks5

            self.large = Chunks5(self)
        return self.large.begin(t, have)
