"""The scripted broker keeps MQTT 5, does as a test says, and reports what clients do wrong."""

from __future__ import annotations

import queue
from base64 import b64decode
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.subscribeoptions import SubscribeOptions

import peer
from packets.agreed import check_server
from v5 import broker5, build5
from v5.broker5 import Broker5, properties, types
from v5.properties5 import Id
from v5.scram5 import METHOD, ScramClient, ScramError, ScramServer
from v5.strict5 import Connect, Filter, Packet, Will
from v5.wire5 import ANSWER, CLOSED, Wire5

ACCEPTED = Packet("CONNACK")
KEPT = [(Id.SESSION_EXPIRY, 100)]


@pytest.fixture
def broker() -> Iterator[Broker5]:
    with Broker5() as running:
        yield running
    # A test that expects complaints takes them out.
    assert running.complaints == []


def _complaint(broker: Broker5) -> str:
    (text,) = broker.complaints
    broker.complaints.clear()
    return text


def _gone(broker: Broker5, client_id: bytes) -> None:
    assert broker.until(lambda: not broker.online(client_id), ANSWER)


# Messages


def test_a_topic_that_it_does_not_take_ends_the_connection(broker: Broker5) -> None:
    broker.forbidden = b"forbidden"
    with Wire5(broker) as wire:
        assert wire.connect(b"a") == ACCEPTED
        assert wire.publish(b"t/good").name == "PUBACK"
        assert wire.publish(b"t/forbidden") == CLOSED
    assert [message.topic for message in broker.onward] == [b"t/good"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_both_ways(broker: Broker5, qos: int) -> None:
    with Wire5(broker) as wire:
        assert wire.connect(b"a") == ACCEPTED
        assert wire.subscribe(b"t/+", qos, [(Id.SUBSCRIPTION_IDENTIFIER, 300)]) == qos
        wire.send(build5.publish(b"t/1", b"x", qos, 9, [(Id.CONTENT_TYPE, b"c")]))
        more = properties([(Id.CONTENT_TYPE, b"c"), (Id.SUBSCRIPTION_IDENTIFIER, 300)])
        message = Packet("PUBLISH", 1 if qos else 0, b"t/1", b"x", qos, properties=more)
        assert wire.packet() == message
        if qos == 1:
            assert wire.packet() == Packet("PUBACK", 9)
            wire.send(build5.ack("PUBACK", 1))
        if qos == 2:
            assert wire.packet() == Packet("PUBREC", 9)
            assert wire.ask(build5.ack("PUBREL", 9)) == Packet("PUBCOMP", 9)
            assert wire.ask(build5.ack("PUBREC", 1)) == Packet("PUBREL", 1)
            wire.send(build5.ack("PUBCOMP", 1))
        assert wire.ping() == []
    assert [each.payload for each in broker.onward] == [b"x"]


def test_one_copy_in_all_or_one_per_filter(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect()
        wire.subscribe(b"t/#", 0, [(Id.SUBSCRIPTION_IDENTIFIER, 1)])
        wire.subscribe(b"t/a", 1, [(Id.SUBSCRIPTION_IDENTIFIER, 2)])
        broker.publish(b"t/a", b"x", 2)
        (message,) = wire.ping()
        assert message.qos == 1
        assert message.properties.each(Id.SUBSCRIPTION_IDENTIFIER) == [1, 2]
        broker.copy_per_filter = True
        broker.publish(b"t/a", b"x", 2)
        copies = wire.ping()
        assert [each.properties.each(0x0B) for each in copies] == [[1], [2]]


def test_subscription_options(broker: Broker5) -> None:
    broker.publish(b"r", b"kept", 1, retain=1)
    with Wire5(broker) as wire:
        wire.connect()
        assert wire.subscribe(b"r", 0, handling=2) == 0
        assert wire.ping() == []
        assert wire.subscribe(b"r", 0, handling=1) == 0
        assert wire.ping() == []
        assert wire.subscribe(b"r", 0) == 0
        assert wire.ping() == [Packet("PUBLISH", topic=b"r", payload=b"kept", retain=1)]
        assert wire.subscribe(b"r", 0, handling=2, as_published=1, no_local=1) == 0
        assert wire.publish(b"r", b"mine").name == "PUBACK"
        broker.publish(b"r", b"theirs", 0, retain=1)
        assert wire.ping() == [Packet("PUBLISH", topic=b"r", payload=b"theirs", retain=1)]
        assert wire.ask(build5.unsubscribe(77, b"r", b"s")).codes == b"\0\x11"
        broker.publish(b"r", b"late", 0)
        assert wire.ping() == []


def test_a_shared_subscription(broker: Broker5) -> None:
    with Wire5(broker) as one, Wire5(broker) as two:
        for wire in (one, two):
            wire.connect()
            wire.subscribe(b"$share/g/t/#", 0)
        for number in range(4):
            broker.publish(b"t/%d" % number, b"")
        assert [len(one.ping()), len(two.ping())] == [2, 2]


def test_nobody_hears(broker: Broker5) -> None:
    broker.reports_nobody = True
    with Wire5(broker) as wire:
        wire.connect()
        assert wire.publish(b"t").code == 0x10
        assert wire.publish(b"t", qos=2) == Packet("PUBREC", 2, code=0x10)


def test_what_the_client_can_take(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect(b"a", [(Id.RECEIVE_MAXIMUM, 2), (Id.MAXIMUM_PACKET_SIZE, 20)])
        wire.subscribe(b"t", 2)
        broker.publish(b"t", bytes(20), 1)  # never sent, and takes no place
        for number in range(3):
            broker.publish(b"t", b"%d" % number, 1 + number % 2)
        assert [each.pid for each in wire.ping()] == [1, 2]
        assert wire.ask(build5.ack("PUBREC", 2)) == Packet("PUBREL", 2)
        assert wire.ping() == []
        third = wire.ask(build5.ack("PUBCOMP", 2))
        assert (third.pid, third.payload) == (3, b"2")


def test_a_message_expires(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT)
        wire.subscribe(b"t", 1)
        wire.send(build5.ending("DISCONNECT"))
        assert wire.packet() == CLOSED
    _gone(broker, b"a")
    broker.publish(b"t", b"short", 1, more=[(Id.MESSAGE_EXPIRY, 10)])
    broker.publish(b"t", b"long", 1, more=[(Id.MESSAGE_EXPIRY, 50)])
    broker.pass_time(20)
    with Wire5(broker) as wire:
        assert wire.connect(b"a", KEPT, clean_start=0).present
        (message,) = wire.ping()
        assert message.payload == b"long"
        assert 0 < message.properties.first(Id.MESSAGE_EXPIRY) <= 30


# Sessions and wills


def test_a_session_ends_when_its_time_is_over(broker: Broker5) -> None:
    for expiry, seconds, known in ((0, 0, 0), (100, 99, 1), (100, 101, 0), (2**32 - 1, 10**9, 1)):
        with Wire5(broker) as wire:
            wire.connect(b"a", [(Id.SESSION_EXPIRY, expiry)])
        _gone(broker, b"a")
        broker.pass_time(seconds)
        with Wire5(broker) as wire:
            found = wire.connect(b"a", [(Id.SESSION_EXPIRY, expiry)], clean_start=0)
            assert found.present == known, expiry
        _gone(broker, b"a")


def test_the_expiry_of_disconnect_counts(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT)
        assert wire.ask(build5.ending("DISCONNECT", 0, [(Id.SESSION_EXPIRY, 0)])) == CLOSED
    assert broker.until(lambda: not broker.knows(b"a"), ANSWER)


def test_what_is_unacknowledged_is_sent_again(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT)
        wire.subscribe(b"t", 2)
        broker.publish(b"t", b"1", 1)
        broker.publish(b"t", b"2", 2)
        assert len(wire.ping()) == 2
        assert wire.ask(build5.ack("PUBREC", 2)) == Packet("PUBREL", 2)
    _gone(broker, b"a")
    broker.restart()
    with Wire5(broker) as wire:
        assert wire.connect(b"a", KEPT, clean_start=0).present
        again, release = wire.ping()
        assert (again.pid, again.dup, release) == (1, 1, Packet("PUBREL", 2))


def test_a_resend_keeps_to_a_smaller_receive_maximum(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT)
        wire.subscribe(b"t", 1)
        for number in range(3):
            broker.publish(b"t", b"%d" % number, 1)
        assert len(wire.ping()) == 3
    _gone(broker, b"a")
    with Wire5(broker) as wire:
        wire.connect(b"a", [*KEPT, (Id.RECEIVE_MAXIMUM, 1)], clean_start=0)
        for pid in (1, 2, 3):
            assert [(each.pid, each.dup) for each in wire.ping()] == [(pid, 1)]
            wire.send(build5.ack("PUBACK", pid))
        assert wire.ping() == []


def test_a_will(broker: Broker5) -> None:
    def left(code: int | None, more: broker5.Pairs | None = None) -> list[bytes]:
        with Wire5(broker) as wire:
            delay = properties([(Id.WILL_DELAY, 10)])
            wire.connect(b"w", KEPT, will=Will(b"will", b"gone", 1, 0, delay))
            if code is not None:
                assert wire.ask(build5.ending("DISCONNECT", code, more)) == CLOSED
        _gone(broker, b"w")
        assert hearer.ping() == []
        broker.pass_time(11)
        return [each.payload for each in hearer.ping()]

    with Wire5(broker) as hearer:
        hearer.connect(b"h")
        hearer.subscribe(b"will", 0)
        assert left(None) == [b"gone"]
        assert left(4) == [b"gone"]
        assert left(0) == []


def test_a_client_that_is_back_in_time_has_no_will(broker: Broker5) -> None:
    with Wire5(broker) as hearer:
        hearer.connect(b"h")
        hearer.subscribe(b"will", 0)
        delay = properties([(Id.WILL_DELAY, 10)])
        with Wire5(broker) as wire:
            wire.connect(b"w", KEPT, will=Will(b"will", b"gone", 0, 0, delay))
        _gone(broker, b"w")
        with Wire5(broker) as wire:
            wire.connect(b"w", KEPT, clean_start=0)
            broker.pass_time(11)
            assert hearer.ping() == []


def test_the_same_identifier_again(broker: Broker5) -> None:
    with Wire5(broker) as old, Wire5(broker) as new:
        old.connect(b"a")
        assert (
            new.connect(b"a", clean_start=0) == ACCEPTED
        )  # the session ended with its connection
        assert old.packet() == Packet("DISCONNECT", code=0x8E)
        assert old.packet() == CLOSED
        assert new.ping() == []


def test_an_identifier_is_assigned(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        name = wire.connect().properties.first(Id.ASSIGNED_CLIENT_IDENTIFIER)
        assert broker.online(name)


# What a test may have it do


def test_connack_says_what_it_is_given(broker: Broker5) -> None:
    broker.announces = properties([(Id.RECEIVE_MAXIMUM, 3), (Id.SESSION_EXPIRY, 7)])
    broker.answer_with("CONNACK", 0x97, [(Id.REASON_STRING, b"full")], times=1)
    with Wire5(broker) as wire:
        refused = wire.connect(b"a")
        assert (refused.code, refused.properties.first(Id.REASON_STRING)) == (0x97, b"full")
        assert wire.packet() == CLOSED
    with Wire5(broker) as wire:
        assert wire.connect(b"a").properties == broker.announces


def test_answers_as_they_are_given(broker: Broker5) -> None:
    reason = [(Id.REASON_STRING, b"no"), (Id.USER_PROPERTY, (b"k", b"v"))]
    broker.answer_with("PUBACK", 0x97, reason, when=lambda p: p.topic == b"full", times=1)
    broker.answer_with("PUBACK", 0)
    broker.answer_with("PUBREC", 0x87, times=1)
    broker.answer_with("PUBREC", more=[])
    broker.answer_with("PUBCOMP", 0x92, [])
    broker.answer_with("SUBACK", 0x8F, reason)
    broker.answer_with("UNSUBACK", 0x11)
    with Wire5(broker) as wire:
        wire.connect()
        wire.send(build5.publish(b"full", b"", 1, 1))
        assert wire.raw() == build5.ack("PUBACK", 1, 0x97, reason)
        wire.send(build5.publish(b"full", b"", 1, 1))
        assert wire.raw().hex() == "4003000100"
        wire.send(build5.publish(b"t", b"", 2, 2))
        assert wire.raw().hex() == "5003000287"
        wire.send(build5.publish(b"t", b"", 2, 2))
        assert wire.raw().hex() == "500400020000"
        wire.send(build5.ack("PUBREL", 2))
        assert wire.raw().hex() == "700400029200"
        wire.send(build5.subscribe(3, Filter(b"t"), Filter(b"u")))
        answer = wire.packet()
        assert (answer.codes, answer.properties) == (b"\x8f\x8f", properties(reason))
        assert wire.ask(build5.unsubscribe(3, b"t")).codes == b"\x11"
        broker.answer_as_usual()
        assert wire.subscribe(b"t") == 0
    assert [each.topic for each in broker.onward] == [b"full", b"t"]


def test_answers_are_withheld_and_released(broker: Broker5) -> None:
    broker.announces = properties([(Id.RECEIVE_MAXIMUM, 1)])
    broker.withhold(types("PUBACK"))
    with Wire5(broker) as wire:
        wire.connect()
        wire.send(build5.publish(b"t", b"", 1, 1))
        assert wire.ping() == []
        assert broker.keeps_back()
        broker.release()
        assert wire.packet() == Packet("PUBACK", 1)
        assert wire.publish(b"t") == Packet("PUBACK", 1)  # its place is free again


def test_bytes_and_a_disconnect(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        wire.connect(b"a")
        broker.send(b"\xd0\x01")
        broker.send(b"\x00")
        assert wire.raw() == b"\xd0\x01\x00"
        broker.disconnect(0x9D, [(Id.SERVER_REFERENCE, b"there")])
        last = wire.packet()
        assert (last.code, last.properties.first(Id.SERVER_REFERENCE)) == (0x9D, b"there")
        assert wire.packet() == CLOSED


def test_it_closes_on_a_type(broker: Broker5) -> None:
    broker.close_on(types("PINGREQ"))
    with Wire5(broker) as wire:
        wire.connect()
        assert wire.ask(build5.PINGREQ) == CLOSED


def test_a_connect_that_is_answered_with_bytes(broker: Broker5) -> None:
    broker.answer_connect(b"\x20\x03\x00", end=True)
    with Wire5(broker) as wire, pytest.raises(AssertionError, match="within a packet"):
        wire.connect()


@pytest.mark.parametrize(
    "answer",
    [broker5.REFUSES_LEVEL_5, broker5.CLOSES_ON_LEVEL_5, broker5.UNSUPPORTED_VERSION],
)
def test_a_broker_of_3_1_1(broker: Broker5, answer: bytes) -> None:
    broker.level_5 = answer
    with Wire5(broker) as wire:
        wire.send(build5.connect(Connect(b"a")))
        assert wire.raw() == answer
        assert wire.raw() == b""
    with Wire5(broker) as wire:
        wire.send(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a")
        assert wire.raw() == peer.connack()
        wire.send(b"\x82\x06\x00\x01\x00\x01t\x02")
        assert wire.raw() == peer.suback(1, 2)
        wire.send(peer.publish(b"t", b"x", 2, 7))
        assert wire.raw() == peer.publish(b"t", b"x", 2, 1)
        assert wire.raw() == peer.pubrec(7)
        wire.send(peer.pubrel(7) + peer.pubrec(1))
        assert [wire.raw(), wire.raw()] == [peer.pubcomp(7), peer.pubrel(1)]
        wire.send(peer.pubcomp(1) + b"\xa2\x05\x00\x02\x00\x01t")
        assert wire.raw() == peer.unsuback(2)
    assert broker.levels == [5, 4]


def test_a_session_at_level_4(broker: Broker5) -> None:
    hello = b"\x10\x0d\x00\x04MQTT\x04\x00\x00\x00\x00\x01a"
    for present in (False, True):
        with Wire5(broker) as wire:
            wire.send(hello)
            assert wire.raw() == peer.connack(present=present)
        _gone(broker, b"a")


# Authentication


def test_scram_of_the_standard() -> None:
    """The example of RFC 7677, section 3."""
    client = ScramClient(b"user", b"pencil", nonce=b"rOprNGfwEbeRWgbNEkqO")
    server = ScramServer(
        {b"user": b"pencil"},
        salt=b64decode(b"W22ZaJ0SNY7soEsUEjb6gQ=="),
        nonce=b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    first = server.first(client.first())
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.final(first)
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    last = server.final(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.verify(last)
    with pytest.raises(ScramError, match="does not know"):
        client.verify(b"v=" + b"A" * 43 + b"=")


def _auth(code: int, data: bytes) -> bytes:
    more = [(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, data)]
    return build5.ending("AUTH", code, more)


def _exchange(wire: Wire5, client: ScramClient, challenge: Packet) -> Packet:
    assert (challenge.name, challenge.code) == ("AUTH", 0x18)
    return wire.ask(_auth(0x18, client.final(challenge.properties.first(0x16))))


@pytest.mark.parametrize(("password", "code"), [(b"right", 0), (b"wrong", 0x87)])
def test_authentication(broker: Broker5, password: bytes, code: int) -> None:
    broker.passwords = {b"u,": b"right"}
    broker.needs_authentication = True
    client = ScramClient(b"u,", password)
    asked = [(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, client.first())]
    with Wire5(broker) as wire:
        connack = _exchange(wire, client, wire.connect(b"a", asked))
        assert (connack.name, connack.code) == ("CONNACK", code)
        if code:
            return
        client.verify(connack.properties.first(Id.AUTHENTICATION_DATA))
        again = ScramClient(b"u,", b"right")
        success = _exchange(wire, again, wire.ask(_auth(0x19, again.first())))
        assert (success.name, success.code) == ("AUTH", 0)
        again.verify(success.properties.first(Id.AUTHENTICATION_DATA))
        mallory = ScramClient(b"u,", b"wrong")
        failure = _exchange(wire, mallory, wire.ask(_auth(0x19, mallory.first())))
        assert failure == Packet("DISCONNECT", code=0x87)


def test_no_authentication_or_another(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        assert wire.connect(b"", [(Id.AUTHENTICATION_METHOD, METHOD)]).code == 0x8C
    broker.passwords, broker.needs_authentication = {}, True
    with Wire5(broker) as wire:
        assert wire.connect(b"", [(Id.AUTHENTICATION_METHOD, b"other")]).code == 0x8C
    with Wire5(broker) as wire:
        assert wire.connect().code == 0x87


# What clients do wrong

ANNOUNCED = [(Id.RECEIVE_MAXIMUM, 2), (Id.TOPIC_ALIAS_MAXIMUM, 3), (Id.MAXIMUM_PACKET_SIZE, 99)]
AGAIN = build5.publish(b"t", b"", 1, 5)
WRONG = {
    "malformed": (0x81, "QoS 3", b"\x36\x00"),
    "five bytes of length": (0x81, "five bytes", b"\x30\xff\xff\xff\xff"),
    "second CONNECT": (0x82, "the second", build5.connect(Connect(b"b"))),
    "in flight": (
        0x93,
        "3 PUBLISH of 2",
        b"".join(build5.publish(b"t", b"", 2, pid) for pid in (1, 2, 3)),
    ),
    "alias": (0x94, "above the maximum", build5.publish(b"t", b"", 0, 0, [(0x23, 4)])),
    "alias of nothing": (0x82, "no topic name yet", build5.publish(b"", b"", 0, 0, [(0x23, 3)])),
    "size": (0x95, "bytes [MQTT-3.2.2-15]", build5.publish(b"t", bytes(99))),
    "acknowledgement of nothing": (0x82, "waits for no PUBACK", build5.ack("PUBACK", 9)),
    "expiry": (0x82, "an expiry", build5.ending("DISCONNECT", 0, KEPT)),
    "AUTH": (0x82, "no authentication method", _auth(0x19, b"")),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_complaint(broker: Broker5, what: str) -> None:
    code, words, data = WRONG[what]
    broker.announces = properties(ANNOUNCED)
    with Wire5(broker) as wire:
        assert wire.connect(b"a").code == 0
        answer = wire.ask(data)
        while answer.name == "PUBREC":
            answer = wire.packet()
        assert answer == Packet("DISCONNECT", code=code)
        assert wire.packet() == CLOSED
    assert words in _complaint(broker)


@pytest.mark.parametrize("dup", [0, 1])
def test_a_message_again_on_one_connection(broker: Broker5, dup: int) -> None:
    broker.withhold(types("PUBACK"))
    with Wire5(broker) as wire:
        wire.connect()
        wire.send(AGAIN)
        assert wire.ask(build5.publish(b"t", b"", 1, 5, dup=dup)).code == 0x82
    assert ("[MQTT-4.4.0-1]" if dup else "in use by a PUBLISH") in _complaint(broker)


def test_an_identifier_that_a_subscribe_has(broker: Broker5) -> None:
    broker.withhold(types("SUBACK"))
    with Wire5(broker) as wire:
        wire.connect()
        wire.send(build5.subscribe(5, Filter(b"t")))
        assert wire.ask(AGAIN).code == 0x82
    assert "in use by a SUBSCRIBE" in _complaint(broker)


def test_a_message_again_without_dup(broker: Broker5) -> None:
    message = build5.publish(b"t", b"", 2, 5)
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT)
        assert wire.ask(message) == Packet("PUBREC", 5)
    _gone(broker, b"a")
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT, clean_start=0)
        assert wire.ask(message).code == 0x82
    assert "[MQTT-3.3.1-1]" in _complaint(broker)
    with Wire5(broker) as wire:
        wire.connect(b"a", KEPT, clean_start=0)
        assert wire.ask(build5.publish(b"t", b"", 2, 5, dup=1)) == Packet("PUBREC", 5)
        assert wire.ask(build5.ack("PUBREL", 5)) == Packet("PUBCOMP", 5)
        assert wire.ask(build5.ack("PUBREL", 5)) == Packet("PUBCOMP", 5, code=0x92)
    assert len(broker.onward) == 1


def test_a_connect_that_is_broken(broker: Broker5) -> None:
    with Wire5(broker) as wire:
        assert wire.connect(b"a", [(Id.RECEIVE_MAXIMUM, 0)]).code == 0x82
    assert "must not be 0" in _complaint(broker)
    with Wire5(broker) as wire:
        assert wire.ask(build5.connect(Connect(b"a"), level=6)).code == 0x84
    assert "[MQTT-3.1.2-2]" in _complaint(broker)
    broker.announces = properties([(Id.MAXIMUM_QOS, 0), (Id.RETAIN_AVAILABLE, 0)])
    with Wire5(broker) as wire:
        assert wire.connect(b"a", will=Will(b"t", b"", 1)).code == 0x9B
    with Wire5(broker) as wire:
        assert wire.connect(b"a", will=Will(b"t", b"", 0, 1)).code == 0x9A


def test_an_exchange_that_is_out_of_order(broker: Broker5) -> None:
    broker.passwords = {b"u": b"p"}
    asked = [(Id.AUTHENTICATION_METHOD, METHOD), (Id.AUTHENTICATION_DATA, b"n,,n=u,r=nonce")]
    for data, words in (
        (build5.PINGREQ, "PINGREQ in the wrong place"),
        (_auth(0x19, b""), "AUTH in the wrong place"),
    ):
        with Wire5(broker) as wire:
            assert wire.connect(b"a", asked).name == "AUTH"
            assert wire.ask(data) == CLOSED
        assert words in _complaint(broker)
    with Wire5(broker) as wire:
        client = ScramClient(b"u", b"p")
        asked[1] = (Id.AUTHENTICATION_DATA, client.first())
        assert _exchange(wire, client, wire.connect(b"a", asked)).name == "CONNACK"
        assert wire.ask(_auth(0x18, b"")).code == 0x82
    assert "AUTH in the wrong place" in _complaint(broker)


HELLO_4 = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a"
WRONG_4 = {
    "a password without a user name": b"\x10\x10\x00\x04MQTT\x04\x42\x00\x00\x00\x01a\x00\x01p",
    "an empty identifier": b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00",
    "neither MQTT 5 nor 3.1.1": HELLO_4.replace(b"MQTT", b"MQTX"),
    "reserved bits of a QoS": HELLO_4 + b"\x82\x06\x00\x01\x00\x01t\x04",
    "PUBREL of 3 bytes": HELLO_4 + b"\x62\x03\x00\x01\x00",
    "DISCONNECT of 1 bytes": HELLO_4 + b"\xe0\x01\x04",
    "AUTH of 0 bytes": HELLO_4 + b"\xf0\x00",
    "QoS 3": HELLO_4 + b"\x36\x05\x00\x01t\x00\x01",
}


@pytest.mark.parametrize("words", WRONG_4)
def test_a_complaint_at_level_4(broker: Broker5, words: str) -> None:
    with Wire5(broker) as wire:
        wire.send(WRONG_4[words])
        if WRONG_4[words].startswith(HELLO_4):
            assert wire.raw() == peer.connack()
        assert wire.raw() == b""
    assert words in _complaint(broker)


def test_a_will_at_level_4(broker: Broker5) -> None:
    with Wire5(broker) as hearer, Wire5(broker) as wire:
        hearer.connect(b"h")
        hearer.subscribe(b"will", 1)
        will = b"\x00\x04will\x00\x04gone"
        wire.send(b"\x10\x19\x00\x04MQTT\x04\x0e\x00\x00\x00\x01a" + will)
        assert wire.raw() == peer.connack()
        wire.close()
        assert hearer.packet() == Packet("PUBLISH", 1, b"will", b"gone", 1)


# Another implementation


def _paho_properties(kind: int, **values: object) -> PahoProperties:
    found = PahoProperties(kind)
    for name, value in values.items():
        setattr(found, name, value)
    return found


def test_paho_breaks_no_rule_here(broker: Broker5) -> None:
    """Every packet of a paho client passes the strict decoder, and paho takes all answers."""
    broker.announces = properties([(Id.TOPIC_ALIAS_MAXIMUM, 5), (Id.RECEIVE_MAXIMUM, 10)])
    reason = [(Id.REASON_STRING, b"as told"), (Id.USER_PROPERTY, (b"k", b"v"))]
    for name in ("PUBACK", "PUBREC", "PUBCOMP", "SUBACK", "UNSUBACK"):
        broker.answer_with(name, more=reason)
    messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
    done: queue.Queue[tuple[str, object]] = queue.Queue()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", protocol=paho.MQTTv5)
    client.on_message = lambda _client, _data, message: messages.put(message)
    client.on_connect = lambda *args: done.put(("connect", args[3].value))
    client.on_subscribe = lambda *args: done.put(("subscribe", [c.value for c in args[3]]))
    client.on_unsubscribe = lambda *args: done.put(("unsubscribe", [c.value for c in args[3]]))
    client.on_disconnect = lambda *args: done.put(("disconnect", args[3].value))
    client.username_pw_set("user", "password")
    will = _paho_properties(
        PacketTypes.WILLMESSAGE,
        WillDelayInterval=5,
        MessageExpiryInterval=9,
        ContentType="text",
        ResponseTopic="answer",
        CorrelationData=b"\x00\xff",
        UserProperty=[("a", "b"), ("a", "c")],
        PayloadFormatIndicator=1,
    )
    client.will_set("will", b"gone", 2, True, will)
    connect = _paho_properties(
        PacketTypes.CONNECT,
        SessionExpiryInterval=77,
        ReceiveMaximum=9,
        MaximumPacketSize=1000,
        TopicAliasMaximum=0,
        RequestResponseInformation=1,
        RequestProblemInformation=1,
        UserProperty=("who", "paho"),
    )
    client.connect(broker.host, broker.port, clean_start=True, properties=connect)
    client.loop_start()
    try:
        assert done.get(timeout=ANSWER) == ("connect", 0)
        options = SubscribeOptions(qos=2, noLocal=False, retainAsPublished=True, retainHandling=1)
        number = _paho_properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=200)
        client.subscribe("t/#", options=options, properties=number)
        assert done.get(timeout=ANSWER) == ("subscribe", [2])
        more = {"ContentType": "c", "UserProperty": ("k", "v"), "MessageExpiryInterval": 60}
        alias = {"TopicAlias": 3}
        for qos, topic in ((0, "t/a"), (1, ""), (2, "")):
            what = _paho_properties(PacketTypes.PUBLISH, **more, **alias)
            sent = client.publish(topic, b"%d" % qos, qos, retain=qos == 1, properties=what)
            if qos:
                sent.wait_for_publish(ANSWER)
        came = [messages.get(timeout=ANSWER) for _ in range(3)]
        assert [(m.topic, m.payload, m.qos, m.retain) for m in came] == [
            ("t/a", b"0", 0, False),
            ("t/a", b"1", 1, True),
            ("t/a", b"2", 2, False),
        ]
        assert all(m.properties.SubscriptionIdentifier == [200] for m in came)  # type: ignore[union-attr]
        client.unsubscribe("t/#")
        assert done.get(timeout=ANSWER) == ("unsubscribe", [0])
        bye = _paho_properties(PacketTypes.DISCONNECT, SessionExpiryInterval=5)
        client.disconnect(properties=bye)
        done.get(timeout=ANSWER)
    finally:
        client.loop_stop()
    _gone(broker, b"paho")
    hello = broker.received[0]
    assert hello.connect == Connect(
        b"paho",
        1,
        60,
        Will(b"will", b"gone", 2, 1, hello.connect.will.properties),  # type: ignore[union-attr]
        b"user",
        b"password",
    )
    assert hello.properties.first(Id.SESSION_EXPIRY) == 77
    assert {each.name for each in broker.received} == {
        *("CONNECT", "SUBSCRIBE", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP"),
        *("UNSUBSCRIBE", "DISCONNECT"),
    }


def test_what_it_sends_is_what_connect_allows(broker: Broker5) -> None:
    asked = properties([(Id.MAXIMUM_PACKET_SIZE, 60), (Id.REQUEST_PROBLEM_INFORMATION, 0)])
    broker.copy_per_filter = True
    with Wire5(broker) as wire:
        wire.connect(b"a", asked)
        for number, topic in enumerate((b"#", b"t/#", b"t/+")):
            wire.subscribe(topic, number, [(Id.SUBSCRIPTION_IDENTIFIER, number + 1)])
        for size in (0, 30, 60, 90):
            broker.publish(b"t/a", bytes(size), 2, more=[(Id.USER_PROPERTY, (b"k", b"v"))])
        came = wire.ping()
        for packet in came:
            check_server(packet, len(build5.encode(packet)), asked)
        assert len(came) == 6
