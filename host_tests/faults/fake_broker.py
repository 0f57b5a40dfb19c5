"""A broker that keeps the standard unless a test changes that, even when it is killed.

It also holds the client to the standard: what a client must not send stands in `complaints`.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from dataclasses import dataclass, field

import peer
from loopback_broker import Connection, LoopbackBroker
from peer import Packet, Publish

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)
EVERY_TYPE = frozenset(range(16))

FORBIDDEN = b"forbidden"  # a topic filter that ends so is refused, and a topic name by closing


@dataclass
class _Sent:
    """A message at QoS 1 or 2 that the client has not acknowledged."""

    message: Publish
    released: bool = False  # PUBREC was there, PUBREL is on its way


@dataclass
class _Session:
    """The state of a client while it is away."""

    filters: dict[bytes, int] = field(default_factory=dict)
    incoming: set[int] = field(default_factory=set)  # QoS 2 identifiers that are not released
    outgoing: dict[int, _Sent] = field(default_factory=dict)  # in the order of sending
    last: int = 0  # packet identifier


class _Connection(Connection):
    """A client's connection; `session` is None before CONNECT."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.session: _Session | None = None


class FakeBroker(LoopbackBroker[_Connection]):
    """A broker whose `onward` are the messages that it passed on, in order.

    A QoS 2 message is there at its first PUBLISH. Topic filters are names, or end in "#".
    """

    kind = "fake"

    def __init__(self) -> None:
        super().__init__(_Connection)
        self.onward: list[Publish] = []
        self.complaints: list[str] = []
        self._closing: frozenset[int] = frozenset()
        self._downgrades = False
        self._connacks: deque[tuple[bytes, bool]] = deque()
        self._sessions: dict[bytes, _Session] = {}
        self.restart()

    # What a scenario may have it do

    def publish(self, topic: bytes, payload: bytes, qos: int) -> None:
        """Send a message to whoever subscribed to it, now or when they are back."""
        with self.lock:
            for client_id, session in self._sessions.items():
                granted = [q for f, q in session.filters.items() if _matches(f, topic)]
                if granted:
                    self._deliver(client_id, session, topic, payload, min(qos, max(granted)))

    def forget(self, client_id: bytes) -> None:
        """Forget the session of a client; its connection ends."""
        with self.lock:
            self._sessions.pop(client_id, None)
            for connection in self._of(client_id):
                connection.end()

    def close_on(self, types: frozenset[int]) -> None:
        """End a connection on which a packet of these types comes, from now on."""
        with self.lock:
            self._closing = types

    def downgrade(self, on: bool) -> None:
        """Take messages at QoS 2 as ones at QoS 1, as some brokers do, from now on."""
        with self.lock:
            self._downgrades = on

    def answer_connect(self, answer: bytes, end: bool) -> None:
        """Answer the next CONNECT with these bytes instead of a CONNACK, and nothing after it.

        Where `end` is set the connection ends.
        """
        with self.lock:
            self._connacks.append((answer, end))

    # What its connections do

    def taken(self, connection: _Connection, data: bytes) -> bytes:
        packets, rest = peer.split(data)
        for packet in packets:
            if not connection.mute and not connection.ended:
                self._handle(connection, packet)
        return rest

    def _of(self, client_id: bytes) -> list[_Connection]:
        return [c for c in self.connections if c.client_id == client_id]

    def _handle(self, connection: _Connection, packet: Packet) -> None:
        kind = packet.first >> 4
        if (kind == CONNECT) != (connection.session is None):
            self._complain(connection, "CONNECT is not first, or the second")
        elif kind == CONNECT:
            self._connect(connection, packet)
        elif kind in self._closing:
            connection.end()
        elif kind == PUBLISH:
            self._take(connection, peer.take_apart(packet))
        elif packet.first & 15 != (2 if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0):
            self._complain(connection, f"flags of packet {packet.first:#x}")
        elif kind == PINGREQ:
            self.answer(connection, peer.PINGRESP)
        elif kind == DISCONNECT:
            connection.end()
        else:
            self._acknowledged(connection, kind, packet)

    def _complain(self, connection: _Connection, what: str) -> None:
        self.complaints.append(what)
        connection.end()

    def _connect(self, connection: _Connection, packet: Packet) -> None:
        (n,) = struct.unpack_from(">H", packet.body)
        clean = packet.body[n + 3] & 2
        (size,) = struct.unpack_from(">H", packet.body, n + 6)
        client_id = packet.body[n + 8 : n + 8 + size]
        if self._connacks:
            answer, end = self._connacks.popleft()
            connection.mute = True
            connection.send(answer)
            if end:
                connection.end()
            return
        for other in self._of(client_id):
            other.end()
        present = client_id in self._sessions and not clean
        if not present:
            self._sessions[client_id] = _Session()
        connection.client_id = client_id
        connection.session = session = self._sessions[client_id]
        self.answer(connection, peer.connack(present=present))
        for pid, sent in session.outgoing.items():
            self.answer(connection, _packet(pid, sent, dup=True))

    def _take(self, connection: _Connection, message: Publish) -> None:
        session = connection.session
        assert session is not None
        if message.qos and not message.pid:
            self._complain(connection, "packet identifier 0")
            return
        if message.dup and not message.qos:
            self._complain(connection, "DUP at QoS 0")
            return
        if message.topic.endswith(FORBIDDEN):
            connection.end()
            return
        known = message.qos == 2 and message.pid in session.incoming
        if known and not message.dup:
            self._complain(connection, "sent again without DUP")
            return
        if not known:
            self.onward.append(message)
            self.publish(message.topic, message.payload, message.qos)
        if message.qos == 2 and not self._downgrades:
            session.incoming.add(message.pid)
            self.answer(connection, peer.pubrec(message.pid))
        elif message.qos:
            self.answer(connection, peer.puback(message.pid))

    def _acknowledged(self, connection: _Connection, kind: int, packet: Packet) -> None:
        session = connection.session
        assert session is not None
        pid = packet.pid
        sent = session.outgoing.get(pid)
        if kind == PUBREL:
            session.incoming.discard(pid)
            self.answer(connection, peer.pubcomp(pid))
        elif kind == SUBSCRIBE:
            self.answer(connection, self._subscribe(session, packet))
        elif kind == UNSUBSCRIBE:
            self.answer(connection, peer.unsuback(pid))
        elif kind == PUBREC and sent and sent.message.qos == 2:
            sent.released = True
            self.answer(connection, peer.pubrel(pid))
        elif sent and (kind == PUBCOMP or (kind == PUBACK and sent.message.qos == 1)):
            del session.outgoing[pid]

    def _subscribe(self, session: _Session, packet: Packet) -> bytes:
        codes = []
        rest = packet.body[2:]
        while rest:
            (n,) = struct.unpack_from(">H", rest)
            topic, qos, rest = rest[2 : 2 + n], rest[2 + n], rest[3 + n :]
            if topic.endswith(FORBIDDEN):
                codes.append(0x80)
            else:
                session.filters[topic] = qos
                codes.append(qos)
        return peer.suback(packet.pid, *codes)

    def _deliver(
        self, client_id: bytes, session: _Session, topic: bytes, payload: bytes, qos: int
    ) -> None:
        pid = 0
        if qos:
            pid = session.last = session.last % 65535 + 1
        sent = _Sent(Publish(False, qos, False, topic, pid, payload))
        if qos:
            session.outgoing[pid] = sent
        for connection in self._of(client_id):
            self.answer(connection, _packet(pid, sent))


def _matches(topic_filter: bytes, topic: bytes) -> bool:
    return topic_filter == topic or (
        topic_filter.endswith(b"#") and topic.startswith(topic_filter[:-1])
    )


def _packet(pid: int, sent: _Sent, dup: bool = False) -> bytes:
    if sent.released:
        return peer.pubrel(pid)
    m = sent.message
    return peer.publish(m.topic, m.payload, m.qos, pid, dup=dup and m.qos > 0)
