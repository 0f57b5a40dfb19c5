"""Judge each event of a case in MQTT 5: what `oracle` says of 3.1.1, and what is new.

The packets are those of a strict decoder which knows nothing of the client. Beyond the standard
there are these promises: subscription identifiers count up from 1, with the calls of subscribe;
a broken rule is answered with DISCONNECT and a reason code unless part of a packet has left; what
the broker has refused, or does not take, is reported once and never sent again.
"""

from __future__ import annotations

import functools

import peer
from hostile import cases, drive, drive5, oracle, strict
from hostile.cases import Options
from hostile.oracle import PROTOCOL, PUBCOMP, RESOURCE, Outgoing
from v5 import strict5
from v5.fields5 import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID, integer
from v5.properties5 import NONE, Id, Properties, encoded
from v5.strict5 import Broken, Connect, Packet

REPLIES = 98  # the number of the subscription to answers
MALFORMED = frozenset({0x81, 0x82})  # for packets that may break rules of both kinds
# DISCONNECT with one of these may be for the message that was sent last.
ACCUSING = b"\x80\x81\x82\x83\x87\x8f\x90\x95\x97\x99\x9a\x9b\x9e\xa1\xa2"

# The blocks of cases.PROPERTY_SETS, in the order in which the client encodes them.
BLOCKS = tuple(
    encoded(each)
    for each in (
        (),
        ((Id.CONTENT_TYPE, b"t"), (Id.MESSAGE_EXPIRY, 60)),
        (
            (Id.CORRELATION_DATA, b"c"),
            (Id.RESPONSE_TOPIC, b"r"),
            (Id.USER_PROPERTY, (b"k", b"v")),
        ),
        ((Id.PAYLOAD_FORMAT, 1),),
        ((Id.USER_PROPERTY, (b"k", b"v")), (Id.USER_PROPERTY, (b"k", b"w"))),
    )
)


@functools.lru_cache(20000)
def seen(properties: Properties) -> bytes:
    """Return what a handler sees of properties: see `drive5.seen`."""
    out = b""
    for i in drive5.CARRIED:
        value = properties.first(i)
        out += b"%d " % i
        out += b"-" if value is None else b"%d" % value if isinstance(value, int) else value
        out += b";"
    pairs = properties.each(Id.USER_PROPERTY)
    for name in drive5.USERS:
        values = [value for each, value in pairs if each == name]
        out += values[0] + b";" if values else b"-;"
    return out


@functools.lru_cache(1000)
def _head(identifier: int) -> bytes:
    """The properties of a request: that subscription identifier, if it is not 0."""
    return encoded([(Id.SUBSCRIPTION_IDENTIFIER, identifier)] if identifier else [])


class Limits:
    """The limits in a CONNACK."""

    def __init__(self, said: Properties = NONE) -> None:
        self.receive_maximum: int = said.first(Id.RECEIVE_MAXIMUM, 65535)
        self.qos: int = said.first(Id.MAXIMUM_QOS, 2)
        self.retain: int = said.first(Id.RETAIN_AVAILABLE, 1)
        self.size: int = said.first(Id.MAXIMUM_PACKET_SIZE, 0)
        self.aliases: int = said.first(Id.TOPIC_ALIAS_MAXIMUM, 0)
        self.keep_alive: int | None = said.first(Id.SERVER_KEEP_ALIVE)
        self.identifiers: int = said.first(Id.SUBSCRIPTION_IDENTIFIERS_AVAILABLE, 1)

    def forbids(self, m: Outgoing) -> bool:
        """Return whether the broker does not accept a message."""
        too_large = 0 < self.size < len(m.new)
        return m.qos > self.qos or (m.new[0] & 1 and not self.retain) or too_large


class Outgoing5(Outgoing):
    """A message with properties."""

    def __init__(
        self, pid: int, topic: bytes, payload: bytes, qos: int, retain: int, block: bytes = b"\0"
    ) -> None:
        super().__init__(max(pid, 0), topic, payload, qos, retain, block)
        self.pid = pid
        self.alias = False
        self.vague = False  # it was cut while it went past others, and may be lost


class Request5(oracle.Request):
    """A SUBSCRIBE with its identifier and options, or an UNSUBSCRIBE."""

    identifier = 0
    head = b"\0"  # its properties

    def mark(self, supported: int) -> None:
        """It has an identifier if the broker supports that."""
        self.head = _head(self.identifier if supported else 0)

    def size(self) -> int:
        """The size of the packet, in bytes."""
        options = self.number is not None
        body = 2 + len(self.head) + sum(2 + len(f) + options for f in self.filters)
        return len(peer.packet(0x82, bytes(body)))

    def is_body(self, body: bytes) -> bool:
        return body.startswith(self.head) and super().is_body(body[len(self.head) :])


class Oracle5(oracle.Oracle):
    """Takes the events of one case in MQTT 5."""

    out: list[Outgoing5]  # type: ignore[assignment]
    subscriptions: list[Request5]  # type: ignore[assignment]

    def __init__(self, options: Options) -> None:
        self.limits = Limits()  # of the last CONNACK, and of the last that accepted
        self.kept = Limits()
        self.client_id: bytes = options.client_id
        self.assigned: bytes | None = None
        self.over: int | None = None  # the reason code of a DISCONNECT from the broker
        self.dropped = 0
        self.drops: list[tuple[int, bytes]] = []  # to be reported now
        self.identifier = 0  # of the last subscription
        self.again = 0  # its identifier, if it is one that is there already
        self.asks = 0  # the options of the next one
        self.known: dict[int, tuple[int, int]] = {}  # the connection and number of each alias,
        self.named: dict[int, int] = {}  # and the connection on which its name was sent
        # For each place of a request: its number and when it was made; how often it was used.
        self.slots: list[tuple[int, int] | None] = [None] * options.requests
        self.used = [0] * options.requests
        super().__init__(options)
        self._handlers |= {
            drive5.DROPPED: self.on_dropped,
            drive.FULL: self.on_full,
            drive5.ALIASED: self.on_aliased,
            drive5.REPLYING: self.on_replying,
            drive5.REQUESTED: self.on_requested,
            drive5.ANSWERED: self.on_answered,
            drive5.LATE: self.on_late,
            drive5.WAITING: self.on_waiting,
            drive5.ASKS: self.on_asks,
            drive5.AUTHENTICATED: self.on_authenticated,
        }

    def __call__(self, event: tuple) -> None:
        if self.found:
            raise self.found
        self.log.append(event)
        if self.drops and event[0] != drive5.DROPPED:
            self.wrong(f"not reported: {self.drops}")
        self._handlers[event[0]](*event[1:])

    # Connections

    def _close(self) -> None:
        super()._close()
        self.full = False  # the network has not taken all that it was offered last
        self.said = False  # DISCONNECT is out
        self.codes: frozenset[int] = frozenset()  # one of which it must have
        self.passing = False  # there were more messages than the broker takes
        self.is_silent = False  # no DISCONNECT may say why
        self.auths: list[Packet] = []  # to be written
        self.hopeless = False  # AUTH would be larger than the broker accepts
        self.tagged = False  # identifiers say who gets the message
        self.blind = False  # the properties of a large message were not all there
        self.aliases = 0

    def on_opened(self) -> None:
        self.over = None
        self.out = [m for m in self.out if not m.done]
        super().on_opened()

    def on_full(self) -> None:
        self.full = True

    def on_passed(self, ms: int) -> None:
        super().on_passed(ms)
        self.pings += self.limits.keep_alive is not None

    def patience(self) -> int:
        each = self.limits.keep_alive if self.state == "online" else None
        return min(8000, each * 750) if each else 8000

    def on_closed(self) -> None:
        if self.fault and not self.said and not self.is_silent:
            cut = self.full or len(self.wire) > 0 or self.gone  # the last below MQTT
            self.need(cut, f"no DISCONNECT, for {set(self.fault)}")
        if bytes(self.wire[:1]) == b"\xe0":
            self.need(self.fault and self.full, f"wrote {bytes(self.wire)!r}")
        super().on_closed()
        for m in self.out:
            if m.alias and not m.done:  # the next connection does not know it
                self.refuse(m, 0)

    def on_lost(self, kind: str, code: int, detail: str) -> None:
        if kind == "closed" and self.over is not None:
            self.need(code == self.over, f"code {code}, not {self.over}")
            code = 0
        super().on_lost(kind, code, detail)

    # What comes in

    def advance(self) -> None:
        while self.message is None and not self.fault and not self.refused and self.over is None:
            if not self.buf or self.hopeless:
                return
            if self.more:
                self.piece()
                continue
            if self.state == "greeting" and self.buf[0] not in b"\x20\xf0":
                self.fault = PROTOCOL
                return
            try:
                if not self.next_packet():
                    return
            except Broken as e:
                self.broken(e)
            except strict.Broken:
                self.fault |= PROTOCOL

    def next_packet(self) -> bool:
        """Judge the next packet. False if it is not there yet."""
        head = strict.header(self.buf)
        if head is None:
            return False
        if len(self.buf) < head.total:
            return head.total > self.options.rx_size and self.larger(head)
        body = bytes(self.buf[head.size : head.total])
        del self.buf[: head.total]
        self.packets += 1
        try:
            strict5.first_byte(head.first)
        except Broken as e:
            if e.code != PROTOCOL_ERROR:  # what else is wrong is malformed, too, in such a packet
                self.only_broken(e)
                return True
        try:
            p = self.decoded(head.first, body)
        except Broken:
            self.too_many_besides(head.first, body)
            raise
        try:
            self.packet(p)
        except Broken as e:  # the packet breaks no rule by itself
            self.only_broken(e)
        return True

    def broken(self, e: Broken) -> None:
        """A rule was broken.

        The packet may break others besides, and any may be looked at first.
        """
        self.only_broken(e)
        self.codes |= MALFORMED

    def only_broken(self, e: Broken) -> None:
        """A rule was broken, and no other."""
        self.fault |= PROTOCOL
        self.codes |= {e.code}

    def too_many_besides(self, first: int, body: bytes) -> None:
        """A PUBLISH that breaks a rule may also be the one too many that waits for release."""
        at = 2 + (body[0] << 8 | body[1]) if len(body) > 1 else 0
        if first & 0xF6 == 0x34 and at and at + 2 <= len(body):
            pid = body[at] << 8 | body[at + 1]
            if pid and pid not in self.held and len(self.held) == self.options.incoming:
                self.fault |= RESOURCE
                self.codes |= {0x93}

    def decoded(self, first: int, body: bytes) -> Packet:  # type: ignore[override]
        if first == 0x20 and len(body) == 2 and body[1]:  # of a broker for 3.1.1
            if body[0]:
                raise Broken("CONNACK of 3.1.1: flags, and refused")
            return Packet("CONNACK", code=body[1])
        p = _from_server(first, body)
        if p.name == "PUBLISH" and p.properties.first(Id.TOPIC_ALIAS) is not None:
            if p.topic:
                self.codes = frozenset({TOPIC_ALIAS_INVALID})
            raise Broken("a topic alias, and none was allowed", TOPIC_ALIAS_INVALID)
        return p

    def larger(self, head: strict.Header) -> bool:
        """A packet larger than rx_size that is not all there. Whether its head has been judged.

        Of an acknowledgement what follows its reason code is skipped. A message whose properties
        do not fit is skipped, too.
        """
        first, body = head.first, self.buf[head.size :]
        room = self.options.rx_size - head.size
        if first in b"\x40\x50\x62\x70":
            if len(body) < 3:
                return False
            self.take_large(head, 3, self.decoded(first, bytes(body[:3])))
            self.packet(self.large)
            return True
        if first >> 4 != 3:
            self.fault = RESOURCE if first in b"\x20\x90\xb0\xe0\xf0" else PROTOCOL
            return False
        if len(body) < 2:
            return False
        n = 2 + (body[0] << 8 | body[1]) + (2 if first & 6 else 0)
        if n + 4 > room:
            self.fault = RESOURCE
            if n + 4 > head.length or first & 6 == 6:
                self.fault |= PROTOCOL  # it breaks two rules
            return False
        size = varint(body, n)
        if size is None:
            if len(body) < n + 4:
                return False
            raise Broken("a property length of five bytes")
        length, at = size
        end = at + length
        if end > head.length:
            raise Broken("properties that run past their packet")
        blind = end > room
        if blind:
            end = at
        elif end > len(body):
            return False
        self.blind = False
        known = bytes(body[:n]) + b"\0" if blind else bytes(body[:end])
        try:
            m = self.decoded(first, known)
        except Broken:
            self.too_many_besides(first, known)
            raise
        again = m.qos == 2 and m.pid in self.held
        self.check_room(m)  # type: ignore[arg-type]
        self.repeats = again
        self.blind = blind
        self.offset = 0
        self.total = head.length - end
        self.take_large(head, end, m)
        return True

    def take_large(self, head: strict.Header, n: int, p: Packet) -> None:
        """Go on behind the `n` bytes of a large packet that were judged."""
        self.packets += 1
        self.large = p  # type: ignore[assignment]
        self.more = head.length - n
        del self.buf[: head.size + n]

    def piece(self) -> None:
        if self.large.name == "PUBLISH":
            super().piece()
            return
        n = min(self.more, len(self.buf))
        del self.buf[:n]
        self.more -= n

    def packet(self, p: Packet) -> None:  # type: ignore[override]
        if p.name == "AUTH":
            self.authenticated(p)
        elif p.name == "DISCONNECT":
            self.over = p.code
            self.gone = True
            self.by_peer = p.code in ACCUSING
        else:
            try:
                super().packet(p)  # type: ignore[arg-type]
            except strict.Broken as e:
                raise Broken(str(e), PROTOCOL_ERROR) from e

    def greeting(self, p: Packet) -> None:  # type: ignore[override]
        if p.present and self.options.clean_session:
            raise Broken("session present on a clean session", PROTOCOL_ERROR)
        if not p.code and 0 < p.properties.first(Id.MAXIMUM_PACKET_SIZE, 0) < 4:
            self.fault |= PROTOCOL  # no PUBACK would fit, and perhaps no DISCONNECT
            self.is_silent = True
            return
        method = p.properties.first(Id.AUTHENTICATION_METHOD)
        if not p.code and self.options.auth and (method != drive5.METHOD or self.is_early()):
            text = "CONNACK: another authentication method, or before the last answer is out"
            raise Broken(text, PROTOCOL_ERROR)
        self.limits = Limits(p.properties)
        self.assigned = p.properties.first(Id.ASSIGNED_CLIENT_IDENTIFIER, self.assigned)
        super().greeting(p)  # type: ignore[arg-type]
        if self.state != "online":
            return
        self.kept = self.limits
        if not self.client_id and self.assigned is not None:
            self.client_id = self.assigned
        for r in self.subscriptions + self.requests:  # type: ignore[operator]
            r.mark(self.limits.identifiers)
        for m in self.out:
            if not m.done and m.wait != PUBCOMP and self.limits.forbids(m):
                self.refuse(m, 0)
        for r in [each for each in self.requests if 0 < self.limits.size < each.size()]:
            self.requests.remove(r)
            if r in self.subscriptions:
                self.subscriptions.remove(r)
            self.drops += [(0, f) for f in r.filters]
            self.dropped -= len(r.filters) - 1  # counted as one
        left = sum(not m.done and m.qos > 0 for m in self.out)
        self.passing = left > self.quota()
        if self.single and (self.passing or self.drops):
            for m in self.out:  # then what was accepted since goes one at a time, too
                m.old = True

    def quota(self) -> int:
        """Return how many QoS 1 and 2 messages may be in flight."""
        return min(self.options.inflight, self.limits.receive_maximum)

    def refuse(self, m: Outgoing5, stream: int) -> None:
        """The broker does not take a message.

        `stream` is the connection on which it has said so, 0 if it was not sent there.
        """
        m.done = True
        m.settled = stream
        self.in_flight.pop(m.pid, None)
        self.drops.append((m.pid, m.topic))

    def on_dropped(self, pid: int, topic: bytes) -> None:
        self.dropped += 1
        due = self.drops[:1]
        self.need([(pid, topic)] == due, f"reported {pid} {topic!r}, not {due}")
        self.drops.pop(0)

    def acknowledged(self, p: Packet) -> None:  # type: ignore[override]
        m = self.in_flight.get(p.pid)
        if p.code < 128 or p.name == PUBCOMP:
            super().acknowledged(p)  # type: ignore[arg-type]
        elif m and m.wait == p.name:
            assert isinstance(m, Outgoing5)
            self.refuse(m, self.streams)
        else:
            self.strays += 1

    def request_answered(self, p: Packet) -> None:  # type: ignore[override]
        for r in self.requests:
            if r.pid == p.pid and (p.name == "SUBACK") == (r.number is not None):
                if len(p.codes) != len(r.asked):
                    raise Broken("more or fewer reason codes than filters", PROTOCOL_ERROR)
                codes = zip(r.asked, p.codes, strict=True)
                r.granted = bytes(code for f, code in codes if f in r.filters)
                self.requests.remove(r)
                r.state = oracle.ANSWERED
                r.pid = 0
                return
        self.strays += 1

    def authenticated(self, p: Packet) -> None:
        """AUTH."""
        if not self.options.auth:
            raise Broken("AUTH without a method in CONNECT", PROTOCOL_ERROR)
        if self.state == "greeting" and self.is_early():
            text = "AUTH before CONNECT is out, or before the last answer is"
            raise Broken(text, PROTOCOL_ERROR)
        method = p.properties.first(Id.AUTHENTICATION_METHOD)
        if p.code == 0 and (self.state == "greeting" or method not in (None, drive5.METHOD)):
            raise Broken("AUTH: success", PROTOCOL_ERROR)
        if p.code:
            if method != drive5.METHOD:
                raise Broken("AUTH: another method", PROTOCOL_ERROR)
            data = p.properties.first(Id.AUTHENTICATION_DATA)
            answer = drive5.authenticate(data)
            if self.state == "online" and not self.has_room(answer):
                self.hopeless = True
                return
            self.auths.append(self.auth(p.code, answer))

    def is_early(self) -> bool:
        """Return whether CONNECT, or the answer to an AUTH packet, is not all out."""
        return self.full or len(self.wire) > 0 or not self.greeted

    def has_room(self, data: bytes) -> bool:
        """Return whether the broker accepts an AUTH packet of that size."""
        return not 0 < self.limits.size < 10 + len(drive5.METHOD) + len(data)

    def reasons(self) -> frozenset[str]:
        return frozenset({"refused"}) if self.hopeless else super().reasons()

    def auth(self, code: int, data: bytes) -> Packet:
        """The AUTH that the client writes."""
        return Packet("AUTH", code=code, properties=Properties(
            [(Id.AUTHENTICATION_DATA, data), (Id.AUTHENTICATION_METHOD, drive5.METHOD)]
        ))  # fmt: skip

    def on_authenticated(self, taken: int) -> None:
        has_room = self.has_room(drive5.authenticate(None))
        self.need(taken == has_room, "authenticate: AUTH has another size")
        if taken:
            self.auths.append(self.auth(0x19, drive5.authenticate(None)))

    # Deliveries

    def handlers(self, m: Packet, large: bool = False) -> list[int]:  # type: ignore[override]
        """Return the numbers of the subscriptions that a message goes to.

        Of those which match, they are either all, or the ones whose identifier it carries.
        """
        if large and self.blind:
            return []
        by = [r for r in self.subscriptions if any(matches(f, m.topic) for f in r.filters)]
        carried = m.properties.each(Id.SUBSCRIPTION_IDENTIFIER)
        if not large or not self.offset:  # of a large message that is found out once
            self.tagged = self.decides(carried, by)
        if self.tagged:
            by = [r for r in by if r.identifier in carried]
        return [r.number for r in by if r.number is not None and (r.chunks or not large)]

    def decides(self, carried: list[int], by: list[Request5]) -> bool:
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

    def publish(self, p: Packet) -> None:  # type: ignore[override]
        super().publish(p)  # type: ignore[arg-type]
        if self.message is p and REPLIES in self.left and self.awaited() is None:
            self.forget_answer()

    def awaited(self) -> int | None:
        """The place of the request that the message answers."""
        assert isinstance(self.message, Packet)
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
        m = self.message
        if not self.left and m is not None:
            self.message = None
            self.received += 1
            self.delivered += 1
            self.acknowledge(m)

    def on_call(self, number: int, topic, payload, qos, retain, dup, view=b"") -> None:
        self.on_piece(number, topic, payload, qos, retain, dup, 0, len(payload), view)

    def on_piece(
        self, number: int, topic, payload, qos, retain, dup, offset: int, total: int, view=b""
    ) -> None:
        super().on_piece(number, topic, payload, qos, retain, dup, offset, total)
        m = self.message
        assert isinstance(m, Packet)
        if view != seen(m.properties):
            self.wrong(f"properties {view!r}, not {m.properties}")

    def on_answered(self, number: int, topic, payload, qos, retain, dup, view: bytes) -> None:
        self.on_call(REPLIES, topic, payload, qos, retain, dup, view)
        i = self.awaited()
        slot = None if i is None else self.slots[i]
        self.need(slot and slot[0] == number, f"request {number} was answered")

    def on_returned(self) -> None:
        if self.calling == REPLIES:
            i = self.awaited()
            assert i is not None
            self.slots[i] = None
        super().on_returned()

    # What goes out

    def is_connect(self, raw: bytes) -> bool:
        o = self.options
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
            properties.append((Id.AUTHENTICATION_METHOD, drive5.METHOD))
            properties.append((Id.AUTHENTICATION_DATA, drive5.authenticate(None)))
        p = self.client_packet(raw)
        wanted = Connect(self.client_id, int(o.clean_session), 60)
        return p.connect == wanted and sorted(p.properties) == sorted(properties)

    def client_packet(self, raw: bytes) -> Packet:
        """A packet that the client has written."""
        try:
            return _from_client(raw)
        except Broken as e:
            self.wrong(f"wrote {raw!r}: {e}")
            raise

    def may_write(self, raw: bytes) -> bool:
        return self.state == "online" or raw[0] >> 4 in (14, 15)

    def on_wrote(self, data: bytes) -> None:
        self.full = False
        super().on_wrote(data)

    def wrote(self, raw: bytes, head: strict.Header) -> None:
        p = self.client_packet(raw)
        if self.said:
            self.wrong(f"wrote {raw!r} after DISCONNECT")
        size = self.limits.size
        if self.state == "online" and 0 < size < len(raw):
            self.wrong(f"wrote {len(raw)} bytes, more than {size}")
        if p.name == "DISCONNECT":
            self.need(not self.is_silent, "wrote DISCONNECT to a broker without room for it")
            codes = self.codes or (
                (MALFORMED if PROTOCOL & self.fault else frozenset())
                | (frozenset({0x93, 0x95}) if RESOURCE & self.fault else frozenset())
            )
            self.need(self.fault and p.code in codes, f"wrote {raw!r}, not one of {set(codes)}")
            self.said = True
        elif self.fault:
            self.wrong(f"wrote {raw!r} after a broken rule")
        elif p.name == "AUTH":
            due = [(each.code, sorted(each.properties)) for each in self.auths[:1]]
            self.need(due == [(p.code, sorted(p.properties))], f"wrote {p}, not {self.auths}")
            self.auths.pop(0)
        else:
            super().wrote(raw, head)

    def wrote_publish(self, raw: bytes) -> None:
        for m in self.out:
            if m.stream == self.streams or (m.done and m.settled != self.streams):
                continue
            if raw in (m.new, m.dup):
                wanted = m.dup if m.qos and m.again and self.same else m.new
                self.need(raw == wanted or m.unsure, f"DUP: {raw!r}")
                if self.single == 2 and self.one_at_a_time():
                    first = m.old or (self.passing and not m.qos)
                    self.need(first, f"wrote {raw!r} before what is older")
                    self.need(not self.under_way() or not m.qos, f"wrote {raw!r} beside another")
                    self.need(not self.asked, f"wrote {raw!r} before PINGRESP")
                m.stream = self.streams
                m.begun = m.whole = True
                m.unsure = m.vague = False
                m.done = m.done or not m.qos
                flying = sum(
                    each.qos > 0 and not each.done and each.stream == self.streams
                    for each in self.out
                )
                most = self.limits.receive_maximum
                self.need(flying <= most, f"{flying} messages in flight, Receive Maximum {most}")
                return
            self.need(self._may_wait(m, raw), f"wrote {raw!r} before {m.new!r}")
        self.wrong(f"wrote {raw!r}, which is no message that waits")

    def _may_wait(self, m: Outgoing5, raw: bytes) -> bool:
        """Return whether a message may be behind this one, which was accepted later."""
        return self._may_skip(m) or m.vague or (self.passing and m.qos > 0 and not raw[0] & 6)

    def _cut(self, rest: bytes) -> None:
        found = False
        for m in self.out:
            if m.stream == self.streams or (m.done and m.settled != self.streams):
                continue
            if m.new.startswith(rest) or m.dup.startswith(rest):
                if not self._may_skip(m):
                    m.unsure = found
                    m.begun = True
                    m.vague = self.passing and not m.qos
                    return
                found = True  # acknowledged while it was on its way: that one may be meant
            elif found:
                return
            self.need(self._may_wait(m, rest), f"wrote {rest!r} before {m.new!r}")
        self.need(found, f"wrote {rest!r}, which is no message that waits")

    def is_behind(self, m: Outgoing) -> bool:
        return m.stream != self.streams

    def passed(self) -> list[Outgoing]:
        return list(self.out)

    def all_written(self) -> None:
        flying = 0
        for m in self.out:
            held = self.passing and m.qos > 0 and flying >= self.quota()
            gone = m.stream == self.streams or self._may_skip(m) or m.vague
            if not (gone or held):
                self.wrong(f"not written: {m.new!r}")
            flying += m.qos > 0 and not m.done

    def may_be_pending(self, n: int) -> bool:
        most = self.pending()
        return n == most or most - sum(m.vague for m in self.out) <= n < most

    # The application

    def on_published(  # type: ignore[override]
        self, pid: int, topic: bytes, payload: bytes, qos: int, retain: int, number: int
    ) -> None:
        self.asked_for(Outgoing5(pid, topic, payload, qos, retain, BLOCKS[number]))

    def asked_for(self, m: Outgoing5) -> bool:
        """The application was to publish a message. Whether it was accepted."""
        if m.pid == drive5.REFUSED:
            bad = self.limits.forbids(m) or self.kept.forbids(m)
            self.need(bad, f"refused {m.new!r}")
            return False
        if m.pid < 0:
            self.may_be_full()
            return False
        good = self.state != "online" or self.fault or not self.limits.forbids(m)
        self.need(good, f"accepted {m.new!r}, which the broker does not take")
        self.accepted(m)
        return True

    def on_aliased(self, pid: int, which: int, payload: bytes, retain: int) -> None:
        topic, block = drive5.ALIASED_TOPICS[which], b"\0"
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
        m = Outgoing5(pid, topic, payload, 0, retain, block)
        m.alias = len(block) > 1
        if self.asked_for(m) and m.alias:
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
        if self.asked_for(Outgoing5(pid, topic, payload, 1, 0, block)):
            self.slots[i] = number, now

    def on_late(self, number: int, now: int) -> None:
        for i, slot in enumerate(self.slots):
            if slot and slot[0] == number:
                self.need(now - slot[1] >= drive5.TIMEOUT * 1000, f"gave up {number} too early")
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

    def on_subscribed(self, done: int, number: int, qos: int) -> None:
        filters = list(self.options.choices[number])
        old = [r for r in self.subscriptions if r.filters == filters]
        self.again = old[-1].identifier if old else 0
        has_room = len(self.subscriptions) - len(old) < self.options.subscriptions
        if has_room and not self.accepts(filters, number):
            self.need(not done, "a SUBSCRIBE larger than the broker accepts")
            self.identifier += not self.again
        else:
            super().on_subscribed(done, number, qos)
        self.again = 0

    def on_unsubscribed(self, done: int, filters: bytes) -> None:
        if self.accepts(filters.split(b" "), None):
            super().on_unsubscribed(done, filters)
        else:
            self.need(not done, "an UNSUBSCRIBE larger than the broker accepts")

    def accepts(self, filters: list[bytes], number: int | None) -> bool:
        """Return whether the broker accepts a request of that size."""
        r = Request5(filters, number, 0)
        if number is not None:
            r.identifier = self.again or self.identifier + 1
        r.mark(self.limits.identifiers)
        return not 0 < self.limits.size < r.size()

    def new_request(self, filters: list[bytes], number: int | None, qos: int) -> Request5:
        shared = any(f.startswith(b"$share/") for f in filters)
        if number is not None:
            qos |= self.asks & ~4 if shared else self.asks
        chunks = number is not None and number != REPLIES and self.options.chunks(number)
        r = Request5(filters, number, qos, chunks)
        if number is not None:
            self.identifier += not self.again
            r.identifier = self.again or self.identifier
        r.mark(self.limits.identifiers)
        return r

    # When nothing moves

    def on_quiet(self, online, *counted: int) -> None:  # type: ignore[override]
        *others, dropped = counted
        if dropped != self.dropped:
            self.wrong(f"dropped: {dropped}, not {self.dropped}")
        if self.over is not None and online:
            self.wrong("DISCONNECT is not noticed")
        super().on_quiet(online, *others)
        if online and self.auths:
            self.wrong(f"AUTH is not written: {self.auths}")


# Many packets are the same in many cases.
@functools.lru_cache(20000)
def _from_server(first: int, body: bytes) -> Packet:
    """The packet of that first byte and body, which a server sent."""
    return strict5.from_server(first, body, tolerant=True)


@functools.lru_cache(20000)
def _from_client(raw: bytes) -> Packet:
    """A packet that a client sent."""
    ((first, body),), _ = strict5.split(raw)
    return strict5.from_client(first, body)


def varint(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Return the variable byte integer at `at`, and where it ends.

    It may have needless bytes. Returns None if it is cut, or has a fifth byte.
    """
    try:
        return integer(data, at, True)
    except Broken:
        return None


@functools.lru_cache(20000)
def matches(topic_filter: bytes, topic: bytes) -> bool:
    """Return whether a topic filter, also of a shared subscription, matches a topic name."""
    if topic_filter.startswith(b"$share/"):
        topic_filter = topic_filter.split(b"/", 2)[2]
    return strict.matches(topic_filter, topic)
