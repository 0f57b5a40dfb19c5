"""The broker for tests reports what clients do wrong.

That it keeps the standard by itself is in the scenarios, with the brokers that are not ours.
"""

import pytest

from brokers import core
from brokers.core import Core, types
from packets import build
from packets.build import ack, ending, publish, subscribe
from packets.properties import Id, properties
from packets.strict import Connect, Filter, Packet, packet, split

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


@pytest.fixture
def broker() -> Core:
    return Core()


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
