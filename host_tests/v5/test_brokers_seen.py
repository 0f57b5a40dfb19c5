"""The rows of seen5.py, held against mosquitto and the embedded broker with raw packets of MQTT 5.

docs/brokers.md says the same in words, and names the test of each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import ROOT, SharedBrokers
from flatmq_tools.broker import Broker
from v5 import build5
from v5.broker5 import REFUSES_LEVEL_5, properties
from v5.embedded5 import Embedded5
from v5.properties5 import Id
from v5.seen5 import SEEN
from v5.strict5 import Connect, Filter, Packet, Will
from v5.wire5 import CLOSED, Wire5

KEEPALIVE = 60
USER = [(Id.USER_PROPERTY, (b"k", b"v"))]


@pytest.fixture(scope="module")
def embedded() -> Iterator[Broker]:
    with Embedded5() as running:
        yield running


@pytest.fixture(params=["mosquitto", "embedded"])
def broker(
    request: pytest.FixtureRequest, shared_brokers: SharedBrokers, embedded: Broker
) -> Broker:
    return embedded if request.param == "embedded" else shared_brokers.get("mosquitto", "shared")


@pytest.fixture
def seen(broker: Broker) -> dict[str, Any]:
    return SEEN[broker.kind]


def _accepted(wire: Wire5, client_id: bytes, more: build5.Pairs = (), **fields: Any) -> Packet:
    connack = wire.connect(client_id, more, keepalive=KEEPALIVE, **fields)
    assert (connack.name, connack.code) == ("CONNACK", 0)
    return connack


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire5]:
    """A connection whose CONNACK is read."""
    with Wire5(broker) as connection:
        _accepted(connection, b"wire5")
        yield connection


def _refusal(packet: Packet) -> int | None:
    """The reason code of a DISCONNECT; None where the connection is closed without one."""
    if packet == CLOSED:
        return None
    assert packet.name == "DISCONNECT"
    return packet.code


def _named(found: Packet) -> dict[int, Any]:
    return {int(each.id): each.value for each in found.properties}


# Connecting


def test_connack(broker: Broker, seen: dict[str, Any]) -> None:
    with Wire5(broker) as connection:
        assert _named(_accepted(connection, b"connack")) == seen["connack"]


def test_keep_alive_0(broker: Broker, seen: dict[str, Any]) -> None:
    with Wire5(broker) as connection:
        answer = connection.connect(b"ever", keepalive=0)
        assert (None if answer == CLOSED else _named(answer)) == seen["keep alive 0"]


def test_assigned_identifier(broker: Broker, seen: dict[str, Any]) -> None:
    with Wire5(broker) as connection:
        found = _accepted(connection, b"").properties.first(Id.ASSIGNED_CLIENT_IDENTIFIER)
        assert len(found) == seen["assigned"]


def test_same_identifier(broker: Broker) -> None:
    """The old connection is closed without a DISCONNECT."""
    with Wire5(broker) as old, Wire5(broker) as new:
        _accepted(old, b"same")
        _accepted(new, b"same")
        assert old.packet() == CLOSED
        assert new.ping() == []


def test_missed_keep_alive(broker: Broker) -> None:
    """The connection is closed without a DISCONNECT."""
    with Wire5(broker) as connection:
        assert connection.connect(b"silent", keepalive=1).name == "CONNACK"
        assert connection.packet() == CLOSED


def test_broken_connects(broker: Broker, seen: dict[str, Any]) -> None:
    connect = Connect(b"broken", keepalive=KEEPALIVE)
    packets = {
        "a property twice": build5.connect(connect, [(0x21, 5), (0x21, 5)]),
        "Receive Maximum 0": build5.connect(connect, [(0x21, 0)]),
        "the reserved flag": build5.connect(connect, flags=1),
        "an unknown property": build5.connect(connect, [(0x04, b"")]),
        "a property of CONNACK": build5.connect(connect, [(0x24, 1)]),
    }
    found = {}
    for what, data in packets.items():
        with Wire5(broker) as connection:
            answer = connection.ask(data)
            found[what] = None if answer == CLOSED else answer.code
    assert found == seen["broken connects"]


def test_unknown_authentication_method(broker: Broker, seen: dict[str, Any]) -> None:
    with Wire5(broker) as connection:
        method = [(Id.AUTHENTICATION_METHOD, b"unknown")]
        answer = connection.connect(b"method", method, keepalive=KEEPALIVE)
        assert (answer.name, answer.code) == ("CONNACK", seen["unknown method"])


@pytest.mark.parametrize("method", [[], [(Id.AUTHENTICATION_METHOD, b"m")]], ids=len)
def test_auth_without_a_method(wire: Wire5, method: build5.Pairs) -> None:
    assert wire.ask(build5.ending("AUTH", 0x18, method)) == CLOSED


def test_level_5_refused(shared_brokers: SharedBrokers) -> None:
    """A CONNACK of 3.1.1, which has no properties, or none. mosquitto knows 5, so it gets 6."""
    for kind, level in (("mosquitto", 6), ("aedes", 5)):
        with Wire5(shared_brokers.get(kind, "shared")) as connection:
            connect = Connect(b"level", keepalive=KEEPALIVE)
            connection.send(build5.connect(connect, level=level))
            assert connection.raw() == REFUSES_LEVEL_5
            assert connection.raw() == b""
    with Wire5(shared_brokers.get("embedded", "shared")) as connection:
        connection.send(build5.connect(Connect(b"five", keepalive=KEEPALIVE)))
        assert connection.raw() == b""


# Sessions


def test_sessions(broker: Broker, seen: dict[str, Any]) -> None:
    """Sessions that are still there, of all ways to begin and to end a connection."""
    found = {}
    for number in range(12):
        start, bye, asked = number % 2, number // 2 % 2, (None, 0, 100)[number // 4]
        client_id, more = b"session-%d" % number, [] if asked is None else [(0x11, asked)]
        with Wire5(broker) as connection:
            _accepted(connection, client_id, more, clean_start=start)
            connection.subscribe(b"seen/session", 1)
            if bye:
                assert connection.ask(build5.ending("DISCONNECT")) == CLOSED
        with Wire5(broker) as connection:
            if _accepted(connection, client_id, more, clean_start=0).present:
                found[start, asked, bye] = 1
        with Wire5(broker) as connection:
            _accepted(connection, client_id)  # a clean one ends what was kept
    assert found == seen["session"]


def test_late_expiry(wire: Wire5, seen: dict[str, Any]) -> None:
    answer = wire.ask(build5.ending("DISCONNECT", 0, [(Id.SESSION_EXPIRY, 50)]))
    assert _refusal(answer) == seen["late expiry"]


def test_will_delay(broker: Broker, wire: Wire5) -> None:
    """A client that is back in time has none; of one that is not, it comes."""
    wire.subscribe(b"seen/will", 0)
    for delay, payload in ((1000, b"back in time"), (1, b"gone")):
        will = Will(b"seen/will", payload, properties=properties([(Id.WILL_DELAY, delay)]))
        with Wire5(broker) as connection:
            more = [(Id.SESSION_EXPIRY, 1000)]
            _accepted(connection, b"willing", more, will=will, clean_start=0)
    assert wire.packet().payload == b"gone"


# Messages to the broker


def test_wildcard_in_a_name(broker: Broker, wire: Wire5, seen: dict[str, Any]) -> None:
    wire.subscribe(b"seen/name/#", 1)
    with Wire5(broker) as connection:
        _accepted(connection, b"wild")
        answer = connection.publish(b"seen/name/+", b"x")
    if answer.name == "PUBACK":
        # A strict reader does not take what the subscriber gets.
        assert wire.raw() == build5.publish(b"seen/name/+", b"x", 1, 1)
        assert seen["wildcard in a name"] == 0
    else:
        assert _refusal(answer) == seen["wildcard in a name"]


def test_beyond_receive_maximum(wire: Wire5, seen: dict[str, Any]) -> None:
    most = 20
    messages = [build5.publish(b"seen/more", b"", 2, pid) for pid in range(1, most + 11)]
    wire.send(b"".join(messages))
    answers = [wire.packet() for _ in messages]
    assert {each.name for each in answers} == {"PUBREC"}
    assert {each.code for each in answers[:most]} == {0}
    assert {each.code for each in answers[most:]} == seen["beyond Receive Maximum"]


def test_aliases(broker: Broker, seen: dict[str, Any]) -> None:
    def refusal(topic: bytes, alias: int) -> int | None:
        with Wire5(broker) as connection:
            _accepted(connection, b"alias")
            more = [(Id.TOPIC_ALIAS, alias)]
            return _refusal(connection.ask(build5.publish(topic, b"", 0, 0, more)))

    above = seen["connack"][Id.TOPIC_ALIAS_MAXIMUM] + 1
    found = (refusal(b"a", 0), refusal(b"a", above), refusal(b"", 1))
    assert found == seen["alias"]


def test_alias_of_a_name(broker: Broker, wire: Wire5) -> None:
    wire.subscribe(b"seen/alias", 0)
    alias = [(Id.TOPIC_ALIAS, 10)]
    with Wire5(broker) as connection:
        _accepted(connection, b"alias")
        assert connection.publish(b"seen/alias", b"1", 1, alias).name == "PUBACK"
        assert connection.publish(b"", b"2", 1, alias).name == "PUBACK"
        assert [(each.topic, each.payload) for each in (wire.packet(), wire.packet())] == [
            (b"seen/alias", b"1"),
            (b"seen/alias", b"2"),
        ]


def test_nobody_hears(wire: Wire5, seen: dict[str, Any]) -> None:
    codes = [wire.publish(b"seen/nobody", b"", qos).code for qos in (1, 2)]
    assert tuple(codes) == seen["nobody hears"]


def test_stray_pubrel(wire: Wire5, seen: dict[str, Any]) -> None:
    wire.send(build5.ack("PUBREL", 99))
    assert wire.raw().hex() == seen["stray PUBREL"]


# Subscriptions


def test_broken_filter(wire: Wire5, seen: dict[str, Any]) -> None:
    answer = wire.ask(build5.subscribe(1, Filter(b"seen/#/b", 1)))
    if answer.name == "SUBACK":
        assert (answer.codes, seen["broken filter"]) == (b"\x01", 0)
    else:
        assert _refusal(answer) == seen["broken filter"]


def test_unsuback(wire: Wire5, seen: dict[str, Any]) -> None:
    wire.send(build5.unsubscribe(9, b"seen/never"))
    wire.send(build5.subscribe(10, Filter(b"seen/ever")))
    answer = wire.packet()
    if answer.name == "UNSUBACK":
        assert answer.codes == seen["unsuback"]
        answer = wire.packet()
    else:
        assert seen["unsuback"] is None
    assert (answer.name, answer.pid) == ("SUBACK", 10)


def test_overlap(wire: Wire5) -> None:
    """One copy per matching filter: with a subscription identifier each, and without."""
    for numbered in (True, False):
        for number, topic in enumerate((b"seen/copy/#", b"seen/copy/a", b"seen/copy/+"), 1):
            more = [(Id.SUBSCRIPTION_IDENTIFIER, number)] if numbered else []
            if not numbered:
                # Taken back, so that the identifiers do not stay.
                assert wire.ask(build5.unsubscribe(wire.pid(), topic)).name == "UNSUBACK"
            assert wire.subscribe(topic, 0, more) == 0
        wire.send(build5.publish(b"seen/copy/a", b"x"))
        copies = [wire.packet() for _ in range(3)]
        found = sorted(each.properties.each(Id.SUBSCRIPTION_IDENTIFIER) for each in copies)
        assert found == ([[1], [2], [3]] if numbered else [[], [], []])
    assert wire.ping() == []


def test_shared_subscriptions(broker: Broker, wire: Wire5) -> None:
    """Each message goes to one of the group, by the part behind the group. No Local is granted."""
    with Wire5(broker) as other:
        _accepted(other, b"other")
        for member in (wire, other):
            assert member.subscribe(b"$share/g/seen/shared/#", 0, no_local=1) == 0
            assert member.subscribe(b"seen/end", 0) == 0
        with Wire5(broker) as connection:
            _accepted(connection, b"sharing")
            for number in range(4):
                connection.publish(b"seen/shared/%d" % number)
            connection.publish(b"seen/end")
        came = []
        for member in (wire, other):
            while (packet := member.packet()).topic != b"seen/end":
                came.append(packet.topic)
    assert sorted(came) == [b"seen/shared/%d" % number for number in range(4)]


def test_no_local(wire: Wire5, seen: dict[str, Any]) -> None:
    wire.subscribe(b"seen/local", 0, no_local=1)
    wire.subscribe(b"seen/end", 0)
    wire.send(build5.publish(b"seen/local") + build5.publish(b"seen/end"))
    topics = {wire.packet().topic}
    if b"seen/local" in topics:
        topics.add(wire.packet().topic)
    assert (b"seen/local" not in topics) == seen["no local"]
    assert b"seen/end" in topics


def test_retain_handling(broker: Broker, wire: Wire5, seen: dict[str, Any]) -> None:
    assert wire.publish(b"seen/retained", b"x", 1, retain=1).name == "PUBACK"
    assert wire.subscribe(b"seen/end", 0) == 0
    found = []
    for handling in (2, 1, 1, 0, 0):
        assert wire.subscribe(b"seen/retained", 0, handling=handling) == 0
        wire.send(build5.publish(b"seen/end"))
        topic = wire.packet().topic
        found.append(topic == b"seen/retained")
        if found[-1]:
            assert wire.packet().topic == b"seen/end"
    wire.send(build5.publish(b"seen/retained", b"", retain=1))
    assert found == seen["retained"]


# Messages from the broker


def _publish(connection: Wire5, topic: bytes, payload: bytes = b"", qos: int = 1) -> None:
    """Publishes; the broker has the message when this returns."""
    pid = connection.pid()
    connection.send(build5.publish(topic, payload, qos, pid))
    if qos == 0:
        assert connection.ping() == []
        return
    assert connection.packet().pid == pid
    if qos == 2:
        assert connection.ask(build5.ack("PUBREL", pid)).name == "PUBCOMP"


def test_qos_of_delivery(broker: Broker, wire: Wire5, seen: dict[str, Any]) -> None:
    found = {}
    with Wire5(broker) as connection:
        _accepted(connection, b"delivering")
        for subscribed in range(3):
            topic = b"seen/qos/%d" % subscribed
            assert wire.subscribe(topic, subscribed) == subscribed
            for published in range(3):
                _publish(connection, topic, b"", published)
                message = wire.packet()
                found[published, subscribed] = message.qos
                if message.qos == 1:
                    wire.send(build5.ack("PUBACK", message.pid))
                elif message.qos == 2:
                    assert wire.ask(build5.ack("PUBREC", message.pid)).name == "PUBREL"
                    wire.send(build5.ack("PUBCOMP", message.pid))
    assert found == seen["delivered"]


def test_in_flight(broker: Broker, seen: dict[str, Any]) -> None:
    with Wire5(broker) as wire, Wire5(broker) as connection:
        _accepted(wire, b"three", [(Id.RECEIVE_MAXIMUM, 3)])
        wire.subscribe(b"seen/flight", 1)
        _accepted(connection, b"flying")
        for _ in range(6):
            _publish(connection, b"seen/flight")
        came = [wire.packet() for _ in range(seen["in flight"])]
        assert {each.topic for each in came} == {b"seen/flight"}
        assert wire.ping() == []
        for each in came:
            wire.send(build5.ack("PUBACK", each.pid))
        rest = [wire.packet() for _ in range(6 - len(came))]
        assert {each.topic for each in came + rest} == {b"seen/flight"}


def test_too_large(broker: Broker, seen: dict[str, Any]) -> None:
    large = b"large" + bytes(200)
    with Wire5(broker) as wire, Wire5(broker) as connection:
        _accepted(wire, b"small", [(Id.MAXIMUM_PACKET_SIZE, 100), (Id.RECEIVE_MAXIMUM, 3)])
        wire.subscribe(b"seen/size", 1)
        wire.subscribe(b"seen/end", 0)
        _accepted(connection, b"sizing")
        for payload in [large] * 5 + [b"small"] * 5:
            _publish(connection, b"seen/size", payload)
        _publish(connection, b"seen/end")
        came = []
        while (packet := wire.packet()).topic != b"seen/end":
            came.append(packet.payload[:5])
    assert came == seen["after too large"]


def test_puback_0x80(wire: Wire5) -> None:
    wire.subscribe(b"seen/refused", 1)
    for number in (1, 2):
        wire.send(build5.publish(b"seen/refused", b"%d" % number, 1, number))
        packets = {each.name: each for each in (wire.packet(), wire.packet())}
        assert packets["PUBACK"].code == 0
        message = packets["PUBLISH"]
        assert message.payload == b"%d" % number
        wire.send(build5.ack("PUBACK", message.pid, 0x80))
    assert wire.ping() == []


def test_user_properties(broker: Broker) -> None:
    with Wire5(broker) as wire:
        _accepted(wire, b"user", USER)
        assert wire.subscribe(b"seen/user", 1, USER) == 1
        wire.send(build5.publish(b"seen/user", b"", 1, 1, USER))
        packets = {each.name: each for each in (wire.packet(), wire.packet())}
        message = packets["PUBLISH"]
        assert message.properties == properties(USER)
        wire.send(build5.ack("PUBACK", message.pid, 0, USER))
        answer = wire.ask(build5.unsubscribe(2, b"seen/user", properties=USER))
        assert (answer.name, answer.codes) == ("UNSUBACK", b"\0")
        assert wire.ask(build5.ending("DISCONNECT", 0, USER)) == CLOSED


def test_the_page_names_each_test() -> None:
    page = (ROOT / "docs" / "brokers.md").read_text()
    section = page.split("\n## MQTT 5\n")[1].split("\n## ")[0]
    here = {name for name in globals() if name.startswith("test_")}
    assert set(re.findall(r"`(test_\w+)`", section)) == here - {"test_the_page_names_each_test"}
