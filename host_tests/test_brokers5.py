"""The rows of expectations.py for MQTT 5, compared with the brokers.

flatmq did not make the packets.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from conftest import SharedBrokers, kinds
from expectations import EXPECTED_5
from flatmq_tools.broker import Broker
from v5 import build5
from v5.broker5 import properties
from v5.build5 import Pairs
from v5.properties5 import Id
from v5.strict5 import Filter, Packet, Will
from v5.wire5 import Wire5

OVER = 2.5  # s after which what lasts for 1 s is over, however a broker rounds


@pytest.fixture(params=kinds("shared", 5))
def broker(request: pytest.FixtureRequest, shared_brokers: SharedBrokers) -> Broker:
    return shared_brokers.get(request.param, "shared", 5)


@pytest.fixture
def expected(broker: Broker) -> dict[str, Any]:
    return EXPECTED_5[broker.kind]


def _online(broker: Broker, name: bytes, more: Pairs = (), **fields: Any) -> Wire5:
    """A connection whose CONNACK is read; `wire.present` is what that said."""
    wire = Wire5(broker)
    answer = wire.connect(name, more, **{"keepalive": 60, **fields})
    assert (answer.name, answer.code) == ("CONNACK", 0)
    wire.present = bool(answer.present)  # type: ignore[attr-defined]
    return wire


def _present(broker: Broker, name: bytes, **fields: Any) -> bool:
    with _online(broker, name, [(Id.SESSION_EXPIRY, 1000)], clean_start=0, **fields) as wire:
        found = wire.present  # type: ignore[attr-defined]
        wire.send(build5.ending("DISCONNECT", 0, [(Id.SESSION_EXPIRY, 0)]))
        assert wire.packet().name == ""
    return found


def _messages(broker: Broker, wire: Wire5) -> list[Packet]:
    """The messages that come before one that is published now."""
    wire.send(build5.subscribe(wire.pid(), Filter(b"facts/end")))
    _publish(broker, b"facts/end", b"")
    came = []
    while (packet := wire.packet()).topic != b"facts/end":
        assert packet.name, "the connection ended"
        came.append(packet)
    return [packet for packet in came if packet.name == "PUBLISH"]


def _publish(broker: Broker, topic: bytes, payload: bytes, more: Pairs = (), **flags: int) -> None:
    """Publish at QoS 1, on a connection of its own."""
    with _online(broker, b"facts-publisher") as wire:
        assert wire.publish(topic, payload, 1, more, **flags).name == "PUBACK"


@pytest.mark.parametrize("kind", kinds("users", 5))
def test_refusal(kind: str, shared_brokers: SharedBrokers) -> None:
    broker = shared_brokers.get(kind, "users", 5)
    with Wire5(broker) as wire:
        answer = wire.connect(b"r", keepalive=60, username=b"alice", password=b"wrong")
    code = answer.code if answer.name else None
    assert code == EXPECTED_5[kind].get("refusal")


def test_copies_of_overlap_and_identifiers(broker: Broker, expected: dict[str, Any]) -> None:
    with _online(broker, b"facts-overlap") as wire:
        for i, name in enumerate((b"facts/o/#", b"facts/o/+", b"facts/o/a"), 1):
            assert wire.subscribe(name, 0, [(Id.SUBSCRIPTION_IDENTIFIER, i)]) == 0
        _publish(broker, b"facts/o/a", b"x")
        came = _messages(broker, wire)
        assert len(came) == expected.get("copies of overlap", 3)
        found = [p.value for m in came for p in m.properties if p.id == Id.SUBSCRIPTION_IDENTIFIER]
        assert (sorted(found) == [1, 2, 3]) == expected["identifiers"]


def test_retain_as_published(broker: Broker, expected: dict[str, Any]) -> None:
    with _online(broker, b"facts-as-published") as wire:
        wire.subscribe(b"facts/p", as_published=1)
        _publish(broker, b"facts/p", b"x", retain=1)
        _publish(broker, b"facts/p", b"", retain=1)
        flags = {bool(message.retain) for message in _messages(broker, wire)}
    assert flags == {expected["retain as published"]}


@pytest.mark.parametrize("handling", range(3))
def test_retain_handling(broker: Broker, expected: dict[str, Any], handling: int) -> None:
    _publish(broker, b"facts/h", b"kept", retain=1)
    counts = []
    with _online(broker, b"facts-handling") as wire:
        for _ in range(2):
            wire.send(build5.subscribe(wire.pid(), Filter(b"facts/h", handling=handling)))
            counts.append(len(_messages(broker, wire)))
    _publish(broker, b"facts/h", b"", retain=1)
    first, both = expected["retain handling"][handling]
    assert counts == [first, both - first]


def test_no_local(broker: Broker, expected: dict[str, Any]) -> None:
    with _online(broker, b"facts-no-local") as wire:
        wire.subscribe(b"facts/l", no_local=1)
        assert wire.publish(b"facts/l", b"x").name
        assert (_messages(broker, wire) == []) == expected["no local"]


def test_disconnect_ends_the_session(broker: Broker, expected: dict[str, Any]) -> None:
    assert not _present(broker, b"facts-ends")
    assert _present(broker, b"facts-ends") != expected["DISCONNECT ends the session"]
    _online(broker, b"facts-ends").close()  # a clean start ends it


def test_sessions_expire(broker: Broker, expected: dict[str, Any]) -> None:
    with _online(broker, b"facts-expires", [(Id.SESSION_EXPIRY, 1)], clean_start=0) as wire:
        wire.send(build5.ending("DISCONNECT", None, None))
        assert wire.packet().name == ""
    time.sleep(OVER)
    assert _present(broker, b"facts-expires") != expected["sessions expire"]
    _online(broker, b"facts-expires").close()


def test_messages_expire(broker: Broker, expected: dict[str, Any]) -> None:
    name, kept = b"facts-message", [(Id.SESSION_EXPIRY, 1000)]
    with _online(broker, name, kept, clean_start=0) as wire:
        wire.subscribe(b"facts/e", 1)
        wire.send(build5.ending("DISCONNECT", None, None))
        assert wire.packet().name == ""
    _publish(broker, b"facts/e", b"short", [(Id.MESSAGE_EXPIRY, 1)])
    _publish(broker, b"facts/e", b"ever")
    time.sleep(OVER)
    with _online(broker, name, kept, clean_start=0) as wire:
        came = [message.payload for message in _messages(broker, wire)]
    _online(broker, name).close()
    assert came == ([b"ever"] if expected["messages expire"] else [b"short", b"ever"])


@pytest.mark.parametrize("returns", [True, False])
def test_will_delay(broker: Broker, expected: dict[str, Any], returns: bool) -> None:
    name, kept = b"facts-will", [(Id.SESSION_EXPIRY, 1000)]
    delay = properties([(Id.WILL_DELAY, 1000 if returns else 1)])
    will = Will(b"facts/w", b"gone", 0, 0, delay)
    with _online(broker, b"facts-watcher") as watcher:
        watcher.subscribe(b"facts/w")
        _online(broker, name, kept, clean_start=0, will=will).close()
        if returns:
            with _online(broker, name, kept, clean_start=0) as back:
                assert back.present  # type: ignore[attr-defined]
                came = _messages(broker, watcher)
            assert (came == []) == expected["will delay"]
        else:
            assert watcher.packet().payload == b"gone"
    _online(broker, name).close()


def test_will_after_disconnect(broker: Broker, expected: dict[str, Any]) -> None:
    with _online(broker, b"facts-watcher") as watcher:
        watcher.subscribe(b"facts/d")
        with _online(broker, b"facts-leaver", will=Will(b"facts/d", b"gone")) as wire:
            # With a Property Length: the embedded broker takes the shorter form for malformed.
            wire.send(build5.ending("DISCONNECT", 4, ()))
        _online(broker, b"facts-leaver").close()  # by then the broker is done with the first
        came = [message.payload for message in _messages(broker, watcher)]
    assert (came == [b"gone"]) == expected["will after DISCONNECT"]


def test_gives_identifiers(broker: Broker, expected: dict[str, Any]) -> None:
    with Wire5(broker) as wire:
        answer = wire.connect(b"", [(Id.SESSION_EXPIRY, 10)], clean_start=0, keepalive=60)
    assert answer.code in (0, 0x85)
    given = answer.properties.first(Id.ASSIGNED_CLIENT_IDENTIFIER) is not None
    assert given == (answer.code == 0) == expected["gives identifiers"]
