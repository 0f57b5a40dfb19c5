"""A scripted broker at the other end of a client, on a link without a network.

It answers as a broker does; a test replaces single answers. Time passes only while the client
waits, so that nothing depends on the speed of the machine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import peer
from peer import Packet, Publish
from unit.fake_link import Bench, Clock, FakeStream

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)

POLL_MS = 2  # less than the pause before the next try, so that no poll sees two connections
TURNS = 50_000  # polls, after which a condition is given up

Rule = Callable[[Publish], bool]


def fail(stream: FakeStream, error: BaseException) -> None:
    """Have every call of a stream raise this from now on."""
    stream.raises = {"read": error, "write": error}


@dataclass
class Connection:
    """One connection: what the client sent on it."""

    stream: FakeStream
    read: int = 0  # bytes of what was written
    rest: bytes = b""  # of a packet that is not yet whole
    ended: bool = False
    packets: list[Packet] = field(default_factory=list)

    def of_type(self, kind: int) -> list[Packet]:
        """The packets of one type."""
        return [p for p in self.packets if p.first >> 4 == kind]

    @property
    def published(self) -> list[Publish]:
        """The PUBLISH packets."""
        return [peer.take_apart(p) for p in self.of_type(PUBLISH)]


class ScriptedBroker:
    """A broker whose behaviour a test may set.

    refuses, ignores        functions of a PUBLISH: is the connection closed, is there no answer?
    forbidden               topic filters: a SUBSCRIBE with one of them closes the connection
    mute, ends              types of packets: not answered, and answered by closing
    sends_puback_for_qos_2  as RabbitMQ does
    error                   what the client's calls raise when a connection is closed; None for an
                            end of file
    connack                 the return code; None closes without CONNACK
    forgets, knows          whether no session is kept, and whether there is one from before

    `onward` are the messages it took, `filters` the topic filters subscribed to, `requests` all
    that were asked for.
    """

    def __init__(self, clock: Clock, *, forgets: bool = False, **options) -> None:
        options.setdefault("retry_ms", 20)
        options.setdefault("retry_max_ms", 40)
        options.setdefault("clean_session", False)
        self.bench = Bench(clock, **options)
        self.client = self.bench.client
        self.forgets = forgets
        self.refuses: Rule = lambda publish: False
        self.ignores: Rule = lambda publish: False
        self.forbidden: set[bytes] = set()
        self.mute: set[int] = set()
        self.ends: set[int] = set()
        self.sends_puback_for_qos_2 = False
        self.error: Exception | None = None
        self.connack: int | None = 0
        self.connections: list[Connection] = []
        self.onward: list[Publish] = []
        self.filters: dict[bytes, int] = {}
        self.requests: list[tuple[int, bytes]] = []  # (type, filter) of each request
        self.knows = False
        self._unreleased: set[int] = set()

    # Driving

    def until(self, condition: Callable[[], object]) -> None:
        """Poll the client and answer it until the condition holds."""
        self.client.start()
        for _ in range(TURNS):
            self.serve()
            if condition():
                return
            self.client.poll(POLL_MS)
        raise AssertionError(f"never: {self.client.state}, {self.client.error}, {self.summary()}")

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

    def summary(self) -> list[list[str]]:
        """The first bytes of what was sent on the last connections."""
        return [[f"{p.first:#x}" for p in c.packets] for c in self.connections[-5:]]

    # Closing

    def close(self) -> None:
        """Close the connection: the client finds out with its next call."""
        connection = self.connections[-1]
        connection.ended = True
        if self.error is None:
            connection.stream.ended = True
        else:
            fail(connection.stream, self.error)

    # Answering

    def serve(self) -> None:
        """Answer what the client has written since the last time."""
        for stream in self.bench.link.made[len(self.connections) :]:
            self.connections.append(Connection(stream))
        if not self.connections or self.connections[-1].ended:
            return
        connection = self.connections[-1]
        data = connection.rest + bytes(connection.stream.written[connection.read :])
        connection.read = len(connection.stream.written)
        packets, connection.rest = peer.split(data)
        for packet in packets:
            connection.packets.append(packet)  # that were sent together, though one is refused
            if not connection.ended:
                self._handle(connection, packet)

    def _handle(self, connection: Connection, packet: Packet) -> None:
        kind = packet.first >> 4
        if kind in self.ends:
            self.close()
        elif kind not in self.mute:
            self._answer(connection, kind, packet)

    def _answer(self, connection: Connection, kind: int, packet: Packet) -> None:
        answer = b""
        if kind == CONNECT:
            answer = self._connect(packet)
        elif kind == PUBLISH:
            answer = self._publish(peer.take_apart(packet))
        elif kind == PUBREL:
            self._unreleased.discard(packet.pid)
            answer = peer.pubcomp(packet.pid)
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            answer = self._request(kind, packet)
        elif kind == PINGREQ:
            answer = peer.PINGRESP
        elif kind == DISCONNECT:
            self.close()
        if answer:
            connection.stream.incoming.append(answer)

    def _connect(self, packet: Packet) -> bytes:
        if self.connack is None:
            self.close()
            return b""
        (n,) = struct.unpack_from(">H", packet.body)
        clean = bool(packet.body[n + 3] & 2)
        present = self.knows and not clean and not self.forgets and not self.connack
        if self.connack:
            return peer.connack(self.connack)
        if not present:
            self.filters.clear()
            self._unreleased.clear()
        self.knows = True
        return peer.connack(present=present)

    def _publish(self, message: Publish) -> bytes:
        if self.refuses(message):
            self.close()
            return b""
        if self.ignores(message):
            return b""
        if message.qos == 2 and not self.sends_puback_for_qos_2:
            if message.pid not in self._unreleased:
                self._unreleased.add(message.pid)
                self.onward.append(message)
            return peer.pubrec(message.pid)
        self.onward.append(message)
        return peer.puback(message.pid) if message.qos else b""

    def _request(self, kind: int, packet: Packet) -> bytes:
        codes = []
        rest = packet.body[2:]
        while rest:
            (n,) = struct.unpack_from(">H", rest)
            topic, rest = rest[2 : 2 + n], rest[2 + n :]
            self.requests.append((kind, topic))
            if kind == SUBSCRIBE and topic in self.forbidden:
                self.close()
                return b""
            if kind == SUBSCRIBE:
                codes.append(rest[0])
                self.filters[topic] = rest[0]
                rest = rest[1:]
            else:
                self.filters.pop(topic, None)
        if kind == SUBSCRIBE:
            return peer.suback(packet.pid, *codes)
        return peer.unsuback(packet.pid)
