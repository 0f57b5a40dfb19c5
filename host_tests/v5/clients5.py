"""MQTT 5 clients for the tests: at a scripted broker, or on a link without a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from brokers.fake import FakeBroker
from flatmq import Client
from packets import build
from packets.properties import NONE, Pairs, properties
from packets.strict import Packet, from_client, split
from unit.fake_link import Bench, Clock

SECONDS = 20.0  # how long any one step may take; far above what a loaded machine needs
SOON = {"retry_ms": 10, "retry_max_ms": 50}  # reconnects at once


@contextmanager
def serving(announces: Pairs = NONE) -> Iterator[FakeBroker]:
    """A broker that runs, and has nothing to complain about in the end."""
    with FakeBroker(announces=announces) as broker:
        yield broker
    assert broker.complaints == []


class Reports:
    """The reports of a client through `on_dropped`."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes, str]] = []

    def __call__(self, packet_id: int, topic: bytes, reason: str) -> None:
        self.seen.append((packet_id, topic, reason))

    @property
    def topics(self) -> list[bytes]:
        """The topic names of what was set aside."""
        return [topic for _id, topic, _reason in self.seen]


class Inbox:
    """A handler that keeps topic, payload, QoS and RETAIN of each message."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes, int, int]] = []

    def __call__(self, message: Any) -> None:
        self.messages.append((message.topic, message.payload, message.qos, message.retain))

    @property
    def payloads(self) -> list[bytes]:
        """The payloads, in the order in which they came."""
        return [message[1] for message in self.messages]


def made(broker: FakeBroker, client_id: bytes = b"c", **options: Any) -> Any:
    """A client for a broker, which has not started."""
    options = {"version": 5, **SOON, **options}
    return Client(client_id, broker.host, broker.port, **options)


def online(broker: FakeBroker, client_id: bytes = b"c", **options: Any) -> Any:
    client = made(broker, client_id, **options)
    client.connect(int(SECONDS * 1000))
    return client


def until(condition: Callable[[], object], *clients: Any) -> None:
    """Poll clients in turn until a condition holds."""
    end = time.monotonic() + SECONDS
    while not condition():
        for client in clients:
            client.poll(2)
        states = [(client, client.error) for client in clients]
        assert time.monotonic() < end, f"it did not come true: {states}"


def settled(client: Any) -> None:
    """Poll a client until nothing is pending."""
    until(lambda: not client.pending, client)


def arrived(broker: FakeBroker, client: Any) -> None:
    """Poll a client until nothing is pending, and the broker has all that was sent."""
    settled(client)
    pings = len(named(broker, "PINGREQ"))
    # No second PINGREQ once the first is there: it would seem to come after the next message.
    until(lambda: len(named(broker, "PINGREQ")) > pings or client.ping(), client)


def again(broker: FakeBroker, client: Any) -> None:
    """End the connection of a client, and have it connect again."""
    losses, connects = client.stats.losses, client.stats.connects
    broker.end()
    until(lambda: client.stats.losses > losses, client)
    until(lambda: client.stats.connects > connects, client)


def named(broker: FakeBroker, name: str) -> list[Packet]:
    """The packets of that name that clients have sent."""
    return [packet for packet in broker.received if packet.name == name]


class Bench5(Bench):
    """An MQTT 5 client on a link without a network, and what the broker's end of it sees."""

    def __init__(self, clock: Clock, **options: Any) -> None:
        options.setdefault("version", 5)
        super().__init__(clock, **options)
        self.client: Any

    def accepted(self, *more: tuple[int, Any], present: bool = False) -> Bench5:
        """Have the client connected, by a CONNACK with these properties."""
        self.greet()
        self.feed(build.connack(0, int(present), properties(more)))
        return self

    def packets(self) -> list[Packet]:
        """The packets written since the last call, each of which a client may send."""
        return [from_client(packet.first, packet.body) for packet in self.sent()]

    def names(self) -> list[str]:
        return [packet.name for packet in self.packets()]

    def farewell(self) -> tuple[int, Any]:
        """Return how the client ended the connection: the reason code and `error`.

        The code is that of its DISCONNECT, which must be the last packet.
        """
        packets, rest = split(bytes(self.stream.written))
        assert rest == b""
        last = from_client(packets[-1].first, packets[-1].body)
        assert last.name == "DISCONNECT"
        assert not self.client.connected
        return last.code, self.client.error
