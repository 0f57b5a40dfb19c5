"""The rows of expectations.py, held against the brokers with clients that are not flatmq.

paho-mqtt speaks for the common cases, bytes on a socket for those that no client sends.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from paho.mqtt import client as paho

import peer
from conftest import BROKERS, USERS, SharedBrokers, kinds
from expectations import EXPECTED
from flatmq_tools import broker as brokers
from flatmq_tools import ports
from flatmq_tools.broker import Broker

ANSWER = 15.0  # seconds that an answer may take


def _text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def _connect(
    name: str,
    *,
    flags: int = 2,
    level: int = 4,
    protocol: str = "MQTT",
    keepalive: int = 60,
    more: bytes = b"",
) -> bytes:
    numbers = struct.pack(">BBH", level, flags, keepalive)
    body = _text(protocol) + numbers + _text(name) + more
    return bytes([0x10, len(body)]) + body


class Wire:
    """A connection on which the test writes the bytes itself."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), timeout=ANSWER)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def packet(self) -> bytes:
        """The next packet (of up to 127 bytes of body), b"" at the end of the connection."""
        with contextlib.suppress(ConnectionError):
            head = self._exactly(2)
            return head + self._exactly(head[1]) if head else b""
        return b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = self._socket.recv(size - len(data))
            if not chunk:
                return b""
            data += chunk
        return data

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class Peer:
    """A paho client; `messages` holds (topic, payload, qos, retain) as they come."""

    def __init__(self, broker: Broker, name: str, **options: Any) -> None:
        self.messages: queue.Queue[tuple[str, bytes, int, bool]] = queue.Queue()
        self._granted: queue.Queue[list[int]] = queue.Queue()
        connected: queue.Queue[bool] = queue.Queue()
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=paho.MQTTv311, **options
        )
        self._client.on_connect = lambda *args: connected.put(args[2].session_present)
        self._client.on_subscribe = lambda *args: self._granted.put([c.value for c in args[3]])
        self._client.on_message = lambda _client, _data, message: self.messages.put(
            (message.topic, bytes(message.payload), message.qos, message.retain)
        )
        self._client.connect(broker.host, broker.port)
        self._client.loop_start()
        self.session_present = connected.get(timeout=ANSWER)

    def subscribe(self, *filters: tuple[str, int]) -> list[int]:
        """One SUBSCRIBE; returns the codes of its SUBACK."""
        self._client.subscribe(list(filters))
        return self._granted.get(timeout=ANSWER)

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish and wait for the acknowledgement."""
        self._client.publish(topic, payload, qos, retain).wait_for_publish(ANSWER)

    def get(self) -> tuple[str, bytes, int, bool]:
        """The next message."""
        return self.messages.get(timeout=ANSWER)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture(params=kinds("shared"))
def broker(request: pytest.FixtureRequest, shared_brokers: SharedBrokers) -> Broker:
    return shared_brokers.get(request.param, "shared")


@pytest.fixture
def expected(broker: Broker) -> dict[str, Any]:
    return EXPECTED[broker.kind]


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A connection at level 4 whose CONNACK is read."""
    with Wire(broker) as connection:
        connection.send(_connect("wire"))
        assert connection.packet() == b"\x20\x02\x00\x00"
        yield connection


def _connack(broker: Broker, connect: bytes) -> int | None:
    with Wire(broker) as connection:
        connection.send(connect)
        answer = connection.packet()
        return answer[3] if answer else None


def test_qos_of_delivery(broker: Broker, expected: dict[str, Any]) -> None:
    with Peer(broker, "sub") as subscriber, Peer(broker, "pub") as publisher:
        assert subscriber.subscribe(*[(f"facts/qos/{s}", s) for s in range(3)]) == [0, 1, 2]
        for (published, subscribed), due in expected["delivered"].items():
            publisher.publish(f"facts/qos/{subscribed}", b"x", published)
            assert subscriber.get()[2] == due, (published, subscribed)


def test_level_3(broker: Broker, expected: dict[str, Any]) -> None:
    assert _connack(broker, _connect("three", level=3, protocol="MQIsdp")) == expected["level 3"]


@pytest.mark.parametrize("character", "/+#$ .-_:ä")
def test_identifiers(broker: Broker, expected: dict[str, Any], character: str) -> None:
    refused = _connack(broker, _connect(f"a{character}b")) is None
    assert refused == (character in expected["refuses in identifiers"])


@pytest.mark.parametrize("kind", kinds("users"))
@pytest.mark.parametrize(
    ("flags", "more"),
    [
        (0x02, b""),
        (0xC2, _text("alice") + _text("wrong")),
        (0xC2, _text("bob") + _text(USERS["alice"])),
        (0x82, _text("alice")),
    ],
    ids=["nobody", "wrong password", "unknown user", "no password"],
)
def test_refusal(kind: str, flags: int, more: bytes, shared_brokers: SharedBrokers) -> None:
    broker = shared_brokers.get(kind, "users")
    right = _text("alice") + _text(USERS["alice"])
    assert _connack(broker, _connect("login", flags=0xC2, more=right)) == 0
    assert _connack(broker, _connect("login", flags=flags, more=more)) == EXPECTED[kind]["refusal"]


def test_copies_of_overlap(broker: Broker, expected: dict[str, Any]) -> None:
    with Peer(broker, "overlap") as peer:
        peer.subscribe(("facts/o/#", 1), ("facts/o/+", 1), ("facts/o/a", 1), ("facts/end", 1))
        peer.publish("facts/o/a", b"x")
        peer.publish("facts/end", b"")
        copies = 0
        while peer.get()[0] != "facts/end":
            copies += 1
    assert copies == expected["copies of overlap"]


def test_retained_on_resubscribe(broker: Broker, expected: dict[str, Any]) -> None:
    with Peer(broker, "resubscribe") as peer:
        with Peer(broker, "before") as other:
            other.subscribe(("facts/r", 1))
            peer.publish("facts/r", b"kept", retain=True)
            other.get()  # aedes may acknowledge it before it delivers it
        peer.subscribe(("facts/r", 1))
        assert peer.get() == ("facts/r", b"kept", 1, True)
        peer.subscribe(("facts/r", 1), ("facts/end", 1))
        peer.publish("facts/end", b"")
        again = peer.get() == ("facts/r", b"kept", 1, True)
        peer.publish("facts/r", b"", retain=True)
    assert again == expected["retained on resubscribe"]


def test_unsuback_for_unknown(wire: Wire, expected: dict[str, Any]) -> None:
    wire.send(b"\xa2\x05\x00\x02\x00\x01a" + b"\xc0\x00")
    answered = wire.packet() == b"\xb0\x02\x00\x02"
    if answered:
        assert wire.packet() == b"\xd0\x00"
    assert answered == expected["unsuback for unknown"]


def test_unsubscribe_in_a_kept_session(broker: Broker, expected: dict[str, Any]) -> None:
    hello = _connect("kept", flags=0)
    with Wire(broker) as connection:
        connection.send(hello + b"\x82\x0c\x00\x01\x00\x07facts/k\x01")
        assert connection.packet() == b"\x20\x02\x00\x00"
        assert connection.packet() == b"\x90\x03\x00\x01\x01"
        connection.send(b"\xe0\x00")
        assert connection.packet() == b""
    with Wire(broker) as connection:
        connection.send(hello)
        assert connection.packet() == b"\x20\x02\x01\x00"
        connection.send(b"\xa2\x0b\x00\x02\x00\x07facts/k" + b"\xc0\x00")
        wanted = {b"\xd0\x00"}
        if expected["unsubscribe in a kept session"]:
            wanted.add(b"\xb0\x02\x00\x02")
        assert {connection.packet() for _ in wanted} == wanted
        # Nothing but the answer may follow: no UNSUBACK is late.
        connection.send(b"\xc0\x00")
        assert connection.packet() == b"\xd0\x00"
    assert _connack(broker, _connect("kept")) == 0, "the clean session that ends the kept one"


def test_requests_in_order(wire: Wire, expected: dict[str, Any]) -> None:
    name = b"\x00\x07facts/h"
    subscribe, unsubscribe = b"\x82\x0c\x00\x01" + name + b"\x00", b"\xa2\x0b\x00\x02" + name
    wire.send((subscribe + unsubscribe) * 10 + subscribe)
    answers = [wire.packet()[:1] for _ in range(21)]
    assert sorted(answers) == sorted([b"\x90", b"\xb0"] * 10 + [b"\x90"])
    if expected["requests in order"]:
        assert answers == [b"\x90", b"\xb0"] * 10 + [b"\x90"]
        wire.send(b"\x30\x0a" + name + b"x")
        assert wire.packet() == b"\x30\x0a" + name + b"x"


def test_keepalive_0(broker: Broker, expected: dict[str, Any]) -> None:
    assert _connack(broker, _connect("ever", keepalive=0)) == expected["keepalive 0"]


def test_dup_on_redelivery(broker: Broker, expected: dict[str, Any]) -> None:
    with Wire(broker) as connection:
        connection.send(_connect("again", flags=0))
        assert connection.packet() == b"\x20\x02\x00\x00"
        connection.send(b"\x82\x0c\x00\x01\x00\x07facts/d\x01")
        assert connection.packet() == b"\x90\x03\x00\x01\x01"
        connection.send(b"\x32\x0c\x00\x07facts/d\x00\x09x")
        packets = {connection.packet()[0] for _ in range(2)}
        assert packets == {0x32, 0x40}, "the message and the acknowledgement of its publish"
    with Wire(broker) as connection:
        connection.send(_connect("again", flags=0))
        assert connection.packet() == b"\x20\x02\x01\x00", "session present"
        first = connection.packet()[0]
    assert _connack(broker, _connect("again")) == 0, "the clean session that ends the kept one"
    assert first == (0x3A if expected["dup on redelivery"] else 0x32)


def _is_published_after_pubrel(broker: Broker) -> bool:
    """Return whether a kept session sends the message again for which it has had PUBREC."""

    def publish(payload: bytes) -> None:
        with Wire(broker) as other:
            other.send(_connect("releasing too"))
            assert other.packet() == b"\x20\x02\x00\x00"
            other.send(b"\x34\x0c\x00\x07facts/r\x00\x09" + payload)
            assert other.packet() == b"\x50\x02\x00\x09"
            other.send(b"\x62\x02\x00\x09")
            assert other.packet() == b"\x70\x02\x00\x09"

    name = "releasing"
    with Wire(broker) as connection:
        connection.send(_connect(name, flags=0))
        assert connection.packet() == b"\x20\x02\x00\x00"
        connection.send(b"\x82\x0c\x00\x01\x00\x07facts/r\x02")
        assert connection.packet() == b"\x90\x03\x00\x01\x02"
        publish(b"x")
        pid = connection.packet()[11:13]
        connection.send(b"\x50\x02" + pid)
        assert connection.packet() == b"\x62\x02" + pid
    for _ in range(25):  # one of them at least is closed before the broker has answered it
        with Wire(broker) as gone:
            gone.send(_connect(name, flags=0))
    with Wire(broker) as connection:
        connection.send(_connect(name, flags=0))
        assert connection.packet() == b"\x20\x02\x01\x00", "session present"
        publish(b"y")  # the embedded broker sends PUBREL only with something else
        packet = connection.packet()
    assert _connack(broker, _connect(name)) == 0, "the clean session that ends the kept one"
    again = packet[0] & 0xF0 == 0x30 and packet[11:] == pid + b"x"
    assert again or packet == b"\x62\x02" + pid
    return again


def test_published_after_pubrel(broker: Broker, expected: dict[str, Any]) -> None:
    # It depends on when a connection ends, so a broker that does it may not do it each time.
    seen = any(_is_published_after_pubrel(broker) for _ in range(10))
    assert seen == expected["published after PUBREL"]


def test_dup_forwarded(broker: Broker, wire: Wire, expected: dict[str, Any]) -> None:
    wire.send(b"\x82\x0c\x00\x01\x00\x07facts/f\x01")
    assert wire.packet() == b"\x90\x03\x00\x01\x01"
    with Wire(broker) as connection:
        connection.send(_connect("forward") + b"\x3a\x0c\x00\x07facts/f\x00\x09x")
        assert connection.packet() == b"\x20\x02\x00\x00"
        assert wire.packet()[0] == (0x3A if expected["dup forwarded"] else 0x32)


def test_dup_at_qos_0(broker: Broker, wire: Wire, expected: dict[str, Any]) -> None:
    subscribe = b"\x82\x0c\x00\x01\x00\x07facts/z\x00"
    wire.send(subscribe)
    assert wire.packet() == b"\x90\x03\x00\x01\x00"
    with Wire(broker) as connection, Wire(broker) as newcomer:
        connection.send(_connect("dup") + b"\x39\x0a\x00\x07facts/zx")
        assert connection.packet() == b"\x20\x02\x00\x00"
        live = wire.packet()
        newcomer.send(_connect("newcomer") + subscribe)
        assert newcomer.packet() == b"\x20\x02\x00\x00"
        packets = sorted([newcomer.packet(), newcomer.packet()])
        assert packets[1] == b"\x90\x03\x00\x01\x00"
        connection.send(b"\x31\x09\x00\x07facts/z")
        assert wire.packet()[2:] == b"\x00\x07facts/z", "the retained message is gone"
    assert live[2:] == packets[0][2:] == b"\x00\x07facts/zx"
    assert packets[0][0] in (0x31, 0x39)
    assert (live[0] == 0x38, packets[0][0] == 0x39) == expected["dup at QoS 0"]


def test_shared_subscriptions(broker: Broker, expected: dict[str, Any]) -> None:
    with Peer(broker, "member") as peer:
        assert peer.subscribe(("$share/g/facts/s/#", 1)) == [1]
        assert peer.subscribe(("facts/end", 1)) == [1]
        peer.publish("facts/s/a", b"x")
        peer.publish("facts/end", b"")
        first = peer.get()[0]
    assert first == ("facts/s/a" if expected["shared subscriptions"] else "facts/end")


def test_unreleased(broker: Broker, expected: dict[str, Any]) -> None:
    with Peer(broker, "releaser") as publisher, Wire(broker) as connection:
        connection.send(_connect("unreleased"))
        assert connection.packet() == b"\x20\x02\x00\x00"
        connection.send(b"\x82\x0c\x00\x01\x00\x07facts/u\x02")
        assert connection.packet() == b"\x90\x03\x00\x01\x02"
        for _ in range(100):
            publisher.publish("facts/u", b"x", 2)
        came = released = 0
        while min(came, released) < expected["unreleased"]:
            packet = connection.packet()
            if packet[0] == 0x34:
                came += 1
                connection.send(b"\x50\x02" + packet[11:13])
            elif packet[0] == 0x62:
                released += 1
        # Nothing but the answer may follow: whatever was allowed has been sent by then.
        connection.send(b"\xc0\x00")
        assert connection.packet() == b"\xd0\x00"


def test_unreleased_after_an_outage(broker: Broker, expected: dict[str, Any]) -> None:
    """Messages that waited for a client come when it is back.

    All of them are answered at once.
    """
    limit, waiting = 20, 200
    hello = _connect("backlog", flags=0)
    with Wire(broker) as connection:
        connection.send(hello + b"\x82\x0c\x00\x01\x00\x07facts/b\x02")
        assert connection.packet() == b"\x20\x02\x00\x00"
        assert connection.packet() == b"\x90\x03\x00\x01\x02"
        connection.send(b"\xe0\x00")
        assert connection.packet() == b""
    with Peer(broker, "meanwhile") as publisher:
        for _ in range(waiting):
            publisher.publish("facts/b", b"x", 2)
    came = released = most = 0
    completed = b""
    with Wire(broker) as connection:
        connection.send(hello)
        assert connection.packet() == b"\x20\x02\x01\x00"
        while released < waiting:
            packet = connection.packet()
            if packet[0] == 0x34:
                came += 1
                most = max(most, came - released)
                connection.send(b"\x50\x02" + packet[11:13])
            elif packet[0] == 0x62:
                released += 1
                completed += b"\x70\x02" + packet[2:4]
            # Together, so that what they make room for is seen before any of it is released.
            if came - released == 0 or len(completed) >= 4 * limit:
                connection.send(completed)
                completed = b""
    assert _connack(broker, _connect("backlog")) == 0, "the clean session that ends the kept one"
    assert (most > limit) == expected["unreleased after an outage"], most


def test_order_after_an_outage(broker: Broker, expected: dict[str, Any]) -> None:
    hello = _connect("ordered", flags=0)
    with Wire(broker) as connection:
        connection.send(hello + b"\x82\x0c\x00\x01\x00\x07facts/w\x02")
        assert connection.packet() == b"\x20\x02\x00\x00"
        assert connection.packet() == b"\x90\x03\x00\x01\x02"
        connection.send(b"\xe0\x00")
        assert connection.packet() == b""
    wanted = [b"%d" % number for number in range(6)]
    with Peer(broker, "meanwhile") as publisher:
        for number, payload in enumerate(wanted):
            publisher.publish("facts/w", payload, 1 + number % 2)
    with Wire(broker) as connection:
        connection.send(hello)
        assert connection.packet() == b"\x20\x02\x01\x00"
        came = [connection.packet()[13:] for _ in wanted]
    assert _connack(broker, _connect("ordered")) == 0, "the clean session that ends the kept one"
    assert sorted(came) == wanted
    assert came == wanted or not expected["order after an outage"]


@pytest.mark.parametrize("ack", [b"\x40", b"\x50", b"\x62", b"\x70"], ids=bytes.hex)
def test_stray_ack(wire: Wire, ack: bytes, expected: dict[str, Any]) -> None:
    wire.send(ack + b"\x02\x00\x07" + b"\xc0\x00")
    packet = wire.packet()
    while packet not in (b"", b"\xd0\x00"):
        packet = wire.packet()
    assert (packet == b"") == expected["stray ack closes"]


def test_largest_payload(broker: Broker, expected: dict[str, Any]) -> None:
    for size in (900_000, 1_100_000):
        with Wire(broker) as connection:
            body = _text("facts/big") + b"\x00\x01" + bytes(size)
            connection.send(_connect("big"))
            assert connection.packet() == b"\x20\x02\x00\x00"
            with contextlib.suppress(ConnectionError):
                connection.send(peer.packet(0x32, body))
            passed = connection.packet() == b"\x40\x02\x00\x01"
        assert passed == (size <= expected["largest payload"]), size


@pytest.mark.parametrize("kind", kinds("durable"))
def test_survives_sigkill(kind: str) -> None:
    with BROKERS[kind]["durable"]() as broker:
        with Wire(broker) as connection:
            connection.send(_connect("durable", flags=0))
            assert connection.packet() == b"\x20\x02\x00\x00"
            connection.send(b"\x82\x0c\x00\x01\x00\x07facts/s\x01")
            assert connection.packet() == b"\x90\x03\x00\x01\x01"
            # mosquitto writes its file in the turn after the change; this is that turn.
            connection.send(b"\xc0\x00")
            assert connection.packet() == b"\xd0\x00"
        broker.restart()
        with Wire(broker) as connection:
            connection.send(_connect("durable", flags=0))
            present = connection.packet()[2] == 1
    assert present == EXPECTED[kind]["survives SIGKILL"]


def test_listens_on_loopback_alone(broker: Broker) -> None:
    assert broker.host == "127.0.0.1"
    # Another address of this same machine: on Linux all of 127/8 is, so this asks the bind.
    with socket.socket() as probe:
        probe.settimeout(ANSWER)
        assert probe.connect_ex(("127.0.0.2", broker.port)) != 0


@pytest.mark.parametrize("kind", kinds("users"))
def test_leaves_nothing_behind(kind: str) -> None:
    with BROKERS[kind]["users"]() as broker:
        folder = broker.folder  # type: ignore[attr-defined]
        assert folder.exists()
        assert broker.running
    assert not folder.exists()
    assert not broker.running


def test_a_broker_that_runs_already(broker: Broker) -> None:
    found = brokers.external(broker.address)
    assert (found.kind, found.port) == ("external", broker.port)
    for wrong in ("127.0.0.1:http", "127.0.0.1:0", ":1883", "127.0.0.1:65536"):
        with pytest.raises(brokers.BrokerError, match="broker must be HOST"):
            brokers.external(wrong)
    with pytest.raises(brokers.BrokerError, match="no broker answers"):
        brokers.external(f"127.0.0.1:{ports.free_port()}")
