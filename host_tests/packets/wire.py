"""A connection on which a test writes packets itself, and reads what comes strictly."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from flatmq_tools.broker import Broker
from packets import build, strict
from packets.properties import NONE, Pairs, properties
from packets.strict import Connect, Filter, Packet

ANSWER = 20.0  # seconds that an answer may take
CLOSED = Packet("")  # the end of the connection


class Wire:
    """A connection at a protocol level, which is closed at the end of the block."""

    def __init__(self, where: Broker | tuple[str, int], level: int = 5) -> None:
        at = (where.host, where.port) if isinstance(where, Broker) else where
        self.level = level
        self.greeting = CLOSED  # the answer to CONNECT
        self._socket = socket.create_connection(at, timeout=ANSWER)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._pids = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, without DISCONNECT."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Write bytes. A connection that the broker has closed shows in what is read."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def raw(self) -> bytes:
        """The bytes of the next packet; b"" at the end of the connection."""
        while True:
            head = strict.header(self._data)
            if head and len(self._data) >= head.total:
                packet, self._data = self._data[: head.total], self._data[head.total :]
                return packet
            chunk = b""
            with contextlib.suppress(ConnectionError):
                chunk = self._socket.recv(65536)
            if not chunk:
                assert not self._data, "the connection ends within a packet"
                return b""
            self._data += chunk

    def packet(self) -> Packet:
        """The next packet; CLOSED at the end of the connection."""
        data = self.raw()
        if not data:
            return CLOSED
        ((first, body),), _rest = strict.split(data)
        return strict.packet(first, body, self.level)

    def ask(self, data: bytes) -> Packet:
        """Write bytes and read the next packet."""
        self.send(data)
        return self.packet()

    def connect(self, client_id: bytes = b"", more: Pairs = NONE, **fields: Any) -> Packet:
        """Send CONNECT, with properties, and return what comes: CONNACK or AUTH."""
        self.greeting = self.ask(
            build.connect(Connect(client_id, **fields), more, level=self.level)
        )
        return self.greeting

    def disconnect(self, code: int | None = None, more: Pairs | None = None) -> None:
        """Send DISCONNECT; the broker must close the connection."""
        assert self.ask(build.ending("DISCONNECT", code, more)) == CLOSED

    def pid(self) -> int:
        """A packet identifier that was not used before."""
        self._pids += 1
        return self._pids

    def request(self, name: str, *filters: Filter, more: Pairs = NONE) -> bytes:
        """The bytes of a SUBSCRIBE or UNSUBSCRIBE with the next packet identifier."""
        packet = Packet(name, self.pid(), filters=filters, properties=properties(more))
        return build.encode(packet, self.level)

    def subscribe(self, topic: bytes, qos: int = 0, more: Pairs = NONE, **options: int) -> int:
        """Subscribe and return the reason code; SUBACK has to be the next packet."""
        answer = self.ask(self.request("SUBSCRIBE", Filter(topic, qos, **options), more=more))
        assert (answer.name, answer.pid) == ("SUBACK", self._pids)
        (code,) = answer.codes
        return code

    def message(
        self, topic: bytes, payload: bytes = b"", qos: int = 1, more: Pairs = NONE, **flags: int
    ) -> bytes:
        """The bytes of a PUBLISH with the next packet identifier."""
        given = more if self.level > 4 else None
        return build.publish(topic, payload, qos, self.pid(), given, **flags)

    def publish(
        self, topic: bytes, payload: bytes = b"", qos: int = 1, more: Pairs = NONE, **flags: int
    ) -> Packet:
        """Publish at QoS 1 or 2, and return the next packet."""
        return self.ask(self.message(topic, payload, qos, more, **flags))

    def settle(self, message: Packet) -> None:
        """Acknowledge a message that came."""
        if message.qos == 1:
            self.send(build.ack("PUBACK", message.pid))
        elif message.qos == 2:
            assert self.ask(build.ack("PUBREC", message.pid)).name == "PUBREL"
            self.send(build.ack("PUBCOMP", message.pid))

    def ping(self) -> list[Packet]:
        """The packets that come before the answer to a PINGREQ: all that were sent until then."""
        self.send(build.PINGREQ)
        packets = []
        while (packet := self.packet()).name not in ("PINGRESP", ""):
            packets.append(packet)
        assert packet.name == "PINGRESP", f"the connection ended after {packets}"
        return packets
