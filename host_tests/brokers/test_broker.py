"""The broker for tests reports what clients do wrong.

That it keeps the standard by itself is in the scenarios, with the brokers that are not ours.
"""

from __future__ import annotations

from typing import Any

import pytest

from brokers import core
from brokers.core import Core, types
from packets import build
from packets.build import ack, ending, publish, subscribe
from packets.properties import Id, Pairs, properties
from packets.strict import Connect, Filter, Packet, packet, split

KEPT = [(Id.SESSION_EXPIRY, 100)]
ENDED = Packet("")


class Client(core.Connection):
    """A client of a broker, in memory."""

    def __init__(self, broker: Core, level: int = 5) -> None:
        super().__init__()
        self.broker, self.at, self.came = broker, level, b""
        broker.connections.append(self)

    def send(self, data: bytes) -> None:
        self.came += data

    def end(self) -> None:
        self.ended = True

    def ask(self, data: bytes = b"") -> list[Packet]:
        """Write bytes and return what came since the last time; ENDED is the end."""
        self.broker.taken(self, data)
        packets, self.came = split(self.came)
        ended = [ENDED] * self.ended
        return [packet(first, body, self.at) for first, body in packets] + ended

    def hello(self, name: bytes = b"a", more: Pairs = (), **fields: Any) -> Packet:
        """Send CONNECT, and return the first packet that comes."""
        return self.ask(build.connect(Connect(name, **fields), more, level=self.at))[0]


@pytest.fixture
def broker() -> Core:
    return Core()


@pytest.mark.parametrize("level", [4, 5])
def test_a_message_at_qos_2_both_ways(broker: Core, level: int) -> None:
    client = Client(broker, level)
    more = properties([(Id.CONTENT_TYPE, b"c")]) if level == 5 else ()
    client.hello(clean_start=level == 5)
    asked = Packet("SUBSCRIBE", 1, filters=(Filter(b"t/+", 2),))
    assert client.ask(build.encode(asked, level)) == [Packet("SUBACK", 1, codes=b"\2")]
    data = publish(b"t/1", b"x", 2, 9, more if level == 5 else None)
    message = Packet("PUBLISH", 1, b"t/1", b"x", 2, properties=properties(more))
    assert client.ask(data) == [message, Packet("PUBREC", 9)]
    assert client.ask(ack("PUBREL", 9)) == [Packet("PUBCOMP", 9)]
    assert client.ask(ack("PUBREC", 1)) == [Packet("PUBREL", 1)]
    assert client.ask(ack("PUBCOMP", 1) + build.PINGREQ) == [Packet("PINGRESP")]
    gone = Packet("UNSUBSCRIBE", 2, filters=(Filter(b"t/+"),))
    assert [p.name for p in client.ask(build.encode(gone, level))] == ["UNSUBACK"]
    assert [each.payload for each in broker.onward] == [b"x"]
    assert (broker.levels, broker.complaints) == ([level], [])


LIMITS = [(Id.RECEIVE_MAXIMUM, 2), (Id.TOPIC_ALIAS_MAXIMUM, 3), (Id.MAXIMUM_PACKET_SIZE, 99)]
AGAIN = publish(b"t", b"", 1, 5)
THREE = b"".join(publish(b"t", b"", 2, pid) for pid in (1, 2, 3))
HELLO = build.connect(Connect(b"a"))
# What a client writes at level 5, with PUBACK and SUBACK withheld: the reason code of the last
# packet that it gets, and the complaint.
WRONG = [
    (0x81, "QoS 3", HELLO + b"\x36\x00"),
    (0x81, "five bytes", HELLO + b"\x30\xff\xff\xff\xff"),
    (0x82, "the second", HELLO * 2),
    (0x93, "3 PUBLISH of 2", HELLO + THREE),
    (0x94, "above the maximum", HELLO + publish(b"t", b"", 0, 0, [(0x23, 4)])),
    (0x82, "no topic name yet", HELLO + publish(b"", b"", 0, 0, [(0x23, 3)])),
    (0x95, "bytes [MQTT-3.2.2-15]", HELLO + publish(b"t", bytes(99))),
    (0x82, "waits for no PUBACK", HELLO + ack("PUBACK", 9)),
    (0x82, "an expiry", HELLO + ending("DISCONNECT", 0, [(Id.SESSION_EXPIRY, 100)])),
    (0x82, "no authentication method", HELLO + ending("AUTH", 0x19, [])),
    (0x82, "in use by a PUBLISH", HELLO + AGAIN * 2),
    (0x82, "[MQTT-4.4.0-1]", HELLO + AGAIN + publish(b"t", b"", 1, 5, dup=1)),
    (0x82, "in use by a SUBSCRIBE", HELLO + subscribe(5, Filter(b"t")) + AGAIN),
    (0x82, "must not be 0", build.connect(Connect(b"a"), [(Id.RECEIVE_MAXIMUM, 0)])),
    (0x84, "[MQTT-3.1.2-2]", build.connect(Connect(b"a"), level=6)),
    (None, "not first", build.PINGREQ),
]


@pytest.mark.parametrize(("code", "words", "data"), WRONG, ids=[each[1] for each in WRONG])
def test_a_complaint(broker: Core, code: int | None, words: str, data: bytes) -> None:
    broker.announces = properties(LIMITS)
    broker.withhold(types("PUBACK", "SUBACK"))
    packets = Client(broker).ask(data)
    assert packets[-1] == ENDED
    assert [packet.code for packet in packets[-2:-1]] == ([code] if code else [])
    (complaint,) = broker.complaints
    assert words in complaint


def test_a_message_again_without_dup(broker: Core) -> None:
    message = publish(b"t", b"", 2, 5)
    for data, answers in (
        (message, [Packet("PUBREC", 5)]),
        (message, [Packet("DISCONNECT", code=0x82), ENDED]),
        (publish(b"t", b"", 2, 5, dup=1), [Packet("PUBREC", 5)]),
    ):
        client = Client(broker)
        client.hello(more=KEPT, clean_start=0)
        assert client.ask(data) == answers
        broker.closed(client)
    assert "[MQTT-3.3.1-1]" in broker.complaints[0]
    assert len(broker.onward) == 1
