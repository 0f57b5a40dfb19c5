"""Facts about each broker where brokers differ, seen with packets that no client wrote.

The rows are those of expectations.py, which the scenarios rely on, and those that docs/brokers.md
reports besides. The method of `Facts` with the name of a row looks at it. The scripted
broker is held to its rows in each run of the tests; the real ones, which change with their
versions alone, with `pytest --whole`.
"""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from brokers.core import REFUSES_LEVEL_5
from conftest import BROKERS, USERS, SharedBrokers, kinds
from expectations import EXPECTED, EXPECTED_5
from flatmq_tools import broker as brokers
from flatmq_tools import ports
from flatmq_tools.broker import Broker
from packets import build
from packets.properties import Id, Pairs, properties
from packets.strict import Connect, Filter, Packet, Will
from packets.wire import ANSWER, CLOSED, Wire

OVER = 2.5  # s after which what lasts for 1 s is over, however a broker rounds
KEPT = [(Id.SESSION_EXPIRY, 1000)]

# What docs/brokers.md reports of MQTT 5 besides.
SEEN: dict[str, dict[str, Any]] = {
    "mosquitto": {
        "connack": {0x22: 10, 0x21: 20},  # its properties when nothing was asked for
        "same identifier": "closed",  # what the older connection gets
        # Sessions that are there at the next connection, by (Clean Start of the one before,
        # expiry asked for, DISCONNECT sent).
        "session": {(start, 100, bye) for start in (0, 1) for bye in (0, 1)},
        "delivered": EXPECTED["mosquitto"]["delivered"],
        "shared subscriptions": True,
        # Messages at QoS 1 that it sends unacknowledged to a Receive Maximum of 3.
        "in flight": 3,
        # What comes to it of five messages too large for the client and five that are not.
        "after too large": [],
    },
    "embedded": {
        "connack": {0x22: 4096},
        "same identifier": "closed",
        "session": {(0, expiry, bye) for expiry in (None, 0, 100) for bye in (0, 1)},
        "delivered": EXPECTED["embedded"]["delivered"],
        "shared subscriptions": True,
        "in flight": 6,
        "after too large": [b"large"] * 5 + [b"small"] * 5,
    },
    "fake": {
        "same identifier": "DISCONNECT 0x8e",
        "session": {(start, 100, bye) for start in (0, 1) for bye in (0, 1)},
        "delivered": EXPECTED["mosquitto"]["delivered"],
        "shared subscriptions": True,
        "in flight": 3,
        "after too large": [b"small"] * 3,
    },
}


def _alias(topic: bytes, number: int) -> bytes:
    return build.publish(topic, b"", 0, 0, [(Id.TOPIC_ALIAS, number)])


# The answers of mosquitto and of the embedded broker to a CONNECT, and to a packet behind one.
HELLO = Connect(b"facts-hello", keepalive=60)
CONNECTS: dict[str, tuple[bytes, str, str]] = {
    "a keep alive of 0": (build.connect(Connect(b"facts-ever")), "CONNACK 0x0", "closed"),
    "a property twice": (build.connect(HELLO, [(0x21, 5), (0x21, 5)]), "closed", "CONNACK 0x0"),
    "Receive Maximum 0": (build.connect(HELLO, [(0x21, 0)]), "closed", "CONNACK 0x0"),
    "the reserved flag": (build.connect(HELLO, flags=1), "closed", "CONNACK 0x0"),
    "an unknown property": (build.connect(HELLO, [(0x04, b"")]), "closed", "closed"),
    "a property of CONNACK": (build.connect(HELLO, [(0x24, 1)]), "closed", "closed"),
    "an unknown method": (build.connect(HELLO, [(0x15, b"m")]), "CONNACK 0x8c", "CONNACK 0x0"),
    "another level": (build.connect(HELLO, level=6), "CONNACK of 3.1.1", "closed"),
}
PACKETS: dict[str, tuple[bytes, str, str]] = {
    "AUTH": (build.ending("AUTH", 0x18, []), "closed", "closed"),
    "AUTH with a method": (build.ending("AUTH", 0x18, [(0x15, b"m")]), "closed", "closed"),
    "an expiry that CONNECT did not have": (
        build.ending("DISCONNECT", 0, [(0x11, 50)]), "DISCONNECT 0x82", "closed",
    ),
    "a name with a wildcard": (
        build.publish(b"facts/+", b"x", 1, 1), "DISCONNECT 0x82", "PUBACK 0x0",
    ),
    "a filter with # in the middle": (
        build.subscribe(1, Filter(b"facts/#/b")), "DISCONNECT 0x81", "SUBACK 0x0",
    ),
    "alias 0": (_alias(b"a", 0), "DISCONNECT 0x81", "DISCONNECT 0x94"),
    "alias 5000": (_alias(b"a", 5000), "DISCONNECT 0x94", "DISCONNECT 0x94"),
    "an alias of nothing": (_alias(b"", 1), "DISCONNECT 0x82", "DISCONNECT 0x82"),
    "QoS 1 to nobody": (build.publish(b"facts/nobody", b"x", 1, 1), "PUBACK 0x10", "PUBACK 0x0"),
    "QoS 2 to nobody": (build.publish(b"facts/nobody", b"x", 2, 1), "PUBREC 0x0", "PUBREC 0x0"),
    "a stray PUBREL": (build.ack("PUBREL", 99), "PUBCOMP 0x0", "closed"),
    "an unknown filter": (build.unsubscribe(9, b"facts/x"), "UNSUBACK 0x11", "PINGRESP 0x0"),
}  # fmt: skip


def _said(answer: Packet) -> str:
    code = answer.codes[0] if answer.codes else answer.code
    return f"{answer.name} {code:#x}" if answer.name else "closed"


class Facts:
    """Looks at one broker. `value` is the row, for those who need to know when it is fulfilled."""

    def __init__(self, shared: SharedBrokers, kind: str, level: int, value: Any) -> None:
        self.shared, self.kind, self.level, self.value = shared, kind, level, value
        self.broker = shared.get(kind, "shared", level)

    def online(self, name: bytes = b"facts", more: Pairs = (), **fields: Any) -> Wire:
        """A connection that is accepted."""
        wire = Wire(self.broker, self.level)
        answer = wire.connect(name, more, **{"keepalive": 60, **fields})
        assert (answer.name, answer.code) == ("CONNACK", 0)
        return wire

    def answer(self, name: bytes, *, where: Broker | None = None, **fields: Any) -> int | None:
        """The code of the CONNACK; None if the connection is closed without one."""
        with Wire(where or self.broker, self.level) as wire:
            answer = wire.connect(name, **{"keepalive": 60, **fields})
            return answer.code if answer.name else None

    def publish(
        self, topic: bytes, payload: bytes = b"", qos: int = 1, more: Pairs = (), **flags: int
    ) -> None:
        """Publish on another connection; the broker has the message when this returns."""
        with self.online(b"facts-publisher") as wire:
            wire.send(wire.message(topic, payload, qos, more, **flags))
            if qos == 0:
                assert wire.ping() == []
                return
            answer = wire.packet()
            assert answer.name == ("PUBACK", "PUBREC")[qos - 1]
            if qos == 2:
                assert wire.ask(build.ack("PUBREL", answer.pid)).name == "PUBCOMP"

    def came(self, wire: Wire) -> list[Packet]:
        """The messages that come before one that is published now."""
        wire.send(wire.request("SUBSCRIBE", Filter(b"facts/end")))
        self.publish(b"facts/end")
        found = []
        while (each := wire.packet()).topic != b"facts/end":
            assert each.name, "the connection ended"
            found.append(each)
        return [each for each in found if each.name == "PUBLISH"]

    def subscribed(self, wire: Wire, topic: bytes, **options: int) -> list[Packet]:
        """The messages that a SUBSCRIBE brings."""
        wire.send(wire.request("SUBSCRIBE", Filter(topic, **options)))
        return self.came(wire)

    def away(self, name: bytes, topic: bytes, qos: int) -> None:
        """A client with a subscription that has left its session."""
        with self.online(name, KEPT, clean_start=0) as wire:
            assert wire.subscribe(topic, qos) == qos
            wire.disconnect()

    def back(self, name: bytes) -> Wire:
        """A client that comes back to its session."""
        wire = self.online(name, KEPT, clean_start=0)
        assert wire.greeting.present
        return wire

    def ended(self, name: bytes) -> None:
        """End what was kept."""
        self.online(name).close()

    def refusal(self) -> int | None:
        where = self.shared.get(self.kind, "users", self.level)
        right = {"username": b"alice", "password": USERS["alice"].encode()}
        assert self.answer(b"login", where=where, **right) == 0
        wrong = [{}, right | {"password": b"wrong"}, right | {"username": b"bob"}]
        codes = {self.answer(b"login", where=where, **each) for each in wrong}
        (code,) = codes | {self.answer(b"login", where=where, username=b"alice")}
        return code

    def delivered(self) -> dict[tuple[int, int], int]:
        found = {}
        with self.online(b"facts-sub") as wire:
            for subscribed in range(3):
                topic = b"facts/qos/%d" % subscribed
                assert wire.subscribe(topic, subscribed) == subscribed
                for published in range(3):
                    self.publish(topic, b"x", published)
                    message = wire.packet()
                    wire.settle(message)
                    found[published, subscribed] = message.qos
        return found

    def level_3(self) -> int | None:
        with Wire(self.broker, 3) as wire:
            wire.send(b"\x10\x13\0\6MQIsdp\3\2\0\x3c\0\5three")
            answer = wire.packet()
            return answer.code if answer.name else None

    def refuses_in_identifiers(self) -> str:
        return "".join(c for c in "/+#$ .-_:ä" if self.answer(f"a{c}b".encode()) is None)

    def copies_of_overlap(self) -> int:
        with self.online() as wire:
            for number, name in enumerate((b"facts/o/#", b"facts/o/+", b"facts/o/a"), 1):
                more = [(Id.SUBSCRIPTION_IDENTIFIER, number)] if self.level > 4 else []
                assert wire.subscribe(name, 0, more) == 0
            self.publish(b"facts/o/a", b"x")
            self.copies = self.came(wire)
        return len(self.copies)

    def identifiers(self) -> bool:
        self.copies_of_overlap()
        found = [i for each in self.copies for i in each.properties.each(0x0B)]
        return sorted(found) == [1, 2, 3]

    def retained_on_resubscribe(self) -> bool:
        (first, both), *_ = self.retain_handling(1)
        assert first == 1
        return both == 2

    def retain_handling(self, kinds: int = 3) -> list[list[int]]:
        """Of each handling: messages after the first SUBSCRIBE, and after the second."""
        with self.online(b"facts-before") as other:
            other.subscribe(b"facts/h")
            self.publish(b"facts/h", b"kept", retain=1)
            other.packet()  # aedes may acknowledge it before it delivers it
        found = []
        for handling in range(kinds):
            with self.online() as wire:
                counts = [
                    len(self.subscribed(wire, b"facts/h", handling=handling)) for _ in range(2)
                ]
            found.append([counts[0], sum(counts)])
        self.publish(b"facts/h", retain=1)
        return found

    def unsubscribe_in_a_kept_session(self) -> bool:
        self.away(b"facts-kept", b"facts/k", 1)
        with self.back(b"facts-kept") as wire:
            wire.send(wire.request("UNSUBSCRIBE", Filter(b"facts/k")))
            wire.send(build.PINGREQ)
            wanted = {"PINGRESP", "UNSUBACK"} if self.value else {"PINGRESP"}
            assert {wire.packet().name for _ in wanted} == wanted
            assert wire.ping() == []
        self.ended(b"facts-kept")
        return bool(self.value)

    def unsuback_for_unknown(self) -> bool:
        with self.online() as wire:
            wire.send(wire.request("UNSUBSCRIBE", Filter(b"facts/never")))
            wire.send(wire.request("SUBSCRIBE", Filter(b"facts/ever")))
            return wire.packet().name == "UNSUBACK"

    def requests_in_order(self) -> bool:
        with self.online() as wire:
            asked = ["SUBSCRIBE", "UNSUBSCRIBE"] * 10 + ["SUBSCRIBE"]
            wire.send(b"".join(wire.request(name, Filter(b"facts/h")) for name in asked))
            answers = [wire.packet().name for _ in asked]
            wanted = ["SUBACK", "UNSUBACK"] * 10 + ["SUBACK"]
            assert sorted(answers) == sorted(wanted)
            if not self.value:
                return False
            self.publish(b"facts/h", b"x", 0)
            return answers == wanted and wire.packet().payload == b"x"

    def keepalive_0(self) -> int | None:
        return self.answer(b"facts-ever", keepalive=0)

    def dup_on_redelivery(self) -> bool:
        with self.online(b"facts-again", KEPT, clean_start=0) as wire:
            wire.subscribe(b"facts/d", 1)
            self.publish(b"facts/d", b"x")
            assert not wire.packet().dup
        with self.back(b"facts-again") as wire:
            message = wire.packet()
        self.ended(b"facts-again")
        return bool(message.dup)

    def dup_forwarded(self) -> bool:
        with self.online() as wire, self.online(b"facts-forwarding") as other:
            wire.subscribe(b"facts/f", 1)
            other.send(other.message(b"facts/f", b"x", 1, dup=1))
            return bool(wire.packet().dup)

    def dup_at_qos_0(self) -> tuple[bool, bool]:
        with self.online() as wire, self.online(b"facts-dup") as other:
            wire.subscribe(b"facts/z")
            other.send(other.message(b"facts/z", b"x", 0, retain=1, dup=1))
            live = wire.packet()
            with self.online(b"facts-newcomer") as newcomer:
                (kept,) = self.subscribed(newcomer, b"facts/z")
            self.publish(b"facts/z", retain=1)
            return bool(live.dup), bool(kept.dup)

    def shared_subscriptions(self) -> bool:
        with self.online() as wire:
            assert wire.subscribe(b"$share/g/facts/s/#", 0) == 0
            self.publish(b"facts/s/a", b"x")
            return len(self.came(wire)) == 1

    def unreleased(self) -> int:
        with self.online(b"facts-unreleased") as wire:
            wire.subscribe(b"facts/u", 2)
            with self.online(b"facts-releaser") as other:
                for _ in range(100):
                    answer = other.publish(b"facts/u", b"x", 2)
                    assert other.ask(build.ack("PUBREL", answer.pid)).name == "PUBCOMP"
            names: list[str] = []
            while min(names.count("PUBLISH"), names.count("PUBREL")) < self.value:
                each = wire.packet()
                names.append(each.name)
                if each.name == "PUBLISH":
                    wire.send(build.ack("PUBREC", each.pid))
            # Nothing but the answer may follow: whatever was allowed has been sent by then.
            assert wire.ping() == []
            return names.count("PUBLISH")

    def order_after_an_outage(self) -> bool:
        self.away(b"facts-ordered", b"facts/w", 2)
        wanted = [b"%d" % number for number in range(6)]
        for number, payload in enumerate(wanted):
            self.publish(b"facts/w", payload, 1 + number % 2)
        with self.back(b"facts-ordered") as wire:
            came = [wire.packet().payload for _ in wanted]
        self.ended(b"facts-ordered")
        assert sorted(came) == wanted
        return bool(self.value) and came == wanted

    def stray_ack_closes(self) -> bool:
        closed = set()
        for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
            with self.online() as wire:
                wire.send(build.ack(name, 7) + build.PINGREQ)
                while (each := wire.packet()).name not in ("", "PINGRESP"):
                    pass
                closed.add(each == CLOSED)
        (every,) = closed
        return every

    def survives_sigkill(self) -> bool:
        with BROKERS[self.kind]["durable"]() as self.broker:
            with self.online(b"facts-durable", clean_start=0) as wire:
                wire.subscribe(b"facts/s", 1)
                # mosquitto writes its file in the turn after the change; this is that turn.
                assert wire.ping() == []
            self.broker.restart()
            with self.online(b"facts-durable", clean_start=0) as wire:
                return bool(wire.greeting.present)

    # MQTT 5

    def passes(self) -> None:
        """Have a second pass for what lasts no longer."""
        if self.kind == "fake":
            self.broker.pass_time(OVER)  # type: ignore[attr-defined]
        else:
            time.sleep(OVER)

    def found(self, name: bytes, more: Pairs = KEPT) -> bool:
        """Return whether there is a session, and end it."""
        with self.online(name, more, clean_start=0) as wire:
            present = bool(wire.greeting.present)
        self.ended(name)
        return present

    def connack(self) -> dict[int, Any]:
        with self.online() as wire:
            return dict(wire.greeting.properties)

    def gives_identifiers(self) -> bool:
        with Wire(self.broker) as wire:
            answer = wire.connect(b"", [(Id.SESSION_EXPIRY, 10)], clean_start=0, keepalive=60)
        assert answer.code in (0, 0x85)
        given = answer.properties.first(Id.ASSIGNED_CLIENT_IDENTIFIER) is not None
        assert given == (answer.code == 0)
        return given

    def same_identifier(self) -> str:
        with self.online() as old, self.online() as new:
            assert new.ping() == []
            return _said(old.packet())

    def session(self) -> set[tuple[int, int | None, int]]:
        found = set()
        for number in range(12):
            start, bye, asked = number % 2, number // 2 % 2, (None, 0, 100)[number // 4]
            name = b"facts-session-%d" % number
            more = [] if asked is None else [(Id.SESSION_EXPIRY, asked)]
            with self.online(name, more, clean_start=start) as wire:
                wire.subscribe(b"facts/session", 1)
                if bye:
                    wire.disconnect()
            if self.found(name, more):
                found.add((start, asked, bye))
        return found

    def disconnect_ends_the_session(self) -> bool:
        with self.online(b"facts-ends", KEPT, clean_start=0) as wire:
            wire.disconnect(0, [(Id.SESSION_EXPIRY, 0)])
        return not self.found(b"facts-ends")

    def sessions_expire(self) -> bool:
        with self.online(b"facts-expires", [(Id.SESSION_EXPIRY, 1)], clean_start=0) as wire:
            wire.disconnect()
        self.passes()
        return not self.found(b"facts-expires")

    def messages_expire(self) -> bool:
        self.away(b"facts-message", b"facts/e", 1)
        self.publish(b"facts/e", b"short", 1, [(Id.MESSAGE_EXPIRY, 1)])
        self.publish(b"facts/e", b"ever")
        self.passes()
        with self.back(b"facts-message") as wire:
            came = [message.payload for message in self.came(wire)]
        self.ended(b"facts-message")
        assert came[-1:] == [b"ever"]
        return len(came) == 1

    def will_delay(self) -> bool:
        """A client that is back in time has no will. That of one that is not comes."""
        name = b"facts-will"
        with self.online(b"facts-watcher") as watcher:
            watcher.subscribe(b"facts/w")
            for delay in (1000, 1):
                will = Will(b"facts/w", b"%d" % delay, 0, 0, properties([(Id.WILL_DELAY, delay)]))
                self.online(name, KEPT, clean_start=0, will=will).close()
                if delay == 1000:
                    with self.back(name):
                        early = self.came(watcher)
                else:
                    self.passes()
                    assert watcher.packet().payload == b"1"
        self.ended(name)
        return early == []

    def will_after_disconnect(self) -> bool:
        with self.online(b"facts-watcher") as watcher:
            watcher.subscribe(b"facts/d")
            with self.online(b"facts-leaver", will=Will(b"facts/d", b"gone")) as wire:
                # With a Property Length: the embedded broker takes the short form for malformed.
                wire.send(build.ending("DISCONNECT", 4, ()))
            self.ended(b"facts-leaver")  # by then the broker is done with the first
            return [each.payload for each in self.came(watcher)] == [b"gone"]

    def retain_as_published(self) -> bool:
        with self.online() as wire:
            wire.subscribe(b"facts/p", as_published=1)
            self.publish(b"facts/p", b"x", retain=1)
            self.publish(b"facts/p", retain=1)
            (flag,) = {bool(message.retain) for message in self.came(wire)}
            return flag

    def no_local(self) -> bool:
        with self.online() as wire:
            wire.subscribe(b"facts/l", no_local=1)
            wire.send(wire.message(b"facts/l", b"x", 1))
            return self.came(wire) == []

    def in_flight(self) -> int:
        with self.online(b"facts-three", [(Id.RECEIVE_MAXIMUM, 3)]) as wire:
            wire.subscribe(b"facts/flight", 1)
            for _ in range(6):
                self.publish(b"facts/flight")
            came = wire.ping()
            for each in came:
                wire.settle(each)
            rest = [wire.packet() for _ in range(6 - len(came))]
            assert {each.topic for each in came + rest} == {b"facts/flight"}
            return len(came)

    def after_too_large(self) -> list[bytes]:
        limits = [(Id.MAXIMUM_PACKET_SIZE, 100), (Id.RECEIVE_MAXIMUM, 3)]
        with self.online(b"facts-small", limits) as wire:
            wire.subscribe(b"facts/size", 1)
            for payload in [b"large" + bytes(200)] * 5 + [b"small"] * 5:
                self.publish(b"facts/size", payload)
            return [each.payload[:5] for each in self.came(wire)]


ROWS = [
    pytest.param(
        *(kind, level, row, value),
        marks=() if kind == "fake" else pytest.mark.proof,
        id=f"{kind}-{level}-{row}",
    )
    for level, table in ((4, EXPECTED), (5, EXPECTED_5), (5, SEEN))
    for kind, rows in table.items()
    for row, value in rows.items()
    if row != "refusal" or kind in kinds("users", level)
]


@pytest.mark.parametrize(("kind", "level", "row", "value"), ROWS)
def test_a_fact(
    kind: str, level: int, row: str, value: Any, shared_brokers: SharedBrokers
) -> None:
    look = getattr(Facts(shared_brokers, kind, level, value), row.replace(" ", "_").lower())
    assert look() == value


@pytest.mark.proof
@pytest.mark.parametrize("column", [1, 2], ids=["mosquitto", "embedded"])
@pytest.mark.parametrize("what", [*CONNECTS, *PACKETS])
def test_an_answer(what: str, column: int, shared_brokers: SharedBrokers) -> None:
    row = {**CONNECTS, **PACKETS}[what]
    with Wire(shared_brokers.get(("mosquitto", "embedded")[column - 1], "shared", 5)) as wire:
        if what in PACKETS:
            assert wire.connect(b"facts-hello", keepalive=60).code == 0
        wire.send(row[0] + build.PINGREQ)
        if row[column] == "CONNACK of 3.1.1":
            assert wire.raw() == REFUSES_LEVEL_5
        else:
            assert _said(wire.packet()) == row[column]


@pytest.mark.parametrize("kind", kinds("shared"))
def test_listens_on_loopback_alone(kind: str, shared_brokers: SharedBrokers) -> None:
    broker = shared_brokers.get(kind, "shared")
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


def test_a_broker_that_runs_already(shared_brokers: SharedBrokers) -> None:
    running = shared_brokers.get("mosquitto", "shared")
    found = brokers.external(running.address)
    assert (found.kind, found.port) == ("external", running.port)
    for wrong in ("127.0.0.1:http", "127.0.0.1:0", ":1883", "127.0.0.1:65536"):
        with pytest.raises(brokers.BrokerError, match="broker must be HOST"):
            brokers.external(wrong)
    with pytest.raises(brokers.BrokerError, match="no broker answers"):
        brokers.external(f"127.0.0.1:{ports.free_port()}")
