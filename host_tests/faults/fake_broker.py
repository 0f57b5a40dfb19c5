"""A broker that keeps the standard until it is told not to. It forgets nothing when it is killed.

It also holds the client to the standard: what a client must not send stands in `complaints`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field

import peer
from flatmq_tools.broker import LOOPBACK, Broker
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
    """What is kept of a client while it is away."""

    filters: dict[bytes, int] = field(default_factory=dict)
    incoming: set[int] = field(default_factory=set)  # QoS 2 identifiers that are not released
    outgoing: dict[int, _Sent] = field(default_factory=dict)  # in the order of sending
    last: int = 0  # packet identifier


class FakeBroker(Broker):
    """`onward` are the messages that it passed on, in their order, a QoS 2 message at the first
    PUBLISH. Topic filters are names, or end in "#".

    One thread reads, the oldest connection first. With one for each, the CONNECT of a connection
    that is gone already could be taken after that of the next one, and end it as its successor.
    """

    kind = "fake"

    def __init__(self, port: int) -> None:
        super().__init__(LOOPBACK, port)
        self.onward: list[Publish] = []
        self.complaints: list[str] = []
        self._lock = threading.RLock()
        self._withheld: frozenset[int] = frozenset()
        self._kept_back: list[tuple[_Connection, bytes]] = []
        self._closing: frozenset[int] = frozenset()
        self._downgrades = False
        self._connacks: deque[tuple[bytes, bool]] = deque()
        self._sessions: dict[bytes, _Session] = {}
        self._connections: list[_Connection] = []
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self.restart()

    def restart(self) -> None:
        self.kill()
        self._listener = socket.create_server((LOOPBACK, self.port), backlog=64)
        self._listener.setblocking(False)
        self._thread = threading.Thread(target=self._run, args=(self._listener,), daemon=True)
        self._thread.start()

    def kill(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
            self._kept_back.clear()
            for connection in self._connections:
                connection.end()
        if listener and self._thread:
            # Closing would not wake the thread, which closes it.
            listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()

    def stop(self) -> None:
        self.kill()

    # What a scenario may have it do

    def publish(self, topic: bytes, payload: bytes, qos: int) -> None:
        """Sends a message to whoever subscribed to it, now or when they are back."""
        with self._lock:
            for client_id, session in self._sessions.items():
                granted = [q for f, q in session.filters.items() if _matches(f, topic)]
                if granted:
                    self._deliver(client_id, session, topic, payload, min(qos, max(granted)))

    def forget(self, client_id: bytes) -> None:
        """Forgets the session of a client; its connection ends."""
        with self._lock:
            self._sessions.pop(client_id, None)
            for connection in self._of(client_id):
                connection.end()

    def withhold(self, types: frozenset[int]) -> None:
        """Keeps back packets of these types from now on."""
        with self._lock:
            self._withheld = types

    def keeps_back(self) -> bool:
        """Whether there is a packet that was kept back."""
        with self._lock:
            return bool(self._kept_back)

    def release(self) -> None:
        """Sends what was kept back, and keeps back nothing any more."""
        with self._lock:
            self._withheld = frozenset()
            kept_back, self._kept_back = self._kept_back, []
            for connection, data in kept_back:
                connection.send(data)

    def close_on(self, types: frozenset[int]) -> None:
        """Ends a connection on which a packet of these types comes, from now on."""
        with self._lock:
            self._closing = types

    def downgrade(self, on: bool) -> None:
        """Takes messages at QoS 2 as ones at QoS 1, as some brokers do, from now on."""
        with self._lock:
            self._downgrades = on

    def answer_connect(self, answer: bytes, end: bool) -> None:
        """The next CONNECT is answered with these bytes in place of a CONNACK, and nothing is
        answered after it; where `end` is set the connection ends."""
        with self._lock:
            self._connacks.append((answer, end))

    def send(self, data: bytes) -> None:
        """Sends these bytes to every client that is connected."""
        with self._lock:
            for connection in self._connections:
                connection.send(data)

    def end(self) -> None:
        """Ends every connection, in order."""
        with self._lock:
            for connection in self._connections:
                connection.end()

    # What its connections do

    def _run(self, listener: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while selector.get_map():
                ready = {key.fileobj for key, _events in selector.select()}
                with self._lock:
                    for connection in [c for c in self._connections if c.sock in ready]:
                        if not self._serve(connection):
                            selector.unregister(connection.sock)
                            self._connections.remove(connection)
                            connection.sock.close()
                    if listener in ready and not self._accept(listener, selector):
                        selector.unregister(listener)
                        listener.close()

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> bool:
        """Whether it still listens."""
        if self._listener is not listener:
            return False
        with contextlib.suppress(OSError):  # the peer has gone again
            sock, _address = listener.accept()
            sock.setblocking(True)
            self._connections.append(_Connection(self, sock))
            selector.register(sock, selectors.EVENT_READ)
        return True

    def _serve(self, connection: _Connection) -> bool:
        """Handles what is there to read. Whether the connection goes on."""
        data = b""
        with contextlib.suppress(OSError):
            data = connection.sock.recv(65536)
        if not data or connection.ended:
            return False
        packets, connection.rest = peer.split(connection.rest + data)
        for packet in packets:
            if not connection.mute and not connection.ended:
                self._handle(connection, packet)
        return True

    def _of(self, client_id: bytes) -> list[_Connection]:
        return [c for c in self._connections if c.client_id == client_id]

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
            self._answer(connection, peer.PINGRESP)
        elif kind == DISCONNECT:
            connection.end()
        else:
            self._acknowledged(connection, kind, packet)

    def _complain(self, connection: _Connection, what: str) -> None:
        self.complaints.append(what)
        connection.end()

    def _answer(self, connection: _Connection, data: bytes) -> None:
        if data[0] >> 4 in self._withheld:
            self._kept_back.append((connection, data))
        else:
            connection.send(data)

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
        self._answer(connection, peer.connack(present=present))
        for pid, sent in session.outgoing.items():
            self._answer(connection, _packet(pid, sent, dup=True))

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
            self._answer(connection, peer.pubrec(message.pid))
        elif message.qos:
            self._answer(connection, peer.puback(message.pid))

    def _acknowledged(self, connection: _Connection, kind: int, packet: Packet) -> None:
        session = connection.session
        assert session is not None
        pid = packet.pid
        sent = session.outgoing.get(pid)
        if kind == PUBREL:
            session.incoming.discard(pid)
            self._answer(connection, peer.pubcomp(pid))
        elif kind == SUBSCRIBE:
            self._answer(connection, self._subscribe(session, packet))
        elif kind == UNSUBSCRIBE:
            self._answer(connection, peer.unsuback(pid))
        elif kind == PUBREC and sent and sent.message.qos == 2:
            sent.released = True
            self._answer(connection, peer.pubrel(pid))
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
            self._answer(connection, _packet(pid, sent))


class _Connection:
    """A client's connection; `session` is None before CONNECT."""

    def __init__(self, broker: FakeBroker, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.client_id: bytes | None = None
        self.session: _Session | None = None
        self.rest = b""  # of a packet that is cut
        self.mute = False  # what comes in is swallowed
        self.ended = False

    def send(self, data: bytes) -> None:
        """Sends, unless the client has gone."""
        try:
            self.sock.sendall(data)
        except OSError:
            self.end()

    def end(self) -> None:
        """Has the thread that reads close it."""
        self.ended = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


def _matches(topic_filter: bytes, topic: bytes) -> bool:
    return topic_filter == topic or (
        topic_filter.endswith(b"#") and topic.startswith(topic_filter[:-1])
    )


def _packet(pid: int, sent: _Sent, dup: bool = False) -> bytes:
    if sent.released:
        return peer.pubrel(pid)
    m = sent.message
    return peer.publish(m.topic, m.payload, m.qos, pid, dup=dup and m.qos > 0)
