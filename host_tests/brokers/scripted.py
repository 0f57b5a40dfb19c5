"""The scripted broker at the other end of a client, on a link without a network.

A test replaces single answers. Time passes only while the client waits, so that nothing depends on
the speed of the machine.
"""

from __future__ import annotations

from collections.abc import Callable

from brokers import core
from packets import build
from packets.strict import NAMES, Packet, Raw, from_client, split
from unit.fake_link import Bench, Clock, FakeStream

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)

POLL_MS = 2  # less than the pause before the next try, so that no poll sees two connections
TURNS = 50_000  # polls, after which a condition is given up

Rule = Callable[[Packet], bool]


def fail(stream: FakeStream, error: BaseException) -> None:
    """Have every call of a stream raise this from now on."""
    stream.raises = {"read": error, "write": error}


class Connection(core.Connection):
    """One connection: what the client sent on it."""

    def __init__(self, broker: ScriptedBroker, stream: FakeStream) -> None:
        super().__init__()
        self.stream = stream
        self.read = 0  # bytes of what was written
        self.packets: list[Raw] = []
        self._broker = broker

    def send(self, data: bytes) -> None:
        self.stream.incoming.append(data)

    def end(self) -> None:
        """Close it: the client finds out with its next call."""
        self.ended = True
        if self._broker.error is None:
            self.stream.ended = True
        else:
            fail(self.stream, self._broker.error)

    def of_type(self, kind: int) -> list[Raw]:
        return [p for p in self.packets if p.first >> 4 == kind]

    @property
    def published(self) -> list[Packet]:
        return [self.decoded(p) for p in self.of_type(PUBLISH)]

    def decoded(self, raw: Raw) -> Packet:
        """A packet of the client, whose version is that of its options."""
        return from_client(raw.first, raw.body, self._broker.level)


class ScriptedBroker:
    """A broker whose behaviour a test may set; what it does by itself is in `core`.

    refuses, ignores  functions of a PUBLISH: is the connection closed, is there no answer?
    forbidden         topic filters: a SUBSCRIBE with one of them closes the connection
    mute, ends        types of packets: not answered, and answered by closing
    error             what the client's calls raise when a connection is closed; None for an end
                      of file
    connack           the return code; None closes without CONNACK
    forgets, knows    whether no session is kept, and whether there is one from before

    `onward` are the messages it took, `filters` the topic filters subscribed to, `requests` all
    that were asked for. `reports` and `reasons` are the arguments of `on_dropped`. A packet
    that breaks a rule raises Broken.
    """

    def __init__(self, clock: Clock, **options) -> None:
        options.setdefault("retry_ms", 20)
        options.setdefault("retry_max_ms", 40)
        options.setdefault("clean_session", False)
        options.setdefault("on_dropped", self._dropped)
        self.reports: list[tuple[int, bytes]] = []
        self.reasons: list[str] = []
        self.level = options.get("version", 4)
        self.core = core.Core(clock=lambda: clock.now / 1000)
        self.core.takes_strays = True  # tests put messages into the stream themselves
        self.bench = Bench(clock, **options)
        self.client = self.bench.client
        self.forgets = self.knows = False
        self.refuses: Rule = lambda publish: False
        self.ignores: Rule = lambda publish: False
        self.forbidden: set[bytes] = set()
        self.mute: set[int] = set()
        self.ends: set[int] = set()
        self.error: Exception | None = None
        self.connack: int | None = 0
        self.connections: list[Connection] = []
        self.requests: list[tuple[int, bytes]] = []  # (type, filter) of each request

    @property
    def onward(self) -> list[Packet]:
        """The messages that it took, in their order."""
        return self.core.onward

    @property
    def filters(self) -> dict[bytes, int]:
        """The topic filters that are subscribed to, and the QoS of each."""
        sessions = self.core.sessions
        return {
            f.topic: f.qos for name in sessions for f, _ in sessions[name].subscriptions.values()
        }

    def _dropped(self, packet_id: int, topic: bytes, reason: str) -> None:
        self.reports.append((packet_id, bytes(topic)))
        self.reasons.append(reason)

    # Driving

    def until(self, condition: Callable[[], object]) -> None:
        """Poll the client and answer it until the condition holds."""
        self.client.start()
        for _ in range(TURNS):
            self.serve()
            if condition():
                return
            self.client.poll(POLL_MS)
        sent = [[NAMES[p.first >> 4] for p in c.packets] for c in self.connections[-5:]]
        raise AssertionError(f"never: {self.client.state}, {self.client.error}, {sent}")

    def turns(self, count: int = 20) -> None:
        """Poll the client and answer it that many times."""
        for _ in range(count):
            self.serve()
            self.client.poll(POLL_MS)
        self.serve()

    def online(self) -> None:
        """Have the client online, and everything that it sends at once answered."""
        self.until(lambda: self.client.connected)
        self.turns()

    def losses(self, count: int) -> None:
        """Go on until that many more connections were lost or could not be made."""
        wanted = self.client.stats.losses + count
        self.until(lambda: self.client.stats.losses >= wanted)

    def settled(self) -> None:
        """Go on until nothing is pending and the client is online."""
        self.until(lambda: self.client.pending == 0 and self.client.connected)

    def close(self) -> None:
        self.connections[-1].end()

    # Answering

    def serve(self) -> None:
        """Answer what the client has written since the last time."""
        for stream in self.bench.link.made[len(self.connections) :]:
            for gone in list(self.core.connections):
                self.core.closed(gone)
            self.connections.append(Connection(self, stream))
            self.core.connections.append(self.connections[-1])
        if not self.connections or self.connections[-1].ended:
            return
        connection = self.connections[-1]
        data = connection.rest + bytes(connection.stream.written[connection.read :])
        connection.read = len(connection.stream.written)
        packets, connection.rest = split(data)
        for packet in packets:
            connection.packets.append(packet)  # that were sent together, though one is refused
            if not connection.ended:
                self._handle(connection, packet)

    def _handle(self, connection: Connection, raw: Raw) -> None:
        packet = connection.decoded(raw)
        kind = raw.first >> 4
        if kind in self.ends:
            connection.end()
        elif kind in self.mute or (kind == PUBLISH and self.ignores(packet)):
            return
        elif self._closes_on(kind, packet):
            connection.end()
        elif kind == CONNECT and self.connack:
            connection.send(build.connack(self.connack, 0, () if self.level == 5 else None))
        else:
            if packet.connect:
                self._remember(packet.connect.client_id)
            self.core.packet(connection, raw.first, raw.body)

    def _closes_on(self, kind: int, packet: Packet) -> bool:
        self.requests += [(kind, each.topic) for each in packet.filters]
        asked = {each.topic for each in packet.filters}
        return (
            (kind == CONNECT and self.connack is None)
            or (kind == PUBLISH and self.refuses(packet))
            or (kind == SUBSCRIBE and not asked.isdisjoint(self.forbidden))
        )

    def _remember(self, client_id: bytes) -> None:
        """Have a session for a client that connects, or none."""
        if self.forgets:
            self.core.forget(client_id)
        elif self.knows:
            self.core.sessions.setdefault(client_id, core.Session(client_id))
