"""An oracle that judges each event of a case by the standard.

A model of the client's side of MQTT over the strict decoder. It knows what the client promises
besides: the order of deliveries and of answers, what is counted, and that a packet is judged when
it is all there. It reads nothing of the client but the events of `drive`.
"""

from __future__ import annotations

import peer
from hostile import drive, strict
from hostile.cases import Options

PUBACK, PUBREC, PUBCOMP = "PUBACK", "PUBREC", "PUBCOMP"  # what a publish waits for
DUE, SENT, ANSWERED = "due", "sent", "answered"  # where a request is

PROTOCOL = frozenset({"protocol"})
RESOURCE = frozenset({"resource"})


class Disagreement(AssertionError):
    """The client did something else than it should."""


class Outgoing:
    """A message that the application has published."""

    def __init__(
        self, pid: int, topic: bytes, payload: bytes, qos: int, retain: int, block: bytes = b""
    ) -> None:
        self.pid = pid
        self.topic = topic
        self.qos = qos
        self.wait: str | None = {0: None, 1: PUBACK, 2: PUBREC}[qos]
        self.done = False  # acknowledged, or at QoS 0 written out
        self.begun = False  # a byte of it was written, on whatever connection
        self.whole = False  # all of them
        self.settled = 0  # the connection on which it was acknowledged
        self.again = False  # that was before this connection
        self.unsure = False  # if it was
        self.old = False  # it was there when a connection ended, of those that go one at a time
        self.stream = 0  # the connection on which all of it was written last
        body = peer.text(topic) + (pid.to_bytes(2, "big") if qos else b"") + block + payload
        self.new = peer.packet(0x30 | qos << 1 | retain, body)
        self.dup = peer.packet(0x38 | qos << 1 | retain, body)


class Request:
    """A SUBSCRIBE of a handler's number, or an UNSUBSCRIBE (None)."""

    def __init__(
        self, filters: list[bytes], number: int | None, qos: int, chunks: bool = False
    ) -> None:
        self.filters = filters
        self.number = number
        self.qos = qos
        self.chunks = chunks
        self.state = DUE
        self.pid = 0
        self.granted: bytes | None = None
        self.asked = filters  # as they were in the packet
        self.variants = [filters]  # what they may be in it: some were given up before it was out

    def due(self) -> None:
        """It is to be written."""
        self.state = DUE
        self.pid = 0
        self.variants = [self.filters]

    def narrow(self, gone: list[bytes]) -> None:
        """Some filters are given up."""
        left = [f for f in self.filters if f not in gone]
        if self.granted:
            self.granted = bytes(self.granted[self.filters.index(f)] for f in left)
        self.filters = left
        self.variants.append(left)

    def is_body(self, body: bytes) -> bool:
        """Return whether this may follow the packet identifier; if so, take it."""
        tail = b"" if self.number is None else bytes([self.qos])
        for filters in self.variants:
            if filters and body == b"".join(peer.text(f) + tail for f in filters):
                self.asked = filters
                return True
        return False


class Oracle:
    """Takes the events of one case, and raises Disagreement at the first that is wrong.

    Afterwards `packets` is how many packets were judged, `delivered` how many messages handlers
    got, and `ended` what ended connections, by kind.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.level = options.version
        self.log: list[tuple] = []
        self.found: Disagreement | None = None  # the first
        self.packets = 0
        self.delivered = 0
        self.streams = 0
        self.ended: dict[str, int] = {}
        self.received = self.unrouted = self.skipped = self.strays = 0
        self.dup0 = self.downgraded = 0
        self.requests: list[Request] = []  # to be written or answered, in this order
        self.subscriptions: list[Request] = []
        # Messages of earlier connections go one at a time, since the peer has closed one: no,
        # maybe, yes. That ends when those are settled which were there at the end of the last.
        self.single = 0
        self.held: set[int] = set()  # incoming QoS 2 messages that are not released
        self.out: list[Outgoing] = []
        self.in_flight: dict[int, Outgoing] = {}
        self.pings = 0
        self.silent = 0  # ms since something was read
        self.greeting_for = 0  # ms without a CONNACK
        self.why: frozenset[str] = frozenset()
        self._close()
        self._handlers = {
            drive.OPENED: self.on_opened,
            drive.READ: self.on_read,
            drive.WROTE: self.on_wrote,
            drive.CLOSED: self.on_closed,
            drive.GONE: self.on_gone,
            drive.CALL: self.on_call,
            drive.PIECE: self.on_piece,
            drive.RETURNED: self.on_returned,
            drive.RAISED: self.on_raised,
            drive.PUBLISHED: self.on_published,
            drive.SUBSCRIBED: self.on_subscribed,
            drive.UNSUBSCRIBED: self.on_unsubscribed,
            drive.PINGED: self.on_pinged,
            drive.PASSED: self.on_passed,
            drive.LOST: self.on_lost,
            drive.QUIET: self.on_quiet,
            drive.GRANTED: self.on_granted,
        }

    def __call__(self, event: tuple) -> None:
        """Judge an event."""
        if self.found:  # and the client took it for an error of its stream
            raise self.found
        self.log.append(event)
        self._handlers[event[0]](*event[1:])

    def wrong(self, what: str) -> None:
        """Record that the client did not do what it should have done."""
        self.found = Disagreement(what)
        raise self.found

    def need(self, good: object, what: str) -> None:
        """Raise unless it is so."""
        if not good:
            self.wrong(what)

    # Connections

    def _close(self) -> None:
        self.state = "closed"
        self.buf = bytearray()
        self.more = 0  # bytes that are still to come of a message larger than rx_size,
        self.large = strict.Packet("PUBLISH")  # which is this one; its payload is a piece
        self.offset = self.total = 0  # of that piece, and of the whole payload
        self.repeats = False  # it came before, and is not released
        self.fault: frozenset[str] = frozenset()  # the kinds of error, one of which must come
        self.refused = 0
        self.gone = self.by_peer = False
        self.asked = False  # a PINGREQ was written, and nothing was read since
        self.heard = False  # bytes were read since CONNACK or the last PINGREQ
        # The PINGREQ before old messages was behind such bytes, which may have come before it had
        # left, and after it was made: then they do not answer it, and another one goes.
        self.unsure = False
        self.same = False
        self.message: strict.Packet | None = None  # that is being delivered
        self.left: list[int] = []  # handlers that have not got it
        self.calling: int | None = None
        self.answers: list[bytes] = []  # that are to be written, in this order
        self.released: list[Outgoing] = []  # whose PUBREL goes again
        self.early: list[int] = []  # PUBREC came before the PUBLISH went again: one PUBREL more
        self.wire = bytearray()
        self.greeted = False
        self.cursor = 0  # in `out`: what comes before was written, or need not be

    def on_opened(self) -> None:
        self.need(self.state == "closed", "a second connection")
        self._close()
        self.state = "greeting"
        self.silent = self.greeting_for = 0
        self.streams += 1
        if self.single:
            self.pings += 1

    def on_gone(self, by_peer: int) -> None:
        self.gone = True
        self.by_peer = bool(by_peer)

    def reasons(self) -> frozenset[str]:
        """The kinds of error, one of which the end of the connection must have."""
        return self.fault or (
            frozenset({"refused"})
            if self.refused
            else frozenset({"closed"})
            if self.gone
            else frozenset({"timeout"})
            if max(self.silent, self.greeting_for) >= self.patience()
            else frozenset()
        )

    def patience(self) -> int:
        """After so many ms in which nothing comes in the connection may end."""
        return 8000

    def on_closed(self) -> None:
        self.why = self.reasons()
        if self.wire and self.wire[0] >> 4 == 3:
            self._cut(bytes(self.wire))
        if self.state == "online":
            if self.by_peer and "closed" in self.why and self.pending():
                self.single = 2
            elif self.single and not self.one_at_a_time():
                self.single = 1 if self.pending() else 0
            for m in self.out:
                m.old = bool(self.single)
        code = self.refused
        self._close()
        self.refused = code

    def on_lost(self, kind: str, code: int, detail: str) -> None:
        self.need(self.state == "closed", "lost, but not closed")
        self.need(kind in self.why, f"ended by {kind} ({detail}), not {set(self.why) or 'at all'}")
        self.need(code == (self.refused if kind == "refused" else 0), f"code {code}")
        self.refused = 0
        self.ended[kind] = self.ended.get(kind, 0) + 1

    def on_passed(self, ms: int) -> None:
        self.silent += ms
        if self.state == "greeting":
            self.greeting_for += ms
        if ms > drive.SOON:
            self.pings += 1

    def on_pinged(self) -> None:
        self.pings += 1

    # What comes in

    def on_read(self, data: bytes) -> None:
        self.need(self.state != "closed", "read from a closed link")
        self.need(not self.fault and not self.refused, "read on after the end")
        self.need(self.message is None, "read on with a message that is not delivered")
        self.silent = 0
        self.asked = False
        self.heard = True
        self.buf += data
        self.advance()

    def advance(self) -> None:
        """Judge the packets that are there, until one has to be delivered."""
        while self.message is None and not self.fault and not self.refused:
            if not self.buf:
                return
            if self.more:
                self.piece()
                continue
            if self.state == "greeting" and self.buf[0] != 0x20:
                self.fault = PROTOCOL
                return
            try:
                head = strict.header(self.buf)
                if head is None:
                    return
                if len(self.buf) < head.total:
                    if head.total <= self.options.rx_size or not self.larger(head):
                        return
                    continue
                body = bytes(self.buf[head.size : head.total])
                del self.buf[: head.total]
                self.packets += 1
                self.packet(self.decoded(head.first, body))
            except strict.Broken:
                self.fault = PROTOCOL

    def decoded(self, first: int, body: bytes) -> strict.Packet:
        """The packet of that first byte and body."""
        return strict.packet(first, body, self.level)

    def larger(self, head: strict.Header) -> bool:
        """A packet larger than rx_size that is not all there. Whether its head has been judged.

        Such a message goes in pieces to the handlers that asked for it so, each as large as what
        was read; it is acknowledged and counted with its last byte, also where nobody gets it.
        """
        body = self.buf[head.size :]
        if head.first >> 4 != 3:
            self.fault = RESOURCE if head.first == 0x90 else PROTOCOL
            return False
        if len(body) < 2:
            return False
        n = 2 + (body[0] << 8 | body[1]) + (2 if head.first & 6 else 0)
        if len(body) < n:
            if head.size + n > self.options.rx_size:
                self.fault = RESOURCE
                if n > head.length or head.first & 6 == 6:
                    self.fault |= PROTOCOL  # it breaks two rules, and either may be reported
            return False
        self.packets += 1
        m = strict.packet(head.first, bytes(body[:n]), self.level)
        again = m.qos == 2 and m.pid in self.held
        self.check_room(m)
        self.repeats = again
        self.large = m
        self.offset = 0
        self.more = self.total = head.length - n
        del self.buf[: head.size + n]
        return True

    def piece(self) -> None:
        """Bytes of a message larger than rx_size are there: to be delivered, or passed over."""
        m = self.large
        n = min(self.more, len(self.buf))
        self.large = m._replace(payload=bytes(self.buf[:n]))
        del self.buf[:n]
        self.more -= n
        takers = [] if self.repeats else self.handlers(m, large=True)
        if takers:
            self.left = takers
            self.message = self.large
            return
        self.offset += n
        if not self.more and not self.repeated(m):
            self.skipped += 1
            self.acknowledge(m)

    def repeated(self, m: strict.Packet) -> bool:
        """Return whether a message came before and is not released; if so, only answer it."""
        if m.qos < 2 or m.pid not in self.held:
            return False
        self.answer(0x50, m.pid)
        return True

    def check_room(self, m: strict.Packet) -> None:
        """A message may be the one too many that waits for its release."""
        if m.qos == 2 and m.pid not in self.held and len(self.held) == self.options.incoming:
            self.fault = RESOURCE

    def handlers(self, m: strict.Packet, large: bool = False) -> list[int]:
        """The numbers of the subscriptions that match, of those that take large messages."""
        return [
            r.number
            for r in self.subscriptions
            if r.number is not None
            and (r.chunks or not large)
            and any(strict.matches(f, m.topic) for f in r.filters)
        ]

    def acknowledge(self, m: strict.Packet) -> None:
        """A message has been handled."""
        if m.qos == 1:
            self.answer(0x40, m.pid)
        elif m.qos == 2:
            self.held.add(m.pid)
            self.answer(0x50, m.pid)
        elif m.dup:
            self.dup0 += 1  # which nobody may send, and which harms nobody

    def answer(self, first: int, pid: int) -> None:
        """This has to be written."""
        self.answers.append(bytes((first, 2, pid >> 8, pid & 255)))

    def packet(self, p: strict.Packet) -> None:
        """A packet that breaks no rule by itself."""
        if self.state == "greeting":
            self.greeting(p)
        elif p.name == "PUBLISH":
            self.publish(p)
        elif p.name in ("PUBACK", "PUBREC", "PUBCOMP"):
            self.acknowledged(p)
        elif p.name == "PUBREL":
            self.held.discard(p.pid)
            self.answer(0x70, p.pid)
        elif p.name in ("SUBACK", "UNSUBACK"):
            self.request_answered(p)
        elif p.name == "CONNACK":
            raise strict.Broken("a second CONNACK")

    def greeting(self, p: strict.Packet) -> None:
        """The CONNACK of a connection."""
        clean = self.options.clean_session
        if p.present and clean:
            raise strict.Broken("session present on a clean session")
        if p.code:
            self.refused = p.code
            return
        self.state = "online"
        self.greeting_for = 0
        self.same = bool(p.present) or (self.level == 3 and not clean)
        if not self.same:
            self.held.clear()
        for m in self.out:
            m.again = m.begun
            if m.wait == PUBCOMP and not m.done:
                if self.same:
                    self.released.append(m)
                else:
                    m.wait = PUBREC
        self.requests = (
            [r for r in self.requests if r.filters] if p.present else list(self.subscriptions)
        )
        for r in self.requests:
            r.due()

    def acknowledged(self, p: strict.Packet) -> None:
        """PUBACK, PUBREC or PUBCOMP."""
        m = self.in_flight.get(p.pid)
        if m and p.name == PUBREC and m.wait in (PUBREC, PUBCOMP):
            if m.wait == PUBREC and self.same and self.is_behind(m):
                self.early.append(m.pid)
            m.wait = PUBCOMP
            self.answer(0x62, p.pid)
        elif m and (p.name == m.wait or (p.name == PUBACK and m.wait == PUBREC)):
            self.downgraded += p.name != m.wait  # by a broker that does not have QoS 2
            m.done = True
            m.settled = self.streams
            del self.in_flight[p.pid]
        else:
            self.strays += 1

    def request_answered(self, p: strict.Packet) -> None:
        """SUBACK or UNSUBACK."""
        for r in self.requests:
            if r.pid == p.pid and (p.name == "SUBACK") == (r.number is not None):
                if r.number is not None:
                    if len(p.codes) != len(r.asked):
                        raise strict.Broken("more or fewer return codes than filters")
                    codes = zip(r.asked, p.codes, strict=True)
                    r.granted = bytes(code for f, code in codes if f in r.filters)
                self.requests.remove(r)
                r.state = ANSWERED
                r.pid = 0
                return
        self.strays += 1

    # Deliveries

    def publish(self, p: strict.Packet) -> None:
        """A message, of which handlers may have to hear."""
        self.check_room(p)
        if self.fault or self.repeated(p):
            return
        self.offset = 0
        self.total = len(p.payload)
        self.left = self.handlers(p)
        if not self.left:
            if not self.options.fallback:
                self.unrouted += 1
                self.acknowledge(p)
                return
            self.left = [drive.FALLBACK]
        self.message = p

    def on_call(self, number: int, topic: bytes, payload: bytes, qos, retain, dup) -> None:
        self.on_piece(number, topic, payload, qos, retain, dup, 0, len(payload))

    def on_piece(
        self, number: int, topic: bytes, payload: bytes, qos, retain, dup, offset: int, total: int
    ) -> None:
        m = self.message
        if m is None:
            self.wrong(f"delivered {topic!r} {payload!r}, which is no message")
            return
        self.need(self.calling is None, "one handler in another")
        got = (topic, payload, qos, retain, dup)
        if got != m[2:7]:
            self.wrong(f"delivered {got}, not {m[2:7]}")
        where = (self.offset, self.total)
        if (offset, total) != where:
            self.wrong(f"piece {offset} of {total}, not {where}")
        if number not in self.left:
            self.wrong(f"handler {number} is not one of {self.left}")
        self.calling = number

    def on_raised(self) -> None:
        self.calling = None

    def on_returned(self) -> None:
        m = self.message
        assert m is not None and self.calling is not None
        self.left.remove(self.calling)
        self.calling = None
        if not self.left:
            self.message = None
            self.offset += len(m.payload)
            if self.offset == self.total:
                self.received += 1
                self.delivered += 1
                self.acknowledge(m)
            self.advance()

    # What goes out

    def on_wrote(self, data: bytes) -> None:
        self.need(self.state != "closed", "wrote to a closed link")
        wire = self.wire
        wire += data
        while True:
            head = strict.header(wire)
            if head is None or len(wire) < head.total:
                return
            raw = bytes(wire[: head.total])
            del wire[: head.total]
            if self.greeted:
                if not self.may_write(raw):
                    self.wrong("wrote before CONNACK")
                self.wrote(raw, head)
            else:
                if not self.is_connect(raw):
                    self.wrong(f"CONNECT: {raw!r}")
                self.greeted = True

    def may_write(self, raw: bytes) -> bool:
        """Return whether a packet may be written after CONNECT."""
        return self.state == "online"

    def is_connect(self, raw: bytes) -> bool:
        """Return whether this is the CONNECT that `drive` asks for."""
        return raw == self.connect()

    def connect(self) -> bytes:
        """The CONNECT that `drive` asks for."""
        name = {3: b"MQIsdp\3", 4: b"MQTT\4"}[self.level]
        flags = 2 if self.options.clean_session else 0
        head = bytes([0, len(name) - 1]) + name + bytes([flags, 0, 60])
        return peer.packet(0x10, head + peer.text(b"hostile"))

    def wrote(self, raw: bytes, head: strict.Header) -> None:
        """A packet is out."""
        kind = raw[0] >> 4
        if 4 <= kind <= 7:
            self.wrote_answer(raw)
        elif kind == 3:
            self.wrote_publish(raw)
        elif raw[0] in (0x82, 0xA2):
            self.wrote_request(raw, head)
        elif raw == b"\xc0\0":
            self.need(self.pings or self.unsure, "PINGREQ too early")
            if self.pings:
                self.pings -= 1
            self.asked = True
            self.unsure = self.single > 0 and self.heard
            self.heard = False
        else:
            self.wrong(f"wrote {raw!r}")

    def wrote_answer(self, raw: bytes) -> None:
        if self.answers and raw == self.answers[0]:
            self.answers.pop(0)
            return
        for m in self.released:
            if raw == bytes((0x62, 2, m.pid >> 8, m.pid & 255)):
                del self.released[: self.released.index(m) + 1]
                return
            if not m.done and m.again:  # it goes first
                break
        pid = raw[2] << 8 | raw[3]
        if raw[0] == 0x62 and pid in self.early:
            self.early.remove(pid)
        else:
            self.wrong(f"wrote {raw!r}, to be answered was {self.answers[:3]}")

    def wrote_publish(self, raw: bytes) -> None:
        for i in range(self.cursor, len(self.out)):
            m = self.out[i]
            if not (m.done and m.qos == 0) and raw in (m.new, m.dup):
                wanted = m.dup if m.qos and m.again and self.same else m.new
                self.need(raw == wanted or m.unsure, f"DUP: {raw!r}")
                if self.single == 2 and self.one_at_a_time():
                    self.need(m.old, f"wrote {raw!r} before what is older")
                    self.need(not self.under_way() or not m.qos, f"wrote {raw!r} beside another")
                    self.need(not self.asked, f"wrote {raw!r} before PINGRESP")
                m.stream = self.streams
                m.begun = m.whole = True
                m.unsure = False
                m.done = m.done or not m.qos
                self.cursor = i + 1
                return
            self.need(self._may_skip(m), f"wrote {raw!r} before {m.new!r}")
        self.wrong(f"wrote {raw!r}, which is no message that waits")

    def is_behind(self, m: Outgoing) -> bool:
        """Return whether the connection has not come to a message yet."""
        return m in self.out[self.cursor :]

    def one_at_a_time(self) -> bool:
        """Return whether messages of an earlier connection may wait for each other."""
        return self.single > 0 and any(m.old and not m.done for m in self.out)

    def under_way(self) -> bool:
        """Return whether one of them was written or is past its PUBREC, but is not settled."""
        return any(
            m.old and not m.done and m.qos and m.stream == self.streams for m in self.passed()
        )

    def passed(self) -> list[Outgoing]:
        """The messages that the connection has come to."""
        return self.out[: self.cursor]

    def _may_skip(self, m: Outgoing) -> bool:
        """Return whether a message need not be sent on this connection."""
        return m.done or (m.wait == PUBCOMP and m.again and self.same)

    def _cut(self, rest: bytes) -> None:
        """The connection ends in the middle of a PUBLISH."""
        found = False
        for m in self.out[self.cursor :]:
            if m.done and m.whole and m.settled != self.streams:
                continue
            if m.new.startswith(rest) or m.dup.startswith(rest):
                if not self._may_skip(m):
                    m.unsure = found
                    m.begun = True
                    return
                found = True  # acknowledged while it was on its way: that one may be meant
            elif found:
                return
            self.need(self._may_skip(m), f"wrote {rest!r} before {m.new!r}")
        self.need(found, f"wrote {rest!r}, which is no message that waits")

    def wrote_request(self, raw: bytes, head: strict.Header) -> None:
        pid = raw[head.size] << 8 | raw[head.size + 1]
        body = raw[head.size + 2 :]
        for r in self.requests:
            if r.state != DUE:
                continue
            if (raw[0] == 0x82) == (r.number is not None) and r.is_body(body):
                self.fresh(pid)
                r.state = SENT
                r.pid = pid
                return
            if r.filters:  # else it was taken back
                break
        self.wrong(f"wrote {raw!r}, which nobody asked for")

    def fresh(self, pid: int) -> None:
        """A packet identifier that is given out."""
        self.need(0 < pid < 65536, f"packet identifier {pid}")
        used = pid in self.in_flight or any(r.pid == pid for r in self.requests)
        self.need(not used, f"packet identifier {pid} is in use")

    # The application

    def on_published(self, pid: int, topic: bytes, payload: bytes, qos: int, retain: int) -> None:
        if pid < 0:
            self.may_be_full()
            return
        self.accepted(Outgoing(pid, topic, payload, qos, retain))

    def accepted(self, m: Outgoing) -> None:
        """The application has published a message."""
        if m.qos:
            self.fresh(m.pid)
            self.in_flight[m.pid] = m
        else:
            self.need(m.pid == 0, f"publish at QoS 0 returned {m.pid}")
        self.out.append(m)

    def may_be_full(self) -> None:
        """A message has found no room."""
        # While there is no connection a message may lie there that was acknowledged too early.
        full = self.pending() or self.calling is not None or self.state != "online"
        full = full or any(r.state == DUE for r in self.requests)
        self.need(full, "no room in an empty ring")

    def pending(self) -> int:
        """Publishes that are not done."""
        n = 0
        for m in self.out:
            if not m.done:
                n += 1
        return n

    def on_subscribed(self, done: int, number: int, qos: int) -> None:
        filters = list(self.options.choices[number])
        old = [r for r in self.subscriptions if r.filters == filters]
        room = len(self.subscriptions) - len(old) < self.options.subscriptions
        self.need(room == done, "room for a subscription")
        if done:
            for r in old:
                self.subscriptions.remove(r)
            self.subscriptions.append(self.new_request(filters, number, qos))
            self.requests.append(self.subscriptions[-1])

    def new_request(self, filters: list[bytes], number: int | None, qos: int) -> Request:
        """A SUBSCRIBE or UNSUBSCRIBE."""
        return Request(filters, number, qos, number is not None and self.options.chunks(number))

    def on_unsubscribed(self, done: int, joined: bytes) -> None:
        filters = joined.split(b" ")
        self.need(done, "to unsubscribe")
        for r in self.subscriptions:
            r.narrow(filters)
        self.subscriptions = [r for r in self.subscriptions if r.filters]
        self.requests.append(self.new_request(filters, None, 0))

    # When nothing moves

    def on_quiet(
        self, online, received, unrouted, skipped, strays, pending, dup0, downgraded
    ) -> None:
        # A text is made only for what is wrong: it takes more time than to look.
        if self.fault:
            self.wrong("a broken rule is not noticed")
        if self.refused and self.state != "closed":
            self.wrong("a refusal is not noticed")
        if self.message is not None:
            self.wrong(f"not delivered: {self.message}")
        if online != (self.state == "online"):
            self.wrong(f"online: {online}, not {self.state}")
        got = (received, unrouted, skipped, strays)
        wanted = (self.received, self.unrouted, self.skipped, self.strays)
        if got != wanted:
            self.wrong(f"received, unrouted, skipped, strays: {got}, not {wanted}")
        if dup0 != self.dup0:
            self.wrong(f"DUP at QoS 0: {dup0}, not {self.dup0}")
        if downgraded != self.downgraded:
            self.wrong(f"downgraded: {downgraded}")
        if not self.may_be_pending(pending):
            self.wrong(f"pending: {pending}, not {self.pending()}")
        if not online:
            return
        if self.answers:
            self.wrong(f"not answered: {self.answers}")
        if self.wire:
            self.wrong(f"half a packet is out: {bytes(self.wire)!r}")
        due = [r.variants for r in self.requests if r.state == DUE and r.filters]
        if due and not self.pending():
            self.wrong(f"not asked for: {due}")
        if self.one_at_a_time():
            if self.single == 2:
                waits = self.asked or self.under_way() or self.releasing()
                self.need(waits, "nothing goes again")
            if self.asked or self.under_way() or self.releasing():
                return
        forgotten = [m.pid for m in self.released if m.again and not m.done]
        if forgotten:
            self.wrong(f"PUBREL does not go again: {forgotten}")
        self.all_written()

    def all_written(self) -> None:
        """Nothing moves: no message waits to be written."""
        for m in self.out[self.cursor :]:
            self.need(self._may_skip(m), f"not written: {m.new!r}")

    def may_be_pending(self, n: int) -> bool:
        """Return whether this many publishes may be unfinished."""
        return n == self.pending()

    def releasing(self) -> bool:
        """Return whether the PUBREL of an old message was written again, and is not answered."""
        return any(
            m.old and not m.done and m.wait == PUBCOMP and m not in self.released for m in self.out
        )

    def on_granted(self, number: int, granted: bytes | None) -> None:
        wanted = [r.granted for r in self.subscriptions if r.number == number]
        self.need(wanted == [granted], f"granted: {granted!r}, not {wanted}")
