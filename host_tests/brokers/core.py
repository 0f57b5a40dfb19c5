"""A scripted MQTT broker without I/O. It keeps the standard unless a test says otherwise.

It serves clients of MQTT 5 and 3.1.1, each by the level of its CONNECT; inside, all packets are
those of MQTT 5. It holds clients to the standard: what a client must not send is listed in
`complaints`, and ends the connection with the reason code for it. Keep alive is not enforced: no
test may depend on the speed of a machine.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from brokers.scram import METHOD, ScramError, ScramServer
from packets import build
from packets.agreed import check_client
from packets.fields import PROTOCOL_ERROR, Broken
from packets.properties import ACKS, NONE, Id, Pairs, Properties, Property, properties
from packets.strict import NAMES, Filter, Packet, Will, from_client, matches, split

# The answers to level 5 of brokers that do not know it.
REFUSES_LEVEL_5 = b"\x20\x02\x00\x01"  # a CONNACK of 3.1.1
CLOSES_ON_LEVEL_5 = b""
UNSUPPORTED_VERSION = b"\x20\x03\x00\x84\x00"  # a CONNACK of MQTT 5

FOREVER = 0xFFFFFFFF  # a Session Expiry Interval
# What a message keeps on its way from publisher to subscriber.
_FORWARDED: tuple[Id, ...] = (Id.PAYLOAD_FORMAT, Id.CONTENT_TYPE, Id.RESPONSE_TOPIC)
_FORWARDED += (Id.CORRELATION_DATA, Id.USER_PROPERTY)

When = Callable[[Packet], bool]


def types(*names: str) -> frozenset[int]:
    """The types of packets, for `withhold`."""
    return frozenset(NAMES.index(name) for name in names)


@dataclass
class _Rule:
    """The answer to packets of one name."""

    name: str  # of the answer
    code: int | None
    properties: Properties | None
    when: When
    left: int | None  # times; None is always


@dataclass
class _Message:
    """A message on its way to one client. It has a packet identifier once it was sent."""

    packet: Packet
    expires: float | None = None
    released: bool = False  # PUBREC was there
    sent: bool = False  # on this connection
    counted: bool = False  # in Receive Maximum


@dataclass
class Session:
    """The state of a client while it is away."""

    client_id: bytes
    subscriptions: dict[bytes, tuple[Filter, int]] = field(default_factory=dict)
    incoming: set[int] = field(default_factory=set)  # QoS 2 identifiers that are not released
    outgoing: dict[int, _Message] = field(default_factory=dict)  # in the order of sending
    queue: deque[_Message] = field(default_factory=deque)
    last: int = 0  # packet identifier
    connection: Connection | None = None
    expiry: int = 0
    ends: float | None = None  # when it is offline
    will: Will | None = None
    will_due: float | None = None


class Connection:
    """The broker's end of a connection, which a subclass connects to a client."""

    def __init__(self) -> None:
        self.level = 5
        self.rest = b""  # of a packet that is cut
        self.mute = False  # what comes in is swallowed
        self.ended = False
        self.client_id: bytes | None = None
        self.session: Session | None = None  # None until CONNACK
        self.connect: Packet | None = None
        self.scram: ScramServer | None = None
        self.challenged = False
        self.aliases: dict[int, bytes] = {}
        self.announced = NONE
        self.receive_maximum = 65535
        self.largest: int | None = None
        self.in_use: dict[int, str] = {}  # packet identifiers of the client, and of what

    def send(self, data: bytes) -> None:
        """Send bytes, unless the client has gone."""
        raise NotImplementedError

    def end(self) -> None:
        """Set `ended`, and end the connection."""
        raise NotImplementedError


class Core:
    """A broker for tests, which they may read and set.

    onward      messages that were taken, in their order, a QoS 2 message at its first PUBLISH
    received    all packets that clients sent and that break no rule
    levels      the protocol level of each CONNECT, also of those that were refused
    complaints  the rules that clients broke

    What a test may set, also while it runs:

    announces              properties of each CONNACK; clients are held to them
    level_5                bytes that answer a CONNECT at level 5, which then ends; None accepts it
    passwords              user names and passwords for SCRAM-SHA-256; None has no authentication
    needs_authentication   CONNECT without an authentication method is refused
    forbidden              None, or how a topic name ends on which it closes the connection; such a
                           topic filter is refused
    takes_strays           an acknowledgement of what it did not send breaks no rule
    """

    serving = True  # False when it was killed: then no will is published

    def __init__(self, announces: Pairs = NONE, clock: Callable[[], float] = time.monotonic):
        self.lock = threading.RLock()  # held by whoever changes the broker
        self.connections: list[Connection] = []
        self.sessions: dict[bytes, Session] = {}
        self.onward: list[Packet] = []
        self.received: list[Packet] = []
        self.levels: list[int] = []
        self.complaints: list[str] = []
        self.announces = properties(announces)
        self.level_5: bytes | None = None
        self.passwords: dict[bytes, bytes] | None = None
        self.needs_authentication = False
        self.forbidden: bytes | None = None
        self.takes_strays = False
        self._rules: list[_Rule] = []
        self._withheld: frozenset[int] = frozenset()
        self._kept_back: list[tuple[Connection, bytes]] = []
        self._connacks: deque[bytes] = deque()
        self._retained: dict[bytes, tuple[Packet, float | None]] = {}
        self._turns: dict[bytes, int] = {}  # of the groups of shared subscriptions
        self._numbers = itertools.count(1)
        self._clock = clock
        self._ahead = 0.0  # seconds by which the clock was put forward

    # What a test may have it do

    def publish(
        self, topic: bytes, payload: bytes, qos: int = 0, retain: int = 0, more: Pairs = NONE
    ) -> None:
        """Send a message, with properties, to its subscribers, now or when they are back."""
        message = Packet("PUBLISH", 0, topic, payload, qos, retain, properties=properties(more))
        with self.lock:
            self._pass_on(message, None)

    def answer_with(
        self,
        name: str,
        code: int | None = None,
        more: Pairs | None = None,
        *,
        when: When = lambda request: True,
        times: int | None = None,
    ) -> None:
        """Set the reason code and the properties of answers of one name.

        The names are CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
        Applies where `when` holds for the packet that is answered, at most `times` times.

        With a code of 0x80 or more, the broker does not do what the packet asks. An
        acknowledgement has Remaining Length 3 if only the code is given, even 0, and 4 or more if
        properties are given, even none. An older rule goes first.
        """
        with self.lock:
            given = None if more is None else properties(more)
            self._rules.append(_Rule(name, code, given, when, times))

    def answer_connect(self, answer: bytes) -> None:
        """Answer the next CONNECT with these bytes instead of a CONNACK. Nothing follows."""
        with self.lock:
            self._connacks.append(answer)

    def withhold(self, kinds: frozenset[int]) -> None:
        """Keep back packets of these types from now on."""
        with self.lock:
            self._withheld = kinds

    def keeps_back(self) -> bool:
        """Return whether there is a packet that was kept back."""
        with self.lock:
            return bool(self._kept_back)

    def release(self) -> None:
        """Send what was kept back, and keep back nothing any more."""
        with self.lock:
            self._withheld = frozenset()
            kept_back, self._kept_back = self._kept_back, []
            for connection, data in kept_back:
                self._put(connection, data)

    def send(self, data: bytes) -> None:
        """Send these bytes to every client that is connected."""
        with self.lock:
            for connection in self.connections:
                self._put(connection, data)

    def end(self) -> None:
        """End every connection, in order."""
        with self.lock:
            for connection in self.connections:
                connection.end()

    def disconnect(
        self, code: int | None, more: Pairs | None = None, client_id: bytes | None = None
    ) -> None:
        """Send DISCONNECT to one client, or to each, and end the connection."""
        with self.lock:
            for connection in self.connections:
                if connection.session and client_id in (None, connection.client_id):
                    if connection.level == 5:
                        connection.send(build.ending("DISCONNECT", code, more))
                    connection.end()

    def forget(self, client_id: bytes) -> None:
        """Forget the session of a client; its connection ends."""
        with self.lock:
            self.sessions.pop(client_id, None)
            for connection in self._of(client_id):
                connection.session = None
                connection.end()

    def knows(self, client_id: bytes) -> bool:
        with self.lock:
            return client_id in self.sessions

    def online(self, client_id: bytes) -> bool:
        with self.lock:
            session = self.sessions.get(client_id)
            return session is not None and session.connection is not None

    def subscriptions(self, client_id: bytes) -> dict[bytes, tuple[Filter, int]]:
        """The filters of a client, each with its options and its identifier, which may be 0."""
        with self.lock:
            session = self.sessions.get(client_id)
            return dict(session.subscriptions) if session else {}

    def pass_time(self, seconds: float) -> None:
        """Have that many seconds pass for sessions, wills and messages."""
        with self.lock:
            self._ahead += seconds
            self.turn()

    # What serves it calls, with the lock held

    def taken(self, connection: Connection, data: bytes) -> None:
        """Handle bytes that a client sent."""
        try:
            packets, connection.rest = split(connection.rest + data)
        except Broken as broken:
            self._complain(connection, broken)
            return
        for first, body in packets:
            if connection.mute or connection.ended:
                break
            try:
                self.packet(connection, first, body)
            except Broken as broken:
                self._complain(connection, broken)

    def closed(self, connection: Connection) -> None:
        """Handle the end of a connection."""
        self.connections.remove(connection)
        self._leave(connection)

    def turn(self) -> float | None:
        """Do what is due. Return the seconds until something is, None if nothing will be."""
        now = self._now()
        for session in list(self.sessions.values()):
            if session.will_due is not None and session.will_due <= now:
                self._publish_will(session)
            if session.ends is not None and session.ends <= now:
                self._end_session(session)
        moments = [
            moment
            for session in self.sessions.values()
            for moment in (session.will_due, session.ends)
            if moment is not None
        ]
        return max(0.0, min(moments) - now) if moments else None

    def _now(self) -> float:
        return self._clock() + self._ahead

    # Packets in

    def packet(self, connection: Connection, first: int, body: bytes) -> None:
        """Handle a packet of a client. Raises Broken if it breaks a rule."""
        name = NAMES[first >> 4]
        if (name == "CONNECT") != (connection.connect is None):
            connection.connect = connection.connect or Packet("")  # no CONNACK for it
            raise Broken("CONNECT is not first, or the second", PROTOCOL_ERROR)
        if name == "CONNECT":
            connection.level = body[6] if len(body) > 6 else 0
            self.levels.append(connection.level)
            if connection.level == 5 and self.level_5 is not None:
                connection.send(self.level_5)
                connection.end()
                return
        packet = from_client(first, body, 4 if connection.level == 4 else 5)
        asked = connection.connect.properties if connection.connect else packet.properties
        if name != "CONNECT":
            check_client(packet, len(build.packet(first, body)), asked, connection.announced)
        self.received.append(packet)
        if name == "CONNECT":
            self._connect(connection, packet)
        elif connection.session is None:
            self._authenticate(connection, packet)
        else:
            self._online(connection, connection.session, packet)

    def _complain(self, connection: Connection, broken: Broken) -> None:
        self.complaints.append(str(broken))
        if connection.level > 4:
            if connection.session:
                connection.send(build.ending("DISCONNECT", broken.code))
            elif connection.connect is None:
                connection.send(build.connack(broken.code))
        connection.end()

    def _online(self, connection: Connection, session: Session, packet: Packet) -> None:
        if packet.name == "PUBLISH":
            self._take(connection, session, packet)
        elif packet.name == "PINGREQ":
            self._reply(connection, Packet("PINGRESP"))
        elif packet.name == "DISCONNECT":
            session.expiry = packet.properties.first(Id.SESSION_EXPIRY, session.expiry)
            if not packet.code:
                session.will = None
            connection.end()
        elif packet.name == "AUTH":
            self._authenticate(connection, packet)
        elif packet.name == "SUBSCRIBE":
            self._claim(connection, packet)
            self._subscribe(connection, session, packet)
        elif packet.name == "UNSUBSCRIBE":
            self._claim(connection, packet)
            gone = [session.subscriptions.pop(each.topic, None) for each in packet.filters]
            codes = bytes(0 if each else 0x11 for each in gone)
            self._answer(connection, Packet("UNSUBACK", packet.pid, codes=codes), packet)
        else:
            self._acknowledged(connection, session, packet)

    # Packets out

    def _ruled(self, answer: Packet, request: Packet) -> tuple[Packet, _Rule | None]:
        """The answer as the first rule for it has it."""
        for rule in self._rules:
            if rule.name == answer.name and rule.left != 0 and rule.when(request):
                if rule.left is not None:
                    rule.left -= 1
                if rule.code is not None:
                    codes = bytes([rule.code]) * len(answer.codes)
                    answer = answer._replace(code=0 if codes else rule.code, codes=codes)
                if rule.properties is not None:
                    both = Properties([*answer.properties, *rule.properties])
                    answer = answer._replace(properties=both)
                return answer, rule
        return answer, None

    def _answer(self, connection: Connection, answer: Packet, request: Packet) -> None:
        self._reply(connection, *self._ruled(answer, request))

    def _reply(self, connection: Connection, packet: Packet, rule: _Rule | None = None) -> None:
        if connection.level == 5 and packet.name in ACKS and rule:
            code = packet.code if rule.code is not None else None
            data = build.ack(packet.name, packet.pid, code, rule.properties)
        else:
            data = build.encode(packet, connection.level)
        if data and data[0] >> 4 in self._withheld:
            self._kept_back.append((connection, data))
        elif data:
            self._put(connection, data)

    def _put(self, connection: Connection, data: bytes) -> None:
        """Send bytes now, and free the packet identifiers of the client that they settle."""
        connection.send(data)
        with contextlib.suppress(Broken):  # a test may send what it likes
            for first, body in split(data)[0]:
                name, refused = NAMES[first >> 4], len(body) > 2 and body[2] >= 0x80
                settles = name in ("PUBACK", "PUBCOMP", "SUBACK", "UNSUBACK")
                if settles or (name == "PUBREC" and refused):
                    connection.in_use.pop(int.from_bytes(body[:2], "big"), None)

    # Connecting

    def _of(self, client_id: bytes) -> list[Connection]:
        return [c for c in self.connections if c.session and c.client_id == client_id]

    def _connect(self, connection: Connection, packet: Packet) -> None:
        connection.connect = packet
        if self._connacks:
            connection.mute = True
            connection.send(self._connacks.popleft())
            return
        method = packet.properties.first(Id.AUTHENTICATION_METHOD)
        if method is not None and (self.passwords is None or method != METHOD):
            self._refuse(connection, 0x8C)
        elif method is not None:
            self._challenge(connection, packet)
        elif self.needs_authentication:
            self._refuse(connection, 0x87)
        else:
            self._accept(connection, packet, NONE)

    def _refuse(self, connection: Connection, code: int, more: Properties = NONE) -> None:
        connection.mute = True
        self._reply(connection, Packet("CONNACK", code=code, properties=more))
        connection.end()

    def _accept(self, connection: Connection, packet: Packet, more: Properties) -> None:
        connect = packet.connect
        assert connect is not None
        announced = self.announces if connection.level == 5 else NONE
        will = connect.will
        if will and will.qos > announced.first(Id.MAXIMUM_QOS, 2):
            self._refuse(connection, 0x9B)
            return
        if will and will.retain and not announced.first(Id.RETAIN_AVAILABLE, 1):
            self._refuse(connection, 0x9A)
            return
        client_id = connect.client_id
        if not client_id:
            client_id = b"assigned-%d" % next(self._numbers)
            more = Properties([*more, Property(Id.ASSIGNED_CLIENT_IDENTIFIER, client_id)])
        answer = Packet("CONNACK", properties=Properties([*announced, *more]))
        answer, rule = self._ruled(answer, packet)
        if answer.code >= 0x80:
            self._refuse(connection, answer.code, rule.properties or NONE if rule else NONE)
            return
        for other in self._of(client_id):
            if other.level == 5:
                other.send(build.ending("DISCONNECT", 0x8E))
            other.end()
            self._leave(other)
        session = self.sessions.get(client_id)
        if session and connect.clean_start:
            self._end_session(session)
            session = None
        if session is None:
            session = self.sessions[client_id] = Session(client_id)
        else:
            answer = answer._replace(present=1)
        self._attach(connection, session, packet, answer.properties)
        self._reply(connection, answer, rule)
        self._pump(session)

    def _attach(
        self, connection: Connection, session: Session, packet: Packet, announced: Properties
    ) -> None:
        asked, connect = packet.properties, packet.connect
        assert connect is not None
        connection.client_id, connection.session = session.client_id, session
        connection.announced = announced if connection.level == 5 else NONE
        connection.receive_maximum = asked.first(Id.RECEIVE_MAXIMUM, 65535)
        connection.largest = asked.first(Id.MAXIMUM_PACKET_SIZE)
        session.connection = connection
        session.will, session.will_due, session.ends = connect.will, None, None
        session.expiry = announced.first(Id.SESSION_EXPIRY, asked.first(Id.SESSION_EXPIRY, 0))
        if connection.level == 4:
            session.expiry = 0 if connect.clean_start else FOREVER
        for message in session.outgoing.values():
            message.sent = message.counted = False

    # Authentication

    def _challenge(self, connection: Connection, packet: Packet) -> None:
        """Answer the first message of an exchange, in CONNECT or in AUTH."""
        connection.scram = ScramServer(self.passwords or {})
        connection.challenged = True
        data = self._exchanged(connection, connection.scram.first, packet)
        if data is not None:
            self._reply(connection, self._auth(0x18, data))

    def _authenticate(self, connection: Connection, packet: Packet) -> None:
        """Handle an AUTH, or what comes instead of it before CONNACK."""
        if packet.name == "DISCONNECT":  # instead of going on with the exchange
            connection.end()
            return
        # The exchange of CONNECT is under way until CONNACK, so 0x19 is not for that one either.
        if packet.name != "AUTH" or (packet.code == 0x19) == connection.challenged:
            raise Broken(f"{packet.name} in the wrong place of an exchange", PROTOCOL_ERROR)
        if packet.code == 0x19:
            self._challenge(connection, packet)
            return
        assert connection.scram is not None
        data = self._exchanged(connection, connection.scram.final, packet)
        if data is None:
            return
        connection.challenged = False
        success = self._auth(0, data)
        if connection.session is None:
            assert connection.connect is not None
            self._accept(connection, connection.connect, success.properties)
        else:
            self._reply(connection, success)

    def _exchanged(
        self, connection: Connection, step: Callable[[bytes], bytes], packet: Packet
    ) -> bytes | None:
        """The answer of SCRAM; None if the client did not prove itself and has been sent away."""
        try:
            return step(packet.properties.first(Id.AUTHENTICATION_DATA, b""))
        except ScramError:
            if connection.session is None:
                self._refuse(connection, 0x87)
            else:
                self._reply(connection, Packet("DISCONNECT", code=0x87))
                connection.end()
        return None

    def _auth(self, code: int, data: bytes) -> Packet:
        more = properties([(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, data)])
        return Packet("AUTH", code=code, properties=more)

    # Leaving

    def _leave(self, connection: Connection) -> None:
        """End what belongs to a connection, once."""
        session, connection.session = connection.session, None
        if session is None or session.connection is not connection:
            return
        session.connection = None
        if session.expiry != FOREVER:
            session.ends = self._now() + session.expiry
        if session.will and self.serving:
            delay = session.will.properties.first(Id.WILL_DELAY, 0)
            session.will_due = self._now() + delay
        self.turn()

    def _publish_will(self, session: Session) -> None:
        will, session.will, session.will_due = session.will, None, None
        if will:
            topic, payload, qos, retain, more = will
            message = Packet("PUBLISH", 0, topic, payload, qos, retain, properties=more)
            self._pass_on(message, session.client_id)

    def _end_session(self, session: Session) -> None:
        del self.sessions[session.client_id]
        if session.will_due is not None:
            self._publish_will(session)

    # Messages in

    def _claim(self, connection: Connection, packet: Packet) -> None:
        """Note that the client uses a packet identifier until that packet is answered."""
        if packet.pid in connection.in_use:
            raise Broken(
                f"{packet.name}: packet identifier {packet.pid} is in use by a "
                f"{connection.in_use[packet.pid]} [MQTT-2.2.1-3]",
                PROTOCOL_ERROR,
            )
        connection.in_use[packet.pid] = packet.name

    def _take(self, connection: Connection, session: Session, packet: Packet) -> None:
        packet = self._with_topic(connection, packet)
        if self._forbids(packet.topic):
            connection.end()
            return
        known = packet.qos == 2 and packet.pid in session.incoming
        if packet.qos:
            self._check_in_flight(connection, packet, known)
        kept = packet.qos == 2
        answer = Packet("PUBREC" if kept else "PUBACK", packet.pid)
        answer, rule = self._ruled(answer, packet)
        if answer.code < 0x80 and not known:
            self.onward.append(packet)
            self._pass_on(packet, session.client_id)
            if kept:
                session.incoming.add(packet.pid)
        if packet.qos:
            self._reply(connection, answer, rule)

    def _forbids(self, topic: bytes) -> bool:
        return self.forbidden is not None and topic.endswith(self.forbidden)

    def _check_in_flight(self, connection: Connection, packet: Packet, known: bool) -> None:
        if packet.dup and connection.in_use.get(packet.pid) == "PUBLISH":
            raise Broken("PUBLISH: again on one connection [MQTT-4.4.0-1]", PROTOCOL_ERROR)
        self._claim(connection, packet)
        if known and not packet.dup:
            raise Broken("PUBLISH: again without DUP [MQTT-3.3.1-1]", PROTOCOL_ERROR)
        unanswered = sum(name == "PUBLISH" for name in connection.in_use.values())
        most = connection.announced.first(Id.RECEIVE_MAXIMUM, 65535)
        if unanswered > most:
            raise Broken(f"{unanswered} PUBLISH of {most} [MQTT-3.3.4-7]", 0x93)

    def _with_topic(self, connection: Connection, packet: Packet) -> Packet:
        alias = packet.properties.first(Id.TOPIC_ALIAS)
        if alias is None:
            return packet
        if packet.topic:
            connection.aliases[alias] = packet.topic
        elif alias not in connection.aliases:
            raise Broken(f"PUBLISH: alias {alias} has no topic name yet", PROTOCOL_ERROR)
        return packet._replace(topic=connection.aliases[alias])

    def _acknowledged(self, connection: Connection, session: Session, packet: Packet) -> None:
        if packet.name == "PUBREL":
            known = packet.pid in session.incoming
            session.incoming.discard(packet.pid)
            answer = Packet("PUBCOMP", packet.pid, code=0 if known else 0x92)
            self._answer(connection, answer, packet)
            return
        message = session.outgoing.get(packet.pid)
        if packet.name == "PUBREC" and not message:
            self._answer(connection, Packet("PUBREL", packet.pid, code=0x92), packet)
            return
        due: tuple[str, ...] = ()
        if message:
            due = (
                ("PUBREC", "PUBCOMP")
                if message.released
                else (("PUBACK", "PUBREC")[message.packet.qos - 1],)
            )
        if message is None or packet.name not in due:
            if self.takes_strays:
                return
            raise Broken(
                f"{packet.name} {packet.pid} of what waits for no {packet.name}", PROTOCOL_ERROR
            )
        if packet.name == "PUBREC" and packet.code < 0x80:
            message.released = True
            self._answer(connection, Packet("PUBREL", packet.pid), packet)
            return
        del session.outgoing[packet.pid]
        self._pump(session)

    # Subscriptions

    def _subscribe(self, connection: Connection, session: Session, packet: Packet) -> None:
        most = connection.announced.first(Id.MAXIMUM_QOS, 2)
        codes = bytes(
            0x87 if self._forbids(each.topic) else min(each.qos, most) for each in packet.filters
        )
        answer, rule = self._ruled(Packet("SUBACK", packet.pid, codes=codes), packet)
        identifier = packet.properties.first(Id.SUBSCRIPTION_IDENTIFIER, 0)
        retained = []
        for each, code in zip(packet.filters, answer.codes, strict=True):
            if code >= 0x80:
                continue
            new = each.topic not in session.subscriptions
            granted = each._replace(qos=code)
            session.subscriptions[each.topic] = (granted, identifier)
            if each.handling == 0 or (each.handling == 1 and new):
                retained.append(granted)
        self._reply(connection, answer, rule)
        now = self._now()
        for granted in retained:
            for topic, (message, expires) in list(self._retained.items()):
                live = expires is None or expires > now
                shared = granted.topic.startswith(b"$share/")
                if live and not shared and matches(granted.topic, topic):
                    qos = min(message.qos, granted.qos)
                    self._queue(session, message, qos, 1, [identifier], expires)
        self._pump(session)

    def _hearers(self, topic: bytes) -> dict[bytes, list[tuple[Filter, int]]]:
        """The subscriptions that match a topic name, by client identifier, one of each group."""
        found: dict[bytes, list[tuple[Filter, int]]] = {}
        groups: dict[bytes, list[tuple[Session, tuple[Filter, int]]]] = {}
        for session in self.sessions.values():
            for each in session.subscriptions.values():
                name = each[0].topic
                if name.startswith(b"$share/"):
                    if matches(name.split(b"/", 2)[2], topic):
                        groups.setdefault(name, []).append((session, each))
                elif matches(name, topic):
                    found.setdefault(session.client_id, []).append(each)
        for name, members in groups.items():
            there = [member for member in members if member[0].connection] or members
            self._turns[name] = turn = self._turns.get(name, 0) + 1
            session, each = there[turn % len(there)]
            found.setdefault(session.client_id, []).append(each)
        return found

    def _pass_on(self, packet: Packet, origin: bytes | None) -> None:
        lasts = packet.properties.first(Id.MESSAGE_EXPIRY)
        expires = None if lasts is None else self._now() + lasts
        if packet.retain and packet.payload:
            self._retained[packet.topic] = (packet, expires)
        elif packet.retain:
            self._retained.pop(packet.topic, None)
        for client_id, subscriptions in self._hearers(packet.topic).items():
            session = self.sessions[client_id]
            heard = [
                each for each in subscriptions if not (each[0].no_local and client_id == origin)
            ]
            if heard:
                qos = min(packet.qos, max(each.qos for each, _identifier in heard))
                retain = packet.retain and max(each.as_published for each, _identifier in heard)
                identifiers = [identifier for _each, identifier in heard]
                self._queue(session, packet, qos, retain, identifiers, expires)
            self._pump(session)

    # Messages out

    def _queue(
        self,
        session: Session,
        packet: Packet,
        qos: int,
        retain: int,
        identifiers: list[int],
        expires: float | None,
    ) -> None:
        kept = [each for each in packet.properties if each.id in _FORWARDED]
        kept += [Property(Id.SUBSCRIPTION_IDENTIFIER, each) for each in identifiers if each]
        copy = Packet(
            "PUBLISH", 0, packet.topic, packet.payload, qos, retain, properties=Properties(kept)
        )
        message = _Message(copy, expires)
        if qos:
            session.queue.append(message)
        elif session.connection:
            self._deliver(session.connection, message)

    def _pump(self, session: Session) -> None:
        """Send what may be sent: what an earlier connection left, and then what waits."""
        connection = session.connection
        if connection is None:
            return
        flying = sum(message.counted for message in session.outgoing.values())
        for pid, message in list(session.outgoing.items()):
            if message.sent:
                continue
            if message.released:
                message.sent = True
                self._reply(connection, Packet("PUBREL", pid))
            elif flying < connection.receive_maximum:
                again = replace(message, packet=message.packet._replace(dup=1), expires=None)
                if self._deliver(connection, again):
                    message.sent = message.counted = True
                    flying += 1
                else:
                    del session.outgoing[pid]
        while session.queue and flying < connection.receive_maximum:
            message = session.queue.popleft()
            pid = next(
                pid
                for step in range(65535)
                if (pid := (session.last + step) % 65535 + 1) not in session.outgoing
            )
            message.packet = message.packet._replace(pid=pid)
            if self._deliver(connection, message):
                session.last = pid
                message.sent = message.counted = True
                session.outgoing[pid] = message
                flying += 1

    def _deliver(self, connection: Connection, message: _Message) -> bool:
        """Send a message, unless it has expired or is larger than the client takes."""
        packet = message.packet
        if message.expires is not None:
            left = message.expires - self._now()
            if left <= 0:
                return False
            more = [*packet.properties, Property(Id.MESSAGE_EXPIRY, int(left) + (left % 1 > 0))]
            packet = packet._replace(properties=Properties(more))
        if connection.largest is not None and len(build.encode(packet)) > connection.largest:
            return False
        self._reply(connection, packet)
        return True
