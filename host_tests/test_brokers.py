"""Facts about each broker that no scenario shows; docs/brokers.md reports what users may notice.

They are seen with packets that no client wrote. Where brokers differ in what a client notices,
expectations.py has the rows, and the scenarios hold each broker to them. The method of `Facts`
with the name of a row looks at it. All of them change with the versions of brokers alone, and so
run with `pytest --whole`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import BROKERS, SharedBrokers, kinds
from flatmq_tools import broker as brokers
from flatmq_tools import ports
from flatmq_tools.errors import ToolError
from packets.properties import Id, Pairs
from packets.strict import Filter, Packet
from packets.wire import ANSWER, CLOSED, Wire

EXPIRES = {(start, 100, bye) for start in (0, 1) for bye in (0, 1)}
NO_EXPIRY = {(0, expiry, bye) for expiry in (None, 0, 100) for bye in (0, 1)}

# What mosquitto, the embedded broker and, with 3.1.1, aedes do.
FACTS: dict[int, dict[str, tuple[Any, ...]]] = {
    4: {
        # Characters of which a client identifier must have none: it is refused by closing.
        "refuses in identifiers": ("", "/+#$", ""),
        # Does subscribing again to the same filter bring the retained message again?
        "retained on resubscribe": (True, False, True),
        # Is a message that a session had not acknowledged marked DUP when it comes again?
        "dup on redelivery": (True, False, False),
        # Does a new message carry the DUP with which its publisher sent it?
        "dup forwarded": (False, True, True),
        # Do shared subscriptions with one group and different filters each get their messages?
        "groups by filter": (True, False),
    },
    5: {
        # The properties of CONNACK when nothing was asked for.
        "connack": ({0x22: 10, 0x21: 20}, {0x22: 4096}),
        # Is the older connection closed without DISCONNECT?
        "same identifier": (True, True),
        # Sessions that are there at the next connection, by (Clean Start of the one before, expiry
        # asked for, DISCONNECT sent).
        "session": (EXPIRES, NO_EXPIRY),
        # Messages at QoS 1 that are sent unacknowledged to a Receive Maximum of 3.
        "in flight": (3, 6),
        # What comes of five messages too large for the client and five that are not.
        "after too large": ([], [b"large"] * 5 + [b"small"] * 5),
        "groups by filter": (True, False),
    },
}


class Facts:
    """Looks at one broker, with clients of a version."""

    def __init__(self, shared: SharedBrokers, kind: str, level: int) -> None:
        self.broker = shared.get(kind, "shared", level)
        self.level = level

    def online(self, name: bytes = b"facts", more: Pairs = (), **fields: Any) -> Wire:
        """A connection that is accepted."""
        wire = Wire(self.broker, self.level)
        answer = wire.connect(name, more, **{"keepalive": 60, **fields})
        assert (answer.name, answer.code) == ("CONNACK", 0)
        return wire

    def publish(self, topic: bytes, payload: bytes = b"", **flags: int) -> None:
        """Publish at QoS 1 on another connection; the broker has the message when this returns."""
        with self.online(b"facts-publisher") as wire:
            assert wire.ask(wire.message(topic, payload, **flags)).name == "PUBACK"

    def came(self, wire: Wire) -> list[Packet]:
        """The messages that come before one that is published now."""
        wire.send(wire.request("SUBSCRIBE", Filter(b"facts/end")))
        self.publish(b"facts/end")
        found = []
        while (each := wire.packet()).topic != b"facts/end":
            assert each.name, "the connection ended"
            found.append(each)
        return [each for each in found if each.name == "PUBLISH"]

    def kept(self, name: bytes, more: Pairs) -> tuple[bool, bool]:
        """Return whether a session is there, with a message marked DUP, and end it."""
        with self.online(name, more, clean_start=0) as wire:
            present, came = bool(wire.greeting.present), wire.ping()
        self.online(name).close()
        return present, any(each.dup for each in came)

    def refuses_in_identifiers(self) -> str:
        refused = ""
        for letter in "/+#$ .-_:ä":
            with Wire(self.broker, self.level) as wire:
                answer = wire.connect(f"a{letter}b".encode(), keepalive=60)
            refused += "" if answer.name else letter
        return refused

    def retained_on_resubscribe(self) -> bool:
        self.publish(b"facts/h", b"kept", retain=1)
        with self.online() as wire:
            counts = []
            for _ in range(2):
                wire.send(wire.request("SUBSCRIBE", Filter(b"facts/h")))
                counts.append(len(self.came(wire)))
        self.publish(b"facts/h", retain=1)
        assert counts[0] == 1
        return counts[1] == 1

    def dup_on_redelivery(self) -> bool:
        with self.online(b"facts-again", clean_start=0) as wire:
            wire.subscribe(b"facts/d", 1)
            self.publish(b"facts/d", b"x")
            assert not wire.packet().dup
        present, dup = self.kept(b"facts-again", ())
        assert present
        return dup

    def dup_forwarded(self) -> bool:
        with self.online() as wire, self.online(b"facts-forwarding") as other:
            wire.subscribe(b"facts/f", 1)
            other.send(other.message(b"facts/f", b"x", dup=1))
            return bool(wire.packet().dup)

    def groups_by_filter(self) -> bool:
        filters = (b"facts/shared/a", b"facts/shared/b")
        with self.online(b"facts-a") as a, self.online(b"facts-b") as b:
            for wire, name in zip((a, b), filters, strict=True):
                wire.subscribe(b"$share/facts/" + name)
            for name in filters:
                self.publish(name)
            found = [[each.topic for each in self.came(wire)] for wire in (a, b)]
        assert found[0] == [filters[0]]
        return found[1] == [filters[1]]

    def connack(self) -> dict[int, Any]:
        with self.online() as wire:
            return dict(wire.greeting.properties)

    def same_identifier(self) -> bool:
        with self.online() as old, self.online() as new:
            assert new.ping() == []
            return old.packet() == CLOSED

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
            if self.kept(name, more)[0]:
                found.add((start, asked, bye))
        return found

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


@pytest.mark.proof
@pytest.mark.parametrize(("kind", "level", "row", "value"), [
    (kind, level, row, value)
    for level, rows in FACTS.items()
    for row, values in rows.items()
    for kind, value in zip(("mosquitto", "embedded", "aedes"), values, strict=False)
])  # fmt: skip
def test_a_fact(
    kind: str, level: int, row: str, value: Any, shared_brokers: SharedBrokers
) -> None:
    look = getattr(Facts(shared_brokers, kind, level), row.replace(" ", "_"))
    assert look() == value


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


def test_every_listener_is_there_once_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mosquitto that takes its time between them stands for a busy machine."""
    slow = tmp_path / "mosquitto"
    slow.write_text(
        f"#!{sys.executable}\nimport re, socket, sys, time\nopened = []\n"
        "for port in re.findall(r'^listener (\\d+)', open(sys.argv[2]).read(), re.M):\n"
        "    time.sleep(0.3)\n"
        "    opened.append(socket.create_server(('127.0.0.1', int(port))))\n"
        "time.sleep(60)\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("MOSQUITTO", str(slow))
    second = ports.free_port()
    with brokers.mosquitto(extra=f"listener {second} {brokers.LOOPBACK}"):
        assert brokers.Broker(brokers.LOOPBACK, second).running


def test_a_broker_that_runs_already(shared_brokers: SharedBrokers) -> None:
    running = shared_brokers.get("mosquitto", "shared")
    found = brokers.external(running.address)
    assert (found.kind, found.port) == ("external", running.port)
    for wrong in ("127.0.0.1:http", "127.0.0.1:0", ":1883", "127.0.0.1:65536"):
        with pytest.raises(ToolError, match="broker must be HOST"):
            brokers.external(wrong)
    with pytest.raises(brokers.BrokerError, match="no broker answers"):
        brokers.external(f"127.0.0.1:{ports.free_port()}")


def test_the_status_of_a_broker_that_ends_by_itself() -> None:
    """It is known once the process has ended, until a restart."""
    with brokers.mosquitto() as running:
        assert running.status is None
        assert running.pid is not None
        os.kill(running.pid, signal.SIGKILL)
        os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
        assert running.status == -signal.SIGKILL
        running.restart()
        assert running.status is None
