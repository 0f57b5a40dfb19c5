"""An oracle that judges each event of a case by the standard.

A model of the client's side of MQTT over strict decoders, which know nothing of the client. What
MQTT 5 adds is in `if self.v5`; what limits in CONNACK add is in `Limits`, which before MQTT 5 has
none. The model reads nothing of the client but the events of `drive`.

It knows what the client promises besides: the order of deliveries and of answers, what is counted,
and that a packet is judged when it is all there. In MQTT 5 subscription identifiers count up from
1, with the calls of subscribe; a broken rule is answered with DISCONNECT and a reason code unless
part of a packet has left; what the broker has refused, or does not take, is reported once and
never sent again.
"""

import peer
from hostile import cases, drive
from hostile import oracle_parts as parts
from hostile.cases import Options
from hostile.oracle_parts import BEHIND, PUBACK, PUBCOMP, PUBREC, Limits, Outgoing, Request
from packets import strict
from packets.fields import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID
from packets.properties import Id, Properties, encoded
from packets.strict import Broken, Connect, Packet

NOTHING: frozenset[str] = frozenset()
PROTOCOL = frozenset({"protocol"})
RESOURCE = frozenset({"resource"})
REPLIES = 98  # the number of the subscription to answers
FORGOTTEN = 0x92  # the packet identifier, in PUBCOMP
MALFORMED = frozenset({0x81, 0x82})  # for packets that may break rules of both kinds
TOO_MUCH = frozenset({0x93, 0x95})
# ms without an acknowledgement after which a connection may end, 30 s less what the client sees
# late; and closes on a request after which it is reported.
ACK_TIMEOUT = 18000
STEADY = ACK_TIMEOUT // 3  # ms of a connection, after which what waits for PINGRESP ends it
REPORTED = 3
# DISCONNECT with one of these may be for the message that was sent last.
ACCUSING = b"\x80\x81\x82\x83\x87\x8f\x90\x95\x97\x99\x9a\x9b\x9e\xa1\xa2"
# Packets that do not fit are a lack of room if they may be that large; others break a rule.
MAY_BE_LARGE = {True: b"\x20\x90\xb0\xe0\xf0", False: b"\x90"}


class Disagreement(AssertionError):
    """The client did something else than it should."""


class Oracle:
    """Takes the events of one case, and raises Disagreement at the first that is wrong.

    Afterwards `packets` is how many packets were judged, `delivered` how many messages handlers
    got, and `ended` what ended connections, by kind.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.level = options.version
        self.v5 = self.level == 5
        self.log: list[tuple] = []
        self.found: Disagreement | None = None  # the first
        self.packets = 0
        self.delivered = 0
        self.streams = 0
        self.ended: dict[str, int] = {}
        self.received = self.unrouted = self.skipped = self.strays = 0
        self.dup0 = self.downgraded = self.dropped = 0
        self.requests: list[Request] = []  # to be written or answered, in this order
        self.subscriptions: list[Request] = []
        # Messages of earlier connections go one at a time, since the peer has closed one: no,
        # maybe, yes. That ends when those are settled which were there at the end of the last.
        self.single = 0
        self.apart = False  # requests may go one at a time
        # A message at QoS 0 that may have been put before others which were held back: these.
        self.ahead: tuple[Outgoing, list[Outgoing]] | None = None
        self.trusted = True  # the client has seen the session being made that the broker has
        self.held: set[int] = set()  # incoming QoS 2 messages that are not released
        # Some of these may be of an earlier session. 1: PINGREQ asks which, 2: PINGRESP has come
        self.mixed = 0
        self.mixing = False  # requests wait for PINGRESP, even if a message has shown it already
        self.out: list[Outgoing] = []
        self.in_flight: dict[int, Outgoing] = {}
        self.pings = 0
        self.silent = 0  # ms since something was read
        self.greeting_for = 0  # ms without a CONNACK
        self.why = NOTHING
        self.limits = Limits()  # of the last CONNACK that accepted
        self.client_id: bytes = options.client_id
        self.over: int | None = None  # the reason code of a DISCONNECT from the broker
        self.drops: list[tuple[int, bytes]] = []  # to be reported now
        self.identifier = 0  # of the last subscription
        self.again = 0  # its identifier, if it is one that is there already
        self.asks = 0  # the options of the next one
        self.known: dict[int, tuple[int, int]] = {}  # the connection and number of each alias,
        self.named: dict[int, int] = {}  # and the connection on which its name was sent
        # For each place of a request: its number and when it was made; how often it was used.
        self.slots: list[tuple[int, int] | None] = [None] * options.requests
        self.used = [0] * options.requests
        self._close()

    def __call__(self, event: tuple) -> None:
        if self.found:  # and the client took it for an error of its stream
            raise self.found
        self.log.append(event)
        if self.drops and event[0] != drive.DROPPED:
            self.wrong(f"not reported: {self.drops}")
        getattr(self, "on_" + event[0])(*event[1:])

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
        # Requests that are too large, and on which the peer has closed: they are looked at later,
        # and their filters reported then.
        self.later: list[tuple[Request, list[bytes]]] = []
        self.buf = bytearray()
        self.more = 0  # bytes that are still to come of a packet larger than rx_size,
        self.large = Packet("PUBLISH")  # which is this one; its payload is a piece
        self.offset = self.total = 0  # of that piece, and of the whole payload
        self.repeats = False  # it came before, and is not released
        self.blind = False  # nobody gets the large message
        self.name = 0  # its topic name, of so many bytes, and its identifier are part of that
        self.passing_by = 0  # its properties were not all there: they are of so many bytes,
        self.passed_by = b""  # and these have come
        self.finishing = False  # they broke a rule, and a packet is half out
        self.tagged = False  # identifiers say who gets the message
        self.fault = NOTHING  # the kinds of error, one of which must come
        self.first = 0  # of the packet that came last
        self.codes: frozenset[int] = frozenset()  # one of which its DISCONNECT must have
        self.is_silent = False  # no DISCONNECT may say why
        self.said = False  # DISCONNECT is out
        self.refused = 0
        self.gone = self.by_peer = False
        self.asked = False  # a PINGREQ was written, and nothing was read since
        self.heard = False  # bytes were read since CONNACK or the last PINGREQ
        # The PINGREQ before old messages was behind such bytes, which may have come before it had
        # left, and after it was made: then they do not answer it, and another one goes.
        self.unsure = False
        self.same = False
        self.ponged = False  # PINGRESP came,
        self.pinged = self.answered = False  # PINGREQ was written, and PINGRESP came after it
        self.unacknowledged = 0  # ms since the last acknowledgement that was awaited
        self.unponged = 0  # ms for which messages or requests wait for PINGRESP
        for r in self.requests:
            r.waited = 0
        self.message: Packet | None = None  # that is being delivered
        self.left: list[int] = []  # handlers that have not got it
        self.calling: int | None = None
        self.answers: list[bytes] = []  # that are to be written, in this order
        self.released: list[Outgoing] = []  # whose PUBREL goes again
        self.early: list[int] = []  # PUBREC came before the PUBLISH went again: one PUBREL more
        # PUBCOMP came before the PUBREL went again: each counts as one that is still to leave.
        self.missed = 0
        self.auths: list[Packet] = []  # to be written
        self.hopeless = False  # AUTH would be larger than the broker accepts
        self.wire = bytearray()
        self.full = False  # the network has not taken all that it was offered last
        self.greeted = False
        self.was_early = True  # see is_early: when something was read last
        self.cursor = 0  # in `out`: what comes before was written, or need not be
        self.passing = False  # there were more messages than the broker takes
        self.aliases = 0

    def on_opened(self) -> None:
        self.need(self.state == "closed", "a second connection")
        self._close()
        self.out = [m for m in self.out if not m.done]
        self.over = None
        self.state = "greeting"
        self.silent = self.greeting_for = 0
        self.streams += 1
        if self.single:
            self.pings += 1

    def on_gone(self, by_peer: int) -> None:
        self.gone = True
        self.by_peer = bool(by_peer)

    def on_full(self) -> None:
        self.full = True

    def reasons(self) -> frozenset[str]:
        """The kinds of error, one of which the end of the connection must have."""
        if self.fault and not self.hopeless:
            return self.fault
        for kind, is_it in (
            ("refused", self.hopeless or self.refused),
            ("closed", self.gone),
            ("timeout", max(self.silent, self.greeting_for) >= self.patience()),
            ("timeout", self.unacknowledged >= ACK_TIMEOUT),
            ("timeout", any(r.waited >= ACK_TIMEOUT for r in self.requests)),
            ("timeout", self.unponged >= STEADY),
        ):
            if is_it:
                return frozenset({kind})
        return NOTHING

    def patience(self) -> int:
        """After so many ms in which nothing comes in the connection may end."""
        each = self.limits.keep_alive if self.state == "online" else None
        return min(8000, each * 750) if each else 8000

    def on_closed(self) -> None:
        if self.v5 and self.fault and not self.said and not self.is_silent:
            cut = self.full or len(self.wire) > 0 or self.gone  # the last below MQTT
            self.need(cut, f"no DISCONNECT, for {set(self.fault)}")
        if bytes(self.wire[:1]) == b"\xe0":
            self.need(self.v5 and self.fault and self.full, f"wrote {bytes(self.wire)!r}")
        self.why = self.reasons()
        if self.wire and self.wire[0] >> 4 == 3:
            self._cut(bytes(self.wire))
        elif self.full and self.passing:
            self._may_be_ahead()
        # While it waits for the rest of CONNECT or AUTH the broker accepts nothing.
        cut = self.was_early if self.fault else self.is_early()
        if self.state == "greeting" and not self.refused and not cut:
            self.trusted = self.options.clean_session
        if self.state == "online":
            closed = self.by_peer and "closed" in self.why
            if closed:
                self._accuse()
                closed = any(m.qos or m.stream or m.begun for m in self.out if not m.done)
            elif (
                self.unacknowledged >= ACK_TIMEOUT
                or any(r.waited >= ACK_TIMEOUT for r in self.requests)
                or (self.fault and self.first >> 4 in (9, 11))  # SUBACK, UNSUBACK
            ):
                self._accuse_requests()
            if closed and self.pending():
                self.single = 2
            elif self.single and not self.one_at_a_time():
                self.single = 1 if self.pending() else 0
            for m in self.out:
                m.old = bool(self.single)
        elif self.single:
            for m in self.out:  # what was accepted since goes one at a time, too
                m.old = True
        code = self.refused
        self._close()
        self.refused = code
        for m in self.out:
            if m.alias and not m.done:  # the next connection does not know it
                self.refuse(m, 0)

    def _accuse(self) -> None:
        """The peer has closed the connection: perhaps on the only message in flight.

        A message past its PUBREC does not count, but may be meant, too.
        """
        flying = []
        for m in self.out:
            if not m.done and m.wait == PUBCOMP:
                m.strikes += 1
            elif not m.done and self.streams in (m.stream, m.cut):
                flying.append(m)
        if len(flying) == 1:
            flying[0].strikes += 1
        self._accuse_requests()

    def _accuse_requests(self) -> None:
        for r in self.requests:
            r.strikes += 1
        self.apart = self.apart or bool(self.requests)

    def on_lost(self, kind: str, code: int, detail: str) -> None:
        self.need(self.state == "closed", "lost, but not closed")
        self.need(kind in self.why, f"ended by {kind} ({detail}), not {set(self.why) or 'at all'}")
        wanted = {"refused": self.refused, "closed": self.over or 0}.get(kind, 0)
        self.need(code == wanted, f"code {code}, not {wanted}")
        self.refused = 0
        self.ended[kind] = self.ended.get(kind, 0) + 1

    def on_passed(self, ms: int) -> None:
        self.silent += ms
        if self.state == "greeting":
            self.greeting_for += ms
        elif any(self.is_live(m) for m in self.out):
            self.unacknowledged += ms
        if self.state == "online":
            for r in self.requests:
                r.waited += ms if r.pid or not r.refused else 0  # else it is put off
            if self.mixed == 1 or (self.single and not self.answered):
                self.unponged += ms
        self.pings += 1 + (self.limits.keep_alive is not None)

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
        self.was_early = self.is_early()
        self.buf += data
        self.advance()

    def advance(self) -> None:
        """Judge the packets that are there, until one has to be delivered."""
        greetings = b"\x20\xf0" if self.v5 else b"\x20"
        while self.message is None and not self.fault and not self.refused and self.over is None:
            if not self.buf or self.hopeless:
                return
            if self.state == "greeting" and not self.more and self.buf[0] not in greetings:
                self.fault = PROTOCOL
                return
            try:
                if self.more:
                    self.piece()
                elif not self.next_packet():
                    return
            except Broken as e:
                self.broken(e)

    def next_packet(self) -> bool:
        """Judge the next packet. False if it is not there yet."""
        self.first = self.buf[0]
        head = strict.header(self.buf)
        if head is None:
            return False
        if len(self.buf) < head.total:
            return head.total > self.options.rx_size and self.larger(head)
        body = bytes(self.buf[head.size : head.total])
        if self.auths and self.state == "greeting" and self.waits_for_auth(head.first, body):
            return False
        del self.buf[: head.total]
        self.packets += 1
        if self.v5:
            try:
                strict.first_byte(head.first)
            except Broken as e:
                # What else is wrong in a malformed packet is malformed, too.
                if e.code != PROTOCOL_ERROR:
                    self.only_broken(e)
                    return True
        p = self.decoded(head.first, body)
        try:
            self.packet(p)
        except Broken as e:  # the packet breaks no rule by itself
            self.only_broken(e)
        return True

    def waits_for_auth(self, first: int, body: bytes) -> bool:
        """Return whether a packet waits for the answer to the AUTH before it to be out.

        That is another AUTH, or a CONNACK that accepts and breaks no rule by itself.
        """
        if first != 0x20:
            return first == 0xF0
        try:
            p = self.decoded(first, body)
        except Broken:
            return False
        small = 0 < p.properties.first(Id.MAXIMUM_PACKET_SIZE, 0) < 4
        return not (p.code or small or (p.present and self.options.clean_session))

    def broken(self, e: Broken) -> None:
        """A rule was broken.

        The packet may break others besides, and any may be looked at first.
        """
        self.only_broken(e)
        self.codes |= MALFORMED | {TOPIC_ALIAS_INVALID} if "twice" in str(e) else MALFORMED

    def only_broken(self, e: Broken) -> None:
        """A rule was broken, and no other."""
        self.fault |= PROTOCOL
        self.codes |= {e.code}

    def decoded(self, first: int, body: bytes) -> Packet:
        if self.v5 and first == 0x20 and len(body) == 2 and body[1]:  # of a broker for 3.1.1
            if body[0]:
                raise Broken("CONNACK of 3.1.1: flags, and refused")
            return Packet("CONNACK", code=body[1])
        p = parts.from_server(first, body, self.level)
        if p.name == "PUBLISH" and p.properties.first(Id.TOPIC_ALIAS) is not None:
            if p.topic:
                self.codes = frozenset({TOPIC_ALIAS_INVALID})
            raise Broken("a topic alias, and none was allowed", TOPIC_ALIAS_INVALID)
        return p

    def larger(self, head: strict.Header) -> bool:
        """A packet larger than rx_size that is not all there. Whether its head has been judged.

        Nobody gets a message whose topic name is larger. Another goes in pieces to the handlers
        that asked for it so, each as large as what was read; it is acknowledged and
        counted with its last byte, also where nobody gets it, and nobody does if its
        properties do not fit, or its topic name is not valid. Of an acknowledgement what
        follows its reason code is skipped.
        """
        first, body = head.first, self.buf[head.size :]
        room = self.options.rx_size - head.size
        if self.v5 and first in b"\x40\x50\x62\x70":
            if len(body) < 3:
                return False
            self.take_large(head, 3, self.decoded(first, bytes(body[:3])))
            self.packet(self.large)
            return True
        if first >> 4 != 3:
            self.fault = RESOURCE if first in MAY_BE_LARGE[self.v5] else PROTOCOL
            return False
        if len(body) < 2:
            return False
        if first & 6 == 6:
            raise Broken("QoS 3")
        name = body[0] << 8 | body[1]
        n = 2 + name + (2 if first & 6 else 0)
        if n > room:
            if n > head.length:
                raise Broken("a topic name that runs past its packet")
            self.blind = True
            self.name = name
            self.passing_by = self.offset = 0
            self.total = head.length - 2
            self.repeats = False  # that is known once its identifier has passed
            m = Packet("PUBLISH", qos=first >> 1 & 3, dup=first >> 3 & 1)
            self.take_large(head, 2, m)
            return True
        least = n + 4 if self.v5 else n  # with the length of the properties
        if self.v5 and len(body) >= n:
            self.decoded(first, bytes(body[:n]) + b"\0")  # what is wrong so far is noticed now
        end = n
        blind = self.v5 and least > room  # nobody looks at its properties either
        if blind:
            self.passing_by = 0
            if len(body) < n:
                return False
        elif self.v5:
            size = parts.varint(body, n)
            if size is None:
                if len(body) < least:
                    return False
                raise Broken("a property length of five bytes")
            length, at = size
            end = at + length
            if end > head.length:
                raise Broken("properties that run past their packet")
            blind = end > room
            if blind:
                end = at
                self.passing_by = length
                self.passed_by = b""
        if end > len(body):
            return False
        m = self.decoded(first, bytes(body[:n]) + b"\0" if blind else bytes(body[:end]))
        again = self.is_held(m)
        self.repeats = again
        self.blind = blind or not parts.is_name(m.topic)
        self.passing_by *= blind
        self.name = self.offset = 0
        self.total = head.length - end
        self.take_large(head, end, m)
        return True

    def take_large(self, head: strict.Header, n: int, p: Packet) -> None:
        """Go on behind the `n` bytes of a large packet that were judged."""
        self.packets += 1
        self.large = p
        self.more = head.length - n
        del self.buf[: head.size + n]

    def piece(self) -> None:
        """Bytes of a packet larger than rx_size are there: to be delivered, or passed over."""
        m = self.large
        n = min(self.more, len(self.buf))
        payload = bytes(self.buf[:n])
        if self.blind and len(self.passed_by) < self.passing_by:
            self.passed_by = (self.passed_by + payload)[: self.passing_by]
            # What the network has begun to take it takes to the end before the connection ends.
            self.finishing = self.full or len(self.wire) > 0
            parts.judge_beginning(self.passed_by, self.passing_by)
            self.finishing = False
        del self.buf[:n]
        self.more -= n
        if m.name != "PUBLISH":
            return
        if self.name and m.qos:
            for i in (0, 1):
                at = self.name + i - self.offset
                if 0 <= at < n:
                    m = m._replace(pid=m.pid | payload[at] << 8 >> 8 * i)
                    if i:
                        self.is_held(m)  # which may show that the session is a new one
            if not self.more and not m.pid:
                raise Broken("packet identifier 0")
        self.large = m._replace(payload=payload)
        takers = [] if self.repeats else self.handlers(m, large=True)
        if takers:
            self.left = takers
            self.message = self.large
            return
        self.offset += n
        if not self.more and not self.repeated(m):
            self.skipped += 1
            self.drops.append((0, m.topic))
            self.dropped -= 1  # it is not counted there
            self.acknowledge(m)

    def is_held(self, m: Packet) -> bool:
        """Return whether a message came before and is not released.

        If the first one in a session that may be another one has no DUP, this is a new session.
        """
        if m.qos == 2 and self.mixed:
            self.mixed = 0
            if not m.dup:
                self.held.clear()
        return m.qos == 2 and m.pid in self.held

    def repeated(self, m: Packet) -> bool:
        """Return whether a message came before and is not released; if so, only answer it."""
        if not self.is_held(m):
            return False
        self.answer(0x50, m.pid)
        return True

    def handlers(self, m: Packet, large: bool = False) -> list[int]:
        """Return the numbers of the subscriptions that a message goes to.

        Of those which match, they are either all, or the ones whose identifier it carries; of a
        large message those that take it in pieces.
        """
        if large and self.blind:
            return []
        by = [r for r in self.subscriptions if any(parts.matches(f, m.topic) for f in r.filters)]
        carried = m.properties.each(Id.SUBSCRIPTION_IDENTIFIER)
        if not large or not self.offset:  # of a large message that is found out once
            self.tagged = self.decides(carried, by)
        if self.tagged:
            by = [r for r in by if r.identifier in carried]
        return [r.number for r in by if r.number is not None and (r.chunks or not large)]

    def decides(self, carried: list[int], by: list[Request]) -> bool:
        """Return whether the identifiers of a message say who gets it.

        The first that belongs to a subscription has to match, and one that was never given
        out is from before a reboot.
        """
        for each in carried:
            if any(r.identifier == each for r in self.subscriptions):
                return any(r.identifier == each for r in by)
            if each > self.identifier:
                return False
        return bool(carried)

    def acknowledge(self, m: Packet) -> None:
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

    def packet(self, p: Packet) -> None:
        """A packet that breaks no rule by itself."""
        if p.name == "AUTH":
            self.authenticated(p)
        elif p.name == "DISCONNECT":
            self.over = p.code
            self.gone = True
            self.by_peer = p.code in ACCUSING
        elif self.state == "greeting":
            self.greeting(p)
        elif p.name == "PUBLISH":
            self.publish(p)
        elif p.name in (PUBACK, PUBREC, PUBCOMP):
            self.acknowledged(p)
        elif p.name == "PUBREL":
            if p.pid in self.held:
                self.held.discard(p.pid)
                self.mixed = 0
            self.answer(0x70, p.pid)
        elif p.name in ("SUBACK", "UNSUBACK"):
            self.request_answered(p)
        elif p.name == "PINGRESP":
            self.ponged = True
            self.answered = self.pinged
            self.mixed = 2 if self.mixed else 0
            self.mixing = False
        elif p.name == "CONNACK":
            raise Broken("a second CONNACK", PROTOCOL_ERROR)

    def greeting(self, p: Packet) -> None:
        """The CONNACK of a connection."""
        clean = self.options.clean_session
        if p.present and clean:
            raise Broken("session present on a clean session", PROTOCOL_ERROR)
        if not p.code and 0 < p.properties.first(Id.MAXIMUM_PACKET_SIZE, 0) < 4:
            self.fault |= PROTOCOL  # no PUBACK would fit, and perhaps no DISCONNECT
            self.is_silent = True
            return
        method = p.properties.first(Id.AUTHENTICATION_METHOD)
        if not p.code and self.options.auth and (method != drive.METHOD or not self.greeted):
            text = "CONNACK: another authentication method, or before CONNECT is out"
            raise Broken(text, PROTOCOL_ERROR)
        assigned = p.properties.first(Id.ASSIGNED_CLIENT_IDENTIFIER)
        if not p.code and assigned is not None and self.client_id:
            raise Broken("CONNACK: an identifier that was not asked for", PROTOCOL_ERROR)
        if p.code:
            self.refused = p.code
            return
        self.limits = Limits(p.properties)
        self.state = "online"
        self.greeting_for = 0
        if assigned is not None:
            self.client_id = assigned
        self.same = bool(p.present) or (self.level == 3 and not clean)
        trusted = self.same and self.trusted
        self.trusted = True
        if not self.same or self.mixed == 2:
            self.held.clear()
        self.mixed = int(self.same and self.held != set() and (self.mixed == 1 or not trusted))
        self.mixing = self.mixed > 0
        self.pings += self.mixed
        for m in self.out:
            m.again = m.begun
            m.begun = m.begun and self.same  # a new session has none of them
            if m.wait == PUBCOMP and not m.done and trusted:
                self.released.append(m)
        for m in [m for m in self.out if m.wait == PUBCOMP and not (m.done or trusted)]:
            m.wait = PUBREC
            self._back(m)
        # Those are in front of the others from now on.
        self.out = self.released + [m for m in self.out if m not in self.released]
        waiting = [r for r in self.requests if r.filters and self.same and not r.replaced]
        if p.present and trusted:
            self.requests = waiting
        else:
            # UNSUBSCRIBE goes again if the broker may have the session all the same.
            self.requests = [r for r in waiting if r.number is None]
            self.requests += self.subscriptions
        for r in self.requests:
            r.due(all=not (p.present and trusted))
        self.keep_limits()

    def _back(self, m: Outgoing) -> None:
        """Put a message that was in front of all others behind those that are older."""
        end = at = self.out.index(m)
        for i, other in enumerate(self.out[at + 1 :], at + 1):
            if other.done or not other.qos or other.wait == PUBCOMP:
                continue
            if not other.pid - m.pid & 0x8000:
                break
            end = i
        self.out.insert(end, self.out.pop(at))

    def keep_limits(self) -> None:
        """Set aside what is waiting and breaks a limit of CONNACK; the client reports it."""
        for r in self.subscriptions + self.requests:
            self.mark(r)
        for m in self.out:
            if not m.done and m.wait != PUBCOMP and self.limits.forbids(m):
                self.refuse(m, 0)
        for r in self.requests:  # these wait for a larger limit, and are reported once
            if r.filters and self.limits.exceeds(r.size()):
                late = self.may_be_late(r)
                r.is_due = False
                refused = b"\x95" * len(r.filters)
                if r.granted != refused and late:
                    self.later.append((r, list(r.filters)))
                elif r.granted != refused:
                    r.granted = refused
                    self.drops += [(0, f) for f in r.filters]
                    self.dropped -= len(r.filters) - 1  # counted as one
        left = sum(not m.done and m.qos > 0 for m in self.out)
        self.passing = self.v5 and left > self.quota()
        if self.single and (self.passing or self.drops):
            for m in self.out:  # then what was accepted since goes one at a time, too
                m.old = True

    def quota(self) -> int:
        """Return how many QoS 1 and 2 messages may be in flight."""
        return min(self.options.inflight, self.limits.receive_maximum)

    def refuse(self, m: Outgoing, stream: int) -> None:
        """The broker does not take a message.

        `stream` is the connection on which it has said so, 0 if it was not sent there.
        """
        m.done = True
        m.settled = stream
        self.in_flight.pop(m.pid, None)
        self.drops.append((m.pid, m.topic))

    def on_dropped(self, pid: int, topic: bytes) -> None:
        later = self.later if pid == 0 and (pid, topic) not in self.drops else ()
        for r, filters in later:  # what is due now comes first
            if filters[:1] == [topic]:
                filters.pop(0)
                if not filters:
                    r.granted = b"\x95" * len(r.filters)
                    self.dropped += 1
                    self.later.remove((r, filters))
                return
        if pid == 0 and (pid, topic) not in self.drops:
            told = [r for r in self.requests if r.strikes >= REPORTED and topic in r.filters]
            self.need(told, f"reported {topic!r}")
            return
        self.dropped += 1
        # Messages at QoS 0 may have gone past others before.
        self.need((pid, topic) in self.drops, f"reported {pid} {topic!r}, not {self.drops}")
        self.drops.remove((pid, topic))

    def acknowledged(self, p: Packet) -> None:
        """PUBACK, PUBREC or PUBCOMP.

        It counts for a message that is out, and PUBREC is always answered.
        """
        m = self.in_flight.get(p.pid)
        if m and not self.is_live(m):
            m = None
        if p.code < 128 and p.name == PUBREC and not (m and m.wait in (PUBREC, PUBCOMP)):
            self.strays += 1
            self.answer(0x62, p.pid)
            return
        if p.code >= 128 and p.name != PUBCOMP:
            if m and m.wait == p.name:
                self.refuse(m, self.streams)
            else:
                self.strays += 1
        elif m and p.name == PUBREC and m.wait in (PUBREC, PUBCOMP):
            if m.wait == PUBREC and self.same and m.stream != self.streams:
                self.early.append(m.pid)
            m.wait = PUBCOMP
            self.unacknowledged = 0
            self.answer(0x62, p.pid)
        elif m and (p.name == m.wait or (p.name == PUBACK and m.wait == PUBREC)):
            self.downgraded += p.name != m.wait  # by a broker that does not have QoS 2
            if self.single and m.old and m in self.released:
                self.missed += 1
                if self.full:  # its PUBREL may be on its way, and so not be missed
                    self.single = 1
            m.done = True
            m.settled = self.streams
            self.unacknowledged = 0
            del self.in_flight[p.pid]
            if p.code > 127 and p.code != FORGOTTEN:
                self.drops.append((m.pid, m.topic))
        else:
            self.strays += 1

    def is_live(self, m: Outgoing) -> bool:
        """Return whether all of a message is out on this connection, or is past its PUBREC."""
        return not m.done and m.qos > 0 and (m.stream == self.streams or m.wait == PUBCOMP)

    def request_answered(self, p: Packet) -> None:
        """SUBACK or UNSUBACK."""
        for r in self.requests:
            if r.pid == p.pid and (p.name == "SUBACK") == (r.number is not None):
                if r.number is not None or self.v5:
                    if len(p.codes) != len(r.asked):
                        raise Broken("more or fewer codes than filters", PROTOCOL_ERROR)
                    known = dict(zip(r.filters, r.granted or b"", strict=False))
                    codes = {**known, **dict(zip(r.asked, p.codes, strict=True))}
                    r.granted = bytes(codes[f] for f in r.filters)
                    refused = [f for f in r.filters if codes[f] > 127]
                    r.refused = bool(refused) and r in self.subscriptions
                    if r.refused:
                        r.variants = [refused]
                        reports = [(0, f) for f in refused if codes[f] != known.get(f)]
                        self.drops += reports
                        self.dropped -= len(reports)  # those are not counted
                r.is_due = r.refused
                if not r.refused:
                    self.requests.remove(r)
                r.pid = r.strikes = r.waited = self.unacknowledged = 0
                self.apart = self.apart and bool(self.requests)
                return
        self.strays += 1

    def authenticated(self, p: Packet) -> None:
        if not self.options.auth:
            raise Broken("AUTH without a method in CONNECT", PROTOCOL_ERROR)
        if self.state == "greeting" and not self.greeted:
            raise Broken("AUTH before CONNECT is out", PROTOCOL_ERROR)
        method = p.properties.first(Id.AUTHENTICATION_METHOD)
        if p.code == 0 and (self.state == "greeting" or method not in (None, drive.METHOD)):
            raise Broken("AUTH: success", PROTOCOL_ERROR)
        if p.code:
            if method != drive.METHOD:
                raise Broken("AUTH: another method", PROTOCOL_ERROR)
            answer = drive.authenticate(p.properties.first(Id.AUTHENTICATION_DATA))
            if self.state == "online" and not self.has_room(answer):
                self.hopeless = True
                return
            self.auths.append(self.auth(p.code, answer))

    def is_early(self) -> bool:
        """Return whether CONNECT, or the answer to an AUTH packet, is not all out."""
        return self.full or len(self.wire) > 0 or not self.greeted

    def has_room(self, data: bytes) -> bool:
        """Return whether the broker accepts an AUTH packet with that data."""
        return not self.limits.exceeds(10 + len(drive.METHOD) + len(data))

    def auth(self, code: int, data: bytes) -> Packet:
        """The AUTH that the client writes."""
        return Packet("AUTH", code=code, properties=Properties(
            [(Id.AUTHENTICATION_DATA, data), (Id.AUTHENTICATION_METHOD, drive.METHOD)]
        ))  # fmt: skip

    def on_authenticated(self, taken: int) -> None:
        data = drive.authenticate(None)
        self.need(taken == self.has_room(data), "authenticate: AUTH has another size")
        if taken:
            self.auths.append(self.auth(0x19, data))

    # Deliveries

    def publish(self, p: Packet) -> None:
        """A message, of which handlers may have to hear."""
        if self.fault or self.repeated(p):
            return
        if not parts.is_name(p.topic):
            self.skipped += 1
            self.acknowledge(p)
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
        if REPLIES in self.left and self.awaited() is None:
            self.forget_answer()

    def awaited(self) -> int | None:
        """The place of the request that the message answers."""
        assert self.message is not None
        data = self.message.properties.first(Id.CORRELATION_DATA)
        for i, slot in enumerate(self.slots):
            if slot and data == self.correlation(i):
                return i
        return None

    def correlation(self, i: int) -> bytes:
        """The Correlation Data of a request."""
        return bytes([i]) + (self.used[i] & 0xFFFFFF).to_bytes(3, "big")

    def forget_answer(self) -> None:
        """The message answers no request: the application does not see that it was handled."""
        self.left.remove(REPLIES)
        if not self.left and self.message is not None:
            self.delivered_to_all(self.message)

    def delivered_to_all(self, m: Packet) -> None:
        """Every handler has got the message, or this piece of it."""
        self.message = None
        self.offset += len(m.payload)
        if self.offset == self.total:
            self.received += 1
            self.delivered += 1
            self.strays += self.v5 and parts.visible(m.properties) != m.properties
            self.acknowledge(m)

    def on_call(
        self, number: int, topic: bytes, payload: bytes, qos, retain, dup, view: bytes,
        offset: int, total: int,
    ) -> None:  # fmt: skip
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
        if view != (parts.seen(m.properties) if self.v5 else b""):
            self.wrong(f"properties {view!r}, not {m.properties}")
        self.calling = number

    def on_answered(self, number: int, *message) -> None:
        self.on_call(REPLIES, *message)
        i = self.awaited()
        slot = None if i is None else self.slots[i]
        self.need(slot and slot[0] == number, f"request {number} was answered")

    def on_raised(self) -> None:
        self.calling = None

    def on_returned(self) -> None:
        m = self.message
        assert m is not None and self.calling is not None
        if self.calling == REPLIES:
            i = self.awaited()
            assert i is not None
            self.slots[i] = None
        self.left.remove(self.calling)
        self.calling = None
        if not self.left:
            self.delivered_to_all(m)
            self.advance()

    # What goes out

    def on_wrote(self, data: bytes) -> None:
        self.full = False
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
                early = self.v5 and raw[0] >> 4 in (14, 15)
                self.need(self.state == "online" or early, "wrote before CONNACK")
                self.wrote(raw, head)
            else:
                self.need(self.is_connect(raw), f"CONNECT: {raw!r}")
                self.greeted = True

    def is_connect(self, raw: bytes) -> bool:
        """Return whether this is the CONNECT that `drive` asks for."""
        o = self.options
        if not self.v5:
            name = {3: b"MQIsdp\3", 4: b"MQTT\4"}[self.level]
            flags = 2 if o.clean_session else 0
            head = bytes([0, len(name) - 1]) + name + bytes([flags, 0, 60])
            return raw == peer.packet(0x10, head + peer.text(self.client_id))
        expiry = o.session_expiry
        if expiry is None and not o.clean_session:
            expiry = 0xFFFFFFFF
        properties: list[tuple] = [(Id.RECEIVE_MAXIMUM, o.incoming)]
        properties.append((Id.REQUEST_PROBLEM_INFORMATION, 0))
        if expiry is not None:
            properties.append((Id.SESSION_EXPIRY, expiry))
        if o.maximum_packet_size:
            properties.append((Id.MAXIMUM_PACKET_SIZE, o.maximum_packet_size))
        if o.user_properties:
            properties.append((Id.USER_PROPERTY, (b"board", b"7")))
        if o.auth:
            properties.append((Id.AUTHENTICATION_METHOD, drive.METHOD))
            properties.append((Id.AUTHENTICATION_DATA, drive.authenticate(None)))
        p = self.client_packet(raw)
        wanted = Connect(self.client_id, int(o.clean_session), 60)
        return p.connect == wanted and sorted(p.properties) == sorted(properties)

    def client_packet(self, raw: bytes) -> Packet:
        """A packet of MQTT 5 that the client has written."""
        try:
            return parts.from_client(raw)
        except Broken as e:
            self.wrong(f"wrote {raw!r}: {e}")
            raise

    def wrote(self, raw: bytes, head: strict.Header) -> None:
        """A packet is out."""
        if self.v5 and self.wrote_to_end(raw):
            return
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
            self.asked = self.pinged = True
            self.heard = False
        else:
            self.wrong(f"wrote {raw!r}")

    def wrote_to_end(self, raw: bytes) -> bool:
        """Judge a packet as such. Return whether it was a DISCONNECT or AUTH, and is done with."""
        p = self.client_packet(raw)
        if self.said:
            self.wrong(f"wrote {raw!r} after DISCONNECT")
        if self.state == "online" and self.limits.exceeds(len(raw)):
            self.wrong(f"wrote {len(raw)} bytes, more than {self.limits.size}")
        if p.name == "DISCONNECT":
            self.need(not self.is_silent, "wrote DISCONNECT to a broker without room for it")
            codes = self.codes or (
                (MALFORMED if PROTOCOL & self.fault else frozenset())
                | (TOO_MUCH if RESOURCE & self.fault else frozenset())
            )
            self.need(self.fault and p.code in codes, f"wrote {raw!r}, not one of {set(codes)}")
            self.said = True
        elif self.fault and not self.finishing:
            self.wrong(f"wrote {raw!r} after a broken rule")
        elif p.name == "AUTH":
            due = [(each.code, sorted(each.properties)) for each in self.auths[:1]]
            self.need(due == [(p.code, sorted(p.properties))], f"wrote {p}, not {self.auths}")
            self.auths.pop(0)
            if self.state == "greeting":
                self.was_early = False
                self.advance()
        return p.name in ("DISCONNECT", "AUTH")

    def wrote_answer(self, raw: bytes) -> None:
        if self.answers and raw == self.answers[0]:
            self.answers.pop(0)
            return
        for m in self.released:
            if raw == bytes((0x62, 2, m.pid >> 8, m.pid & 255)):
                del self.released[: self.released.index(m) + 1]
                return
            if not m.done and m.again and m.strikes < BEHIND:  # it goes first
                break
        pid = raw[2] << 8 | raw[3]
        if raw[0] == 0x62 and pid in self.early:
            self.early.remove(pid)
        else:
            self.wrong(f"wrote {raw!r}, to be answered was {self.answers[:3]}")

    def waiting(self) -> list[Outgoing]:
        """The messages that may be written on this connection, in their order.

        Only messages at QoS 0 go past those that the Receive Maximum holds back.
        """
        out = self.out if self.passing else self.out[self.cursor :]
        return [
            m for m in out
            if m.stream != self.streams and not (m.done and m.settled != self.streams)
        ]  # fmt: skip

    def wrote_publish(self, raw: bytes) -> None:
        if self.ahead and raw == self.ahead[0].new and not self.ahead[0].done:
            self._overtake(*self.ahead)
        for m in self.waiting():
            pid = m.renamed(raw)
            if pid and pid != m.pid and raw not in (m.new, m.dup):
                self.fresh(pid)
                del self.in_flight[m.pid]
                self.in_flight[pid] = m
                m.rename(pid)
                m.again = False  # to the broker
            if raw in (m.new, m.dup):
                wanted = m.dup if m.qos and m.again and self.same else m.new
                self.need(raw == wanted or m.unsure, f"DUP: {raw!r}")
                if self.missed and not any(each.old and not each.done for each in self.out):
                    self.missed -= 1
                    m.old = True  # it takes the place of the one that has not left
                if self.single == 2 and self.one_at_a_time():
                    first = m.old or (self.passing and not m.qos)
                    self.need(first, f"wrote {raw!r} before what is older")
                    self.need(not self.under_way() or not m.qos, f"wrote {raw!r} beside another")
                    self.need(self.ponged, f"wrote {raw!r} before PINGRESP")
                m.stream = self.streams
                m.begun = True
                m.unsure = False
                m.done = m.done or not m.qos
                self.cursor = self.out.index(m) + 1
                flying = sum(
                    each.qos > 0 and not each.done and each.stream == self.streams
                    for each in self.out
                )
                most = self.limits.receive_maximum
                self.need(flying <= most, f"{flying} messages in flight, Receive Maximum {most}")
                return
            self.need(self._may_wait(m, raw), f"wrote {raw!r} before {m.new!r}")
        self.wrong(f"wrote {raw!r}, which is no message that waits")

    def one_at_a_time(self) -> bool:
        """Return whether messages of an earlier connection may wait for each other."""
        left = any(m.old and not m.done for m in self.out)
        return self.single > 0 and (left or (self.missed > 0 and self.pending() > 0))

    def under_way(self) -> bool:
        """Return whether one of them was written or is past its PUBREC, but is not settled."""
        return any(m.old and not m.done and m.qos and m.stream == self.streams for m in self.out)

    def _may_skip(self, m: Outgoing) -> bool:
        """Return whether a message need not be sent on this connection."""
        return m.done or (m.wait == PUBCOMP and m.again and self.same)

    def _may_wait(self, m: Outgoing, raw: bytes) -> bool:
        """Return whether a message may be behind this one, which was accepted later."""
        if m.strikes >= BEHIND:
            return True
        return self._may_skip(m) or (self.passing and m.qos > 0 and not raw[0] & 6)

    def _cut(self, rest: bytes) -> None:
        """The connection ends in the middle of a PUBLISH."""
        found = False
        for m in self.waiting():
            if m.new.startswith(rest) or m.dup.startswith(rest):
                if not self._may_skip(m):
                    m.unsure = found
                    m.begun = True
                    m.cut = self.streams
                    if self.passing and not m.qos:
                        self._overtake(m, self.held_back())
                    return
                found = True  # acknowledged while it was on its way: that one may be meant
            elif found:
                return
            self.need(self._may_wait(m, rest), f"wrote {rest!r} before {m.new!r}")
        self.need(found, f"wrote {rest!r}, which is no message that waits")

    def held_back(self) -> list[Outgoing]:
        """The messages that go behind those at QoS 0 while the Receive Maximum holds them back."""
        return [
            m for m in self.out if m.qos and m.stream != self.streams and not self._may_skip(m)
        ]

    def _may_be_ahead(self) -> None:
        """The network has taken nothing of what was offered it last.

        That may have been the next message at QoS 0, which then was put before those held back.
        """
        for m in self.out:
            if not m.qos and not m.done:
                self.ahead = m, self.held_back()
                return

    def _overtake(self, m: Outgoing, held: list[Outgoing]) -> None:
        """A message at QoS 0 was put before those that were held back, and stays there."""
        self.ahead = None
        still = [each for each in self.held_back() if each in held]
        if still and self.out.index(still[0]) < self.out.index(m):
            self.out.remove(m)
            self.out.insert(self.out.index(still[0]), m)

    def wrote_request(self, raw: bytes, head: strict.Header) -> None:
        pid = raw[head.size] << 8 | raw[head.size + 1]
        body = raw[head.size + 2 :]
        self.need(self.mixed != 1, f"wrote {raw!r} before PINGRESP")
        for r in self.requests:
            if not r.is_due:
                continue
            if (raw[0] == 0x82) == (r.number is not None) and r.is_body(body):
                self.fresh(pid)
                r.is_due = False
                r.pid = pid
                return
            if r.filters and not self.may_be_late(r):  # else it was taken back
                break
        self.wrong(f"wrote {raw!r}, which nobody asked for")

    def may_be_late(self, r: Request) -> bool:
        """Return whether a request may wait.

        The peer has refused it, or closed on it, or on one like it; or PINGRESP has to come first.
        """
        others = self.requests[: self.requests.index(r)]
        waits = [each for each in others if each.strikes or each.refused]
        alike = any(set(each.filters) & set(r.filters) for each in waits)
        return bool(r.strikes or self.apart or self.mixing) or r.refused or alike

    def fresh(self, pid: int) -> None:
        """A packet identifier that is given out."""
        self.need(0 < pid < 65536, f"packet identifier {pid}")
        used = pid in self.in_flight or any(r.pid == pid for r in self.requests)
        self.need(not used, f"packet identifier {pid} is in use")

    # The application

    def on_published(
        self, pid: int, topic: bytes, payload: bytes, qos: int, retain: int, number: int
    ) -> None:
        block = parts.BLOCKS[number] if self.v5 else b""
        self.accepted(Outgoing(pid, topic, payload, qos, retain, block))

    def accepted(self, m: Outgoing) -> bool:
        """The application was to publish a message. Whether it was accepted."""
        if m.pid == drive.REFUSED:
            bad = self.limits.forbids(m)
            self.need(bad, f"refused {m.new!r}")
            return False
        if m.pid < 0:
            self.may_be_full()
            return False
        good = self.state != "online" or self.fault or not self.limits.forbids(m)
        self.need(good, f"accepted {m.new!r}, which the broker does not take")
        if m.qos:
            self.fresh(m.pid)
            self.in_flight[m.pid] = m
        else:
            self.need(m.pid == 0, f"publish at QoS 0 returned {m.pid}")
        self.out.append(m)
        return True

    def may_be_full(self) -> None:
        """A message has found no room."""
        # While there is no connection a message may lie there that was acknowledged too early.
        full = self.pending() or self.calling is not None or self.state != "online"
        full = full or any(r.is_due for r in self.requests)
        self.need(full, "no room in an empty ring")

    def pending(self) -> int:
        """Publishes that are not done."""
        return sum(not m.done for m in self.out)

    def on_aliased(self, pid: int, which: int, payload: bytes, retain: int) -> None:
        topic, block = drive.ALIASED_TOPICS[which], b"\0"
        if self.state == "online":
            stream, number = self.known.get(which, (0, 0))
            if stream != self.streams and self.aliases < self.limits.aliases:
                self.aliases += 1
                number = self.aliases
                self.known[which] = self.streams, number
                stream = self.streams
            if stream == self.streams:
                block = encoded([(Id.TOPIC_ALIAS, number)])
                if self.named.get(which) == self.streams:
                    topic = b""
        m = Outgoing(pid, topic, payload, 0, retain, block)
        m.alias = len(block) > 1
        if self.accepted(m) and m.alias:
            self.named[which] = self.streams

    def on_replying(self) -> None:
        self.asks = 0
        self.subscriptions.append(self.new_request([cases.REPLIES], REPLIES, 1))
        self.requests.append(self.subscriptions[-1])

    def on_requested(self, pid: int, number: int, now: int, topic: bytes, payload: bytes) -> None:
        if None not in self.slots:
            self.need(pid == -1, f"request {number}, and there is no place")
            return
        i = self.slots.index(None)
        self.used[i] += 1
        block = encoded(
            [(Id.CORRELATION_DATA, self.correlation(i)), (Id.RESPONSE_TOPIC, cases.REPLIES)]
        )
        qos = min(self.limits.qos, 1)
        if self.accepted(Outgoing(pid if qos else min(pid, 0), topic, payload, qos, 0, block)):
            self.slots[i] = number, now

    def on_late(self, number: int, now: int) -> None:
        for i, slot in enumerate(self.slots):
            if slot and slot[0] == number:
                self.need(now - slot[1] >= drive.TIMEOUT * 1000, f"gave up {number} too early")
                here = self.message is not None and REPLIES in self.left and self.awaited() == i
                self.slots[i] = None
                if here:
                    self.forget_answer()
                return
        self.wrong(f"gave up request {number}, which does not wait")

    def on_waiting(self, n: int) -> None:
        left = [slot for slot in self.slots if slot]
        self.need(n == 0 and not left, f"requests wait without end: {left}")

    def on_asks(self, no_local: int, as_published: int, handling: int) -> None:
        self.asks = no_local << 2 | as_published << 3 | handling << 4

    def on_subscribed(self, done: int, number: int, qos: int, sent: int) -> None:
        filters = list(self.options.choices[number])
        old = [r for r in self.subscriptions if r.filters == filters]
        self.again = old[-1].identifier if old else 0
        room = len(self.subscriptions) - len(old) < self.options.subscriptions
        if room and not self.accepts(filters, number):
            self.need(not done, "a SUBSCRIBE larger than the broker accepts")
        else:
            self.need(room == done, "room for a subscription")
            if done:
                for r in old:
                    self.subscriptions.remove(r)
                    if r in self.requests and not sent:
                        self.requests.remove(r)
                    r.replaced = True
                self.narrow([r for r in self.requests if r.number is None], filters)
                self.subscriptions.append(self.new_request(filters, number, qos))
                self.requests.append(self.subscriptions[-1])
        self.again = 0

    def on_unsubscribed(self, done: int, joined: bytes) -> None:
        filters = joined.split(b" ")
        if not self.accepts(filters, None):
            self.need(not done, "an UNSUBSCRIBE larger than the broker accepts")
            return
        self.need(done, "to unsubscribe")
        self.narrow(self.subscriptions, filters)
        self.subscriptions = [r for r in self.subscriptions if r.filters]
        self.requests.append(self.new_request(filters, None, 0))

    def narrow(self, some: list[Request], gone: list[bytes]) -> None:
        """Take filters from requests: what has not left is withdrawn, or narrowed."""
        for r in some:
            r.narrow(gone)
        self.requests = [r for r in self.requests if r.filters or not r.is_due]
        for r in self.requests:
            r.variants = r.variants[-1:] if r.is_due else r.variants

    def accepts(self, filters: list[bytes], number: int | None) -> bool:
        """Return whether the broker accepts a request of that size."""
        r = Request(filters, number, 0)
        if number is not None:
            r.identifier = self.again or self.identifier + 1
        self.mark(r)
        return not self.limits.exceeds(r.size())

    def new_request(self, filters: list[bytes], number: int | None, qos: int) -> Request:
        """A SUBSCRIBE or UNSUBSCRIBE."""
        shared = any(f.startswith(b"$share/") for f in filters)
        if number is not None:
            qos |= self.asks & ~4 if shared else self.asks
        chunks = number is not None and number != REPLIES and self.options.chunks(number)
        r = Request(filters, number, qos, chunks)
        if number is not None:
            self.identifier += not self.again
            r.identifier = self.again or self.identifier
        self.mark(r)
        return r

    def mark(self, r: Request) -> None:
        """A request of MQTT 5 has an identifier, if the broker supports that."""
        if self.v5:
            identifier = r.identifier if self.limits.identifiers else 0
            r.head = encoded([(Id.SUBSCRIPTION_IDENTIFIER, identifier)] if identifier else [])

    # When nothing moves

    def on_quiet(self, online: int, *counts: int) -> None:
        # A text is made only for what is wrong: it takes more time than to look.
        if self.fault:
            self.wrong("a broken rule is not noticed")
        if self.refused and self.state != "closed":
            self.wrong("a refusal is not noticed")
        if self.over is not None and online:
            self.wrong("DISCONNECT is not noticed")
        if self.message is not None:
            self.wrong(f"not delivered: {self.message}")
        if online != (self.state == "online"):
            self.wrong(f"online: {online}, not {self.state}")
        *others, pending = counts
        names = drive.COUNTED[:-1]
        wanted = [getattr(self, name) for name in names]
        if others != wanted:
            self.wrong(f"{', '.join(names)}: {others}, not {wanted}")
        most = self.pending()
        if pending != most:
            self.wrong(f"pending: {pending}, not {most}")
        if online:
            self.nothing_waits()

    def nothing_waits(self) -> None:
        """Nothing moves, online: all that may be written is out."""
        if self.answers:
            self.wrong(f"not answered: {self.answers}")
        if self.auths:
            self.wrong(f"AUTH is not written: {self.auths}")
        if self.wire:
            self.wrong(f"half a packet is out: {bytes(self.wire)!r}")
        prompt = [r for r in self.requests if r.filters and not self.may_be_late(r)]
        due = [r.variants for r in prompt if r.is_due]
        if due:
            self.wrong(f"not asked for: {due}")
        if self.one_at_a_time():
            waits = self.asked or self.under_way() or self.releasing()
            if self.single == 2:
                self.need(self.pinged or waits, "no PINGREQ")
                waits = waits or not self.answered or (self.apart and self.requests)
            elif self.pinged:  # it may have taken them for ones that leave one at a time
                waits = waits or not self.answered or (self.apart and self.requests)
            waits = waits or (self.missed > 0 and not self.answered)
            self.need(waits or self.single < 2, "nothing goes again")
            if waits:
                return
        forgotten = [m.pid for m in self.released if m.again and not m.done]
        if forgotten:
            self.wrong(f"PUBREL does not go again: {forgotten}")
        flying = 0
        for m in self.out:
            held = self.passing and m.qos > 0 and flying >= self.quota()
            gone = m.stream == self.streams or self._may_skip(m)
            if not (gone or held):
                self.wrong(f"not written: {m.new!r}")
            flying += m.qos > 0 and not m.done

    def releasing(self) -> bool:
        """Return whether the PUBREL of an old message was written again, and is not answered."""
        return any(
            m.old and not m.done and m.wait == PUBCOMP and m not in self.released for m in self.out
        )

    def on_granted(self, number: int, granted: bytes | None) -> None:
        wanted = [r.granted for r in self.subscriptions if r.number == number]
        self.need(wanted == [granted], f"granted: {granted!r}, not {wanted}")
