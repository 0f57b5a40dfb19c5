"""A connection on which a test writes packets itself, and reads what comes strictly."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from flatmq_tools.broker import Broker
from packets import build, strict
from packets.properties import NONE, Pairs
from packets.strict import Connect, Filter, Packet

ANSWER = 20.0  # seconds that an answer may take
CLOSED = Packet("")  # the end of the connection


class Wire:
    """A connection at a protocol level, which is closed at the end of the block."""

    def __init__(self, where: Broker, level: int = 5) -> None:
        self.level = level
        self.greeting = CLOSED  # the answer to CONNECT
        self._socket = socket.create_connection((where.host, where.port), timeout=ANSWER)
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

    def packet(self) -> Packet:
        """The next packet; CLOSED at the end of the connection."""
        while True:
            head = strict.header(self._data)
            if head and len(self._data) >= head.total:
                body, self._data = self._data[head.size : head.total], self._data[head.total :]
                return strict.packet(head.first, body, self.level)
            chunk = b""
            with contextlib.suppress(ConnectionError):
                chunk = self._socket.recv(65536)
            if not chunk:
                assert not self._data, "the connection ends within a packet"
                return CLOSED
            self._data += chunk

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

    def disconnect(self) -> None:
        """Send DISCONNECT; the broker must close the connection."""
        assert self.ask(build.ending("DISCONNECT")) == CLOSED

    def pid(self) -> int:
        """A packet identifier that was not used before."""
        self._pids += 1
        return self._pids

    def request(self, name: str, *filters: Filter) -> bytes:
        """The bytes of a SUBSCRIBE or UNSUBSCRIBE with the next packet identifier."""
        return build.encode(Packet(name, self.pid(), filters=filters), self.level)

    def subscribe(self, topic: bytes, qos: int = 0) -> None:
        """Subscribe; SUBACK has to be the next packet."""
        answer = self.ask(self.request("SUBSCRIBE", Filter(topic, qos)))
        assert (answer.name, answer.pid) == ("SUBACK", self._pids)

    def message(self, topic: bytes, payload: bytes = b"", **flags: int) -> bytes:
        """The bytes of a PUBLISH at QoS 1 with the next packet identifier."""
        more = NONE if self.level > 4 else None
        return build.publish(topic, payload, 1, self.pid(), more, **flags)

    def settle(self, message: Packet) -> None:
        """Acknowledge a message at QoS 1 that came."""
        self.send(build.ack("PUBACK", message.pid))

    def ping(self) -> list[Packet]:
        """The packets that come before the answer to a PINGREQ: all that were sent until then."""
        self.send(build.PINGREQ)
        packets = []
        while (packet := self.packet()).name not in ("PINGRESP", ""):
            packets.append(packet)
        assert packet.name == "PINGRESP", f"the connection ended after {packets}"
        return packets
