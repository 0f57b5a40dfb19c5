"""A small broker of MQTT 3.1.1 or 5 with one client, whose sessions and answers a test disturbs.

It knows only what reaches it: `judge` holds what the client writes to the standard.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import peer
from packets import build
from packets.strict import Packet, from_client, split
from unit.both_versions import at_5

MOST = 100  # QoS 1 and 2 messages in flight


@dataclass
class Outgoing:
    """A message on its way to the client."""

    number: int
    topic: bytes
    payload: bytes
    qos: int
    pid: int = 0
    released: bool = False  # PUBREC has come
    sent: bool = False  # on this connection
    exact: bool = True  # the session was never in doubt while it was in flight
    lost: bool = False  # with its session

    def encoded(self, dup: bool) -> bytes:
        """Return its PUBLISH."""
        return peer.publish(self.topic, self.payload, self.qos, self.pid, dup=dup)


@dataclass
class Session:
    """The state of the client while it is away."""

    subscriptions: dict[bytes, int] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)  # QoS 2, not released
    outgoing: dict[int, Outgoing] = field(default_factory=dict)
    queue: deque[Outgoing] = field(default_factory=deque)
    last: int = 0  # packet identifier


class Broker:
    """Takes the bytes that reach it, and answers through `send`, a function of a packet.

    `taken` are the payloads of the messages that it took, in order; `messages` those that it was
    given for the client. It closes the connection on packets for which `refuses` is true.
    """

    def __init__(self, send: Callable[[Packet, bytes], None], level: int) -> None:
        self.level = level
        self.session: Session | None = None
        self.taken: list[bytes] = []
        self.counts: Counter[bytes] = Counter()
        self.messages: list[Outgoing] = []
        self.connected = False
        self.refuses: Callable[[Packet], bool] = lambda packet: False
        self.on_refusal: Callable[[], None] = lambda: None
        self._send = send
        self._rest = b""

    # What a test has it do

    def publish(self, topic: bytes, payload: bytes, qos: int) -> Outgoing | None:
        """Send a message to the client if it has subscribed to the topic, now or later."""
        found = self.session and [
            granted
            for name, granted in self.session.subscriptions.items()
            if topic.startswith(name.rstrip(b"+#"))
        ]
        if not found:
            return None
        message = Outgoing(len(self.messages), topic, payload, min(qos, *found, 2))
        if message.qos:
            self.session.queue.append(message)
        elif self.connected:
            self._answer("PUBLISH", message.encoded(False))
        else:
            return None
        self.messages.append(message)
        self._pump()
        return message

    def forget(self) -> None:
        """Lose the session, while the client is away."""
        assert not self.connected
        if self.session:
            for message in [*self.session.outgoing.values(), *self.session.queue]:
                message.lost = True
        self.session = None

    def doubt(self) -> None:
        """Note that the client cannot know the state of the session: it may get duplicates."""
        for message in self.unsettled:
            message.exact = False

    @property
    def unsettled(self) -> list[Outgoing]:
        """The messages to the client that are not settled."""
        return [*self.session.outgoing.values(), *self.session.queue] if self.session else []

    # What the network calls

    def opened(self) -> None:
        """Begin with a connection."""
        self._rest = b""
        self.connected = False

    def closed(self) -> None:
        """Handle the end of the connection."""
        self.connected = False

    def received(self, data: bytes) -> None:
        """Handle bytes of the client."""
        packets, self._rest = split(self._rest + data)
        for raw in packets:
            self._handle(from_client(raw.first, raw.body, self.level))

    def _answer(self, name: str, data: bytes, pid: int = 0, filters: int = 1) -> None:
        if self.level == 5:
            data = at_5(split(data)[0][0], filters)
        self._send(Packet(name, pid), data)

    def _handle(self, packet: Packet) -> None:
        name, pid, session = packet.name, packet.pid, self.session
        if name == "CONNECT":
            self._connect(bool(packet.connect.clean_start))
            return
        if not self.connected or not session:
            return
        if self.refuses(packet):
            self.on_refusal()
            return
        if name == "PUBLISH":
            self._take(packet, session)
        elif name == "PUBREL":
            session.received.discard(pid)
            self._answer("PUBCOMP", peer.pubcomp(pid), pid)
        elif name == "PUBREC":
            if pid in session.outgoing:
                session.outgoing[pid].released = True
            self._answer("PUBREL", peer.pubrel(pid), pid)
        elif name in ("PUBACK", "PUBCOMP"):
            session.outgoing.pop(pid, None)
            self._pump()
        elif name == "SUBSCRIBE":
            session.subscriptions.update((each.topic, each.qos) for each in packet.filters)
            self._answer("SUBACK", peer.suback(pid, *(each.qos for each in packet.filters)), pid)
        elif name == "UNSUBSCRIBE":
            for each in packet.filters:
                session.subscriptions.pop(each.topic, None)
            self._answer("UNSUBACK", peer.unsuback(pid), pid, len(packet.filters))
        elif name == "PINGREQ":
            self._answer("PINGRESP", build.PINGRESP)
        else:
            assert name == "DISCONNECT"

    def _connect(self, clean: bool) -> None:
        if clean:
            self.forget()
        new = self.session is None
        if new:
            self.session = Session()
        self.connected = True
        self._answer("CONNACK", peer.connack(present=not new))
        for message in self.session.outgoing.values():
            message.sent = False
        self._pump()

    def _take(self, packet: Packet, session: Session) -> None:
        known = packet.qos == 2 and packet.pid in session.received
        if not known:
            self.taken.append(packet.payload)
            self.counts[packet.payload] += 1
        if packet.qos == 2:
            session.received.add(packet.pid)
            self._answer("PUBREC", peer.pubrec(packet.pid), packet.pid)
        elif packet.qos:
            self._answer("PUBACK", peer.puback(packet.pid), packet.pid)

    def _pump(self) -> None:
        """Send what is in flight again, and then what waits."""
        session = self.session
        if not self.connected or not session:
            return
        for pid, message in session.outgoing.items():
            if message.sent:
                continue
            message.sent = True
            if message.released:
                self._answer("PUBREL", peer.pubrel(pid), pid)
            else:
                self._answer("PUBLISH", message.encoded(True), pid)
        while session.queue and len(session.outgoing) < MOST:
            message = session.queue.popleft()
            while not session.last or session.last in session.outgoing:
                session.last = session.last % 65535 + 1
            message.pid = session.last
            session.last = session.last % 65535 + 1
            message.sent = True
            session.outgoing[message.pid] = message
            self._answer("PUBLISH", message.encoded(False), message.pid)
