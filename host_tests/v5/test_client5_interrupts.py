"""Ctrl-C at any line of the client, and memory that is short: the client goes on."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from flatmq.properties import Properties
from unit.fake_link import Clock
from unit.test_errors import CtrlC, poll_until
from v5 import build5
from v5.broker5 import properties
from v5.clients5 import Bench5
from v5.properties5 import Id

LIMITS = [(Id.RECEIVE_MAXIMUM, 1), (Id.TOPIC_ALIAS_MAXIMUM, 5), (Id.MAXIMUM_PACKET_SIZE, 500)]
MORE = Properties(content_type="x")


def _goes_on(bench: Bench5) -> None:
    """It comes online, or is, and everything that waits is settled."""
    client = bench.client
    for _ in range(30):
        if not client.connected:
            bench.accepted(*LIMITS, present=False)
        bench.drain()
        for packet in bench.packets():
            if packet.name == "PUBLISH" and packet.qos:
                name = "PUBACK" if packet.qos == 1 else "PUBREC"
                bench.feed(build5.ack(name, packet.pid))
            elif packet.name == "PUBREL":
                bench.feed(build5.ack("PUBCOMP", packet.pid))
            elif packet.name == "SUBSCRIBE":
                bench.feed(build5.answer("SUBACK", packet.pid, b"\1" * len(packet.filters)))
            elif packet.name == "PINGREQ":
                bench.feed(build5.PINGRESP)
        if client.connected and not client.pending and not client.queued:
            break
    assert (client.connected, client.pending, client.count) == (True, 0, 0), repr(client)
    assert client.publish(b"t", b"after", 1, properties=MORE)
    assert client.publish(b"t", b"none is left", 1) is None  # Receive Maximum is 1
    bench.drain()
    last = bench.packets()[-1]
    assert (last.payload, last.properties.first(Id.CONTENT_TYPE)) == (b"after", b"x")


MODULES = [("v5_connection",), ("v5_router", "v5_walk"), ("v5_resend",), ("v5", "v5_alias")]
MODULES += [("reader", "writer"), ("connection", "client")]


@pytest.mark.parametrize("modules", MODULES, ids=" ".join)
def test_ctrl_c_at_any_line(modules: tuple[str, ...], clock: Clock) -> None:
    """In poll, at any line that runs while a client connects, publishes and receives."""
    ctrl_c = CtrlC(*modules)

    def life(at: int) -> bool:
        ctrl_c.at = at
        ctrl_c.lines = 0
        bench = Bench5(clock)
        client = bench.client
        seen: list[Any] = []
        client.subscribe(b"t", lambda m: seen.append(m.properties.get(3)), 1)
        ids = [client.publish(b"t", b"before", qos, properties=MORE) or 0 for qos in (1, 0, 2, 1)]
        client.start()
        came = poll_until(bench, ctrl_c)
        alias = client.alias(b"aliased")
        for packet in (
            build5.connack(0, 0, properties(LIMITS)),
            build5.publish(b"t", b"in", 1, 7, properties([(Id.CONTENT_TYPE, b"x")])),
            build5.publish(b"t", b"in", 0, 0, properties([(Id.SUBSCRIPTION_IDENTIFIER, 1)])),
            build5.ack("PUBACK", ids[0], 0x87, properties([(Id.REASON_STRING, b"no")])),
            build5.ack("PUBREC", ids[2]),
            build5.ending("DISCONNECT", 0x8B),
        ):
            if not came and (client.connected or client.state == "greeting"):
                alias.publish(b"x")
                bench.stream.incoming.append(packet)
                came = poll_until(bench, ctrl_c)
        bench.drain()
        if bench.link.made:
            bench.stream.incoming.clear()
        _goes_on(bench)
        return came

    assert not life(0)
    lines = ctrl_c.lines
    assert lines > 5
    missed = [at for at in range(1, lines + 1) if not life(at)]
    assert missed == []


# Memory


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules of the client that cannot be loaded while this is a set with their names."""
    real = __import__
    missing: set[str] = set()

    def load(name, globals=None, locals=None, fromlist=(), level=0):  # type: ignore[no-untyped-def]
        if name in missing and level:
            raise MemoryError(f"memory allocation failed for {name}")
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr("builtins.__import__", load)
    for name in [
        name for name in sys.modules if name.startswith(("flatmq.v5_re", "flatmq.resend"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    return missing


def _sent(bench: Bench5) -> list[tuple[bytes, int, int]]:
    bench.drain()
    return [(p.payload, p.pid, p.dup) for p in bench.packets() if p.name == "PUBLISH"]


@pytest.mark.parametrize("modules", [{"v5_resend"}, {"resend"}, {"resend", "v5_resend", "show"}])
def test_what_was_accepted_is_sent_within_the_limits_once_there_is_memory(
    modules: set[str], clock: Clock, short: set[str]
) -> None:
    bench = Bench5(clock, clean_session=False).accepted((Id.TOPIC_ALIAS_MAXIMUM, 5))
    client = bench.client
    pids = [client.publish(b"t", b"%d" % i, 1) for i in range(3)]
    alias = client.alias(b"aliased")
    alias.publish(b"first")
    bench.drain()
    bench.packets()
    bench.stream.room = 0
    alias.publish(b"second")
    short.update(modules)
    bench.outage()
    assert client.pending
    short.clear()
    bench.accepted((Id.RECEIVE_MAXIMUM, 1), (Id.TOPIC_ALIAS_MAXIMUM, 5), present=True)
    for i, pid in enumerate(pids):
        assert _sent(bench) == [(b"%d" % i, pid, 1)]
        bench.feed(build5.ack("PUBACK", pid))
    assert client.pending == 0
    assert client.stats.dropped == 1


def test_a_refusal_that_cannot_be_read_now_is_read_later(clock: Clock, short: set[str]) -> None:
    bench = Bench5(clock).accepted()
    pid = bench.client.publish(b"t", b"x", 1)
    bench.drain()
    short.add("v5_reasons")
    with pytest.raises(MemoryError):
        bench.feed(build5.ack("PUBACK", pid, 0x87))
    assert bench.client.pending == 1
    short.clear()
    bench.drain()
    assert (bench.client.pending, bench.client.stats.dropped) == (0, 1)
    assert bench.client.connected


def test_a_connack_that_cannot_be_handled_now_is_handled_later(
    clock: Clock, short: set[str]
) -> None:
    bench = Bench5(clock)
    pids = [bench.client.publish(b"t", b"%d" % i, 1) for i in range(2)]
    bench.greet()
    short.add("v5_resend")
    with pytest.raises(MemoryError):
        bench.feed(build5.connack(0, 0, properties([(Id.RECEIVE_MAXIMUM, 1)])))
    assert not bench.client.connected
    short.clear()
    bench.drain()
    assert bench.client.connected
    assert _sent(bench) == [(b"0", pids[0], 0)]
