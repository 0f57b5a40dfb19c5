"""The scripted broker does as a test says, and reports what clients do wrong.

That it keeps the standard by itself is in the scenarios, with the brokers that are not ours.
"""

from __future__ import annotations

import contextlib
import socket
import time
from base64 import b64decode
from typing import Any

import pytest

import peer
from brokers import core
from brokers.core import CLOSES_ON_LEVEL_5, REFUSES_LEVEL_5, UNSUPPORTED_VERSION, Core, types
from brokers.fake import FakeBroker
from brokers.scram import METHOD, ScramServer
from packets import build
from packets.build import ack, ending, publish, subscribe, unsubscribe
from packets.properties import Id, Pairs, properties
from packets.strict import Connect, Filter, Packet, Will, packet, split

KEPT = [(Id.SESSION_EXPIRY, 100)]
REASON = [(Id.REASON_STRING, b"no")]
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


@pytest.fixture
def client(broker: Core) -> Client:
    """A client that is connected, at level 5."""
    made = Client(broker)
    assert made.hello().name == "CONNACK"
    return made


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


def test_what_is_unacknowledged_is_sent_again(broker: Core, client: Client) -> None:
    client.ask(ending("DISCONNECT"))
    broker.closed(client)
    client = Client(broker)
    client.hello(more=KEPT)
    client.ask(subscribe(1, Filter(b"t", 2)))
    for payload, qos in ((b"1", 1), (b"2", 2), (b"3", 1)):
        broker.publish(b"t", payload, qos)
    assert client.ask(ack("PUBREC", 2))[-1] == Packet("PUBREL", 2)
    broker.closed(client)
    client = Client(broker)
    assert client.hello(more=[*KEPT, (Id.RECEIVE_MAXIMUM, 1)], clean_start=0).present
    # It keeps to the Receive Maximum, which has become smaller.
    broker.publish(b"t", b"4")
    assert client.ask() == [Packet("PUBLISH", topic=b"t", payload=b"4")]
    (third,) = client.ask(ack("PUBACK", 1))
    assert (third.pid, third.payload, third.dup) == (3, b"3", 1)


@pytest.mark.parametrize("answer", [REFUSES_LEVEL_5, CLOSES_ON_LEVEL_5, UNSUPPORTED_VERSION])
def test_a_broker_of_3_1_1(broker: Core, answer: bytes) -> None:
    broker.level_5 = answer
    five = Client(broker)
    broker.taken(five, build.connect(Connect(b"a")))
    assert (five.came, five.ended) == (answer, True)
    for present in (0, 1):
        four = Client(broker, 4)
        assert four.hello(clean_start=0) == Packet("CONNACK", present=present)
    assert broker.levels == [5, 4, 4]


def test_answers_as_they_are_given(broker: Core, client: Client) -> None:
    broker.answer_with("PUBACK", 0x97, REASON, when=lambda p: p.topic == b"full", times=1)
    broker.answer_with("PUBACK", 0)
    broker.answer_with("PUBREC", 0x87, times=1)
    broker.answer_with("PUBREC", more=[])
    broker.answer_with("PUBCOMP", 0x92, [])
    broker.answer_with("SUBACK", 0x8F, REASON)
    for data, answer in (
        (publish(b"full", b"", 1, 1), ack("PUBACK", 1, 0x97, REASON)),
        (publish(b"full", b"", 1, 1), bytes.fromhex("4003000100")),
        (publish(b"t", b"", 2, 2), bytes.fromhex("5003000287")),
        (publish(b"t", b"", 2, 2), bytes.fromhex("500400020000")),
        (ack("PUBREL", 2), bytes.fromhex("700400029200")),
        (subscribe(3, Filter(b"t"), Filter(b"u")), build.answer("SUBACK", 3, b"\x8f" * 2, REASON)),
        (unsubscribe(3, b"t"), build.answer("UNSUBACK", 3, b"\x11")),
    ):
        client.came = b""
        broker.taken(client, data)
        assert client.came == answer
    broker.answer_as_usual()
    assert client.ask(subscribe(4, Filter(b"t")))[-1].codes == b"\0"
    assert [each.topic for each in broker.onward] == [b"full", b"t"]
    broker.announces = properties([(Id.RECEIVE_MAXIMUM, 3)])
    broker.answer_with("CONNACK", 0x97, REASON, times=1)
    refused = Packet("CONNACK", code=0x97, properties=properties(REASON))
    assert Client(broker).hello(b"b") == refused
    assert Client(broker).hello(b"b").properties == broker.announces


def test_what_a_test_has_it_do(broker: Core, client: Client) -> None:
    broker.withhold(types("PUBACK"))
    assert client.ask(publish(b"t", b"", 1, 1)) == []
    assert broker.keeps_back()
    broker.release()
    assert client.ask() == [Packet("PUBACK", 1)]
    broker.reports_nobody = True
    assert client.ask(publish(b"t", b"", 2, 1)) == [Packet("PUBREC", 1, code=0x10)]
    broker.downgrades, broker.reports_nobody = True, False
    assert client.ask(publish(b"t", b"", 2, 2)) == [Packet("PUBACK", 2)]
    broker.forbidden = b"bad"
    answers = client.ask(subscribe(3, Filter(b"t/bad"), Filter(b"t/good")))
    assert [each.codes for each in answers] == [b"\x87\0"]
    assert client.ask(publish(b"t/bad")) == [ENDED]
    broker.answer_connect(b"\xd0\0", end=True)
    assert Client(broker).hello(b"b") == Packet("PINGRESP")
    other = Client(broker)
    other.hello(b"b")
    broker.send(b"\xd0\0")
    broker.disconnect(0x9D, [(Id.SERVER_REFERENCE, b"there")], b"b")
    ping, last, end = other.ask()
    assert (ping.name, last.code, end) == ("PINGRESP", 0x9D, ENDED)
    broker.close_on(types("PINGREQ"))
    third = Client(broker)
    third.hello(b"c")
    assert third.ask(build.PINGREQ) == [ENDED]
    assert broker.complaints == []


def _auth(code: int, data: bytes) -> bytes:
    more = [(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, data)]
    return ending("AUTH", code, more)


LIMITS = [(Id.RECEIVE_MAXIMUM, 2), (Id.TOPIC_ALIAS_MAXIMUM, 3), (Id.MAXIMUM_PACKET_SIZE, 99)]
AGAIN = publish(b"t", b"", 1, 5)
THREE = b"".join(publish(b"t", b"", 2, pid) for pid in (1, 2, 3))
WILL = Connect(b"a", will=Will(b"t", b"", 1))
# Behind a CONNECT at level 5, with PUBACK and SUBACK withheld: reason code, complaint and packets.
WRONG = [
    (0x81, "QoS 3", b"\x36\x00"),
    (0x81, "five bytes", b"\x30\xff\xff\xff\xff"),
    (0x82, "the second", build.connect(Connect(b"b"))),
    (0x93, "3 PUBLISH of 2", THREE),
    (0x94, "above the maximum", publish(b"t", b"", 0, 0, [(0x23, 4)])),
    (0x82, "no topic name yet", publish(b"", b"", 0, 0, [(0x23, 3)])),
    (0x95, "bytes [MQTT-3.2.2-15]", publish(b"t", bytes(99))),
    (0x82, "waits for no PUBACK", ack("PUBACK", 9)),
    (0x82, "an expiry", ending("DISCONNECT", 0, KEPT)),
    (0x82, "no authentication method", _auth(0x19, b"")),
    (0x82, "in use by a PUBLISH", AGAIN * 2),
    (0x82, "[MQTT-4.4.0-1]", AGAIN + publish(b"t", b"", 1, 5, dup=1)),
    (0x82, "in use by a SUBSCRIBE", subscribe(5, Filter(b"t")) + AGAIN),
]
# Instead of CONNECT.
WRONG_FIRST = [
    (0x82, "must not be 0", build.connect(Connect(b"a"), [(Id.RECEIVE_MAXIMUM, 0)])),
    (0x84, "[MQTT-3.1.2-2]", build.connect(Connect(b"a"), level=6)),
    (ENDED.code, "not first", build.PINGREQ),
]


@pytest.mark.parametrize(("code", "words", "data"), WRONG, ids=[each[1] for each in WRONG])
def test_a_complaint(broker: Core, code: int, words: str, data: bytes) -> None:
    broker.announces = properties(LIMITS)
    broker.withhold(types("PUBACK", "SUBACK"))
    client = Client(broker)
    client.hello()
    assert client.ask(data)[-2:] == [Packet("DISCONNECT", code=code), ENDED]
    (complaint,) = broker.complaints
    assert words in complaint


@pytest.mark.parametrize(("code", "words", "data"), WRONG_FIRST)
def test_a_complaint_of_the_first_packet(broker: Core, code: int, words: str, data: bytes) -> None:
    first, *_ = Client(broker).ask(data)
    assert first.code == code
    assert words in broker.complaints[0]


def test_a_complaint_at_level_4(broker: Core) -> None:
    client = Client(broker, 4)
    client.hello(clean_start=0)
    assert client.ask(b"\xe0\x01\x04") == [ENDED]
    assert broker.complaints == ["DISCONNECT: 1 bytes too many"]


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


def test_a_will_that_it_does_not_take(broker: Core) -> None:
    broker.announces = properties([(Id.MAXIMUM_QOS, 0), (Id.RETAIN_AVAILABLE, 0)])
    assert Client(broker).hello(will=Will(b"t", b"", 1)).code == 0x9B
    assert Client(broker).hello(will=Will(b"t", b"", 0, 1)).code == 0x9A


# The example of RFC 7677, section 3.
NONCE = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%b,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096" % NONCE
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%b,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=" % NONCE
VERIFIER = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(("password", "code"), [(b"pencil", 0), (b"wrong", 0x87)])
def test_authentication(
    broker: Core, password: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    salt = b64decode(b"W22ZaJ0SNY7soEsUEjb6gQ==")
    monkeypatch.setattr(core, "ScramServer", lambda p: ScramServer(p, salt=salt, nonce=NONCE))
    broker.passwords, broker.needs_authentication = {b"user": password}, True
    client = Client(broker)
    asked = [(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, FIRST)]
    challenge = client.hello(more=asked)
    assert (challenge.name, challenge.properties.first(0x16)) == ("AUTH", CHALLENGE)
    connack = client.ask(_auth(0x18, FINAL))[0]
    assert (connack.name, connack.code) == ("CONNACK", code)
    if code:
        return
    assert connack.properties.first(0x16) == VERIFIER
    assert client.ask(_auth(0x19, FIRST))[0].properties.first(0x16) == CHALLENGE
    broker.passwords.clear()
    assert client.ask(_auth(0x18, FINAL)) == [Packet("DISCONNECT", code=0x87), ENDED]
    assert broker.complaints == []


def test_no_authentication_or_another(broker: Core) -> None:
    assert Client(broker).hello(more=[(0x15, METHOD)]).code == 0x8C
    broker.passwords, broker.needs_authentication = {b"user": b""}, True
    assert Client(broker).hello(more=[(0x15, b"other")]).code == 0x8C
    assert Client(broker).hello().code == 0x87
    for data, name in ((build.PINGREQ, "PINGREQ"), (_auth(0x19, b""), "AUTH")):
        client = Client(broker)
        assert client.hello(more=[(0x15, METHOD), (0x16, FIRST)]).name == "AUTH"
        assert client.ask(data) == [ENDED]
        assert broker.complaints.pop().startswith(f"{name} in the wrong place")


def test_a_connection_that_is_gone_does_not_end_its_successor() -> None:
    """The broker on loopback takes what comes in the order in which it came."""
    hello = build.connect(Connect(b"c", 0), level=4)
    with FakeBroker() as broker:
        where = (broker.host, broker.port)
        for _ in range(50):
            gone, successor = (socket.create_connection(where, 30) for _ in range(2))
            while sum(c.client_id is None for c in broker.connections) < 2:
                time.sleep(0)  # until both are accepted
            with broker.lock:  # it can act on none of this before all has come
                gone.sendall(hello)
                gone.close()
                successor.sendall(hello + build.PINGREQ)
            with contextlib.closing(successor.makefile("rb")) as answers, successor:
                assert answers.read(6) == peer.connack(present=True) + peer.PINGRESP
        assert broker.complaints == []
