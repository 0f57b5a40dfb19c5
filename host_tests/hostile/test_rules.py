"""Rules of what a client sends that the oracle of hostile bytes does not judge."""

from __future__ import annotations

import pytest

import peer
import sizes
from unit.fake_link import Bench, Clock, fake_clock

# Packet identifiers run from 1 to 65,535 and round, and skip 0 and those in use


@pytest.mark.parametrize("what", sizes.sample(["QoS 1", "QoS 2", "SUBSCRIBE"], 1))
def test_packet_identifiers_go_round_and_skip_0_and_those_in_use(what: str, clock: Clock) -> None:
    bench = Bench(clock, subscriptions=3, tx_size=1 << 20).online()  # for all of them
    client = bench.client
    taken = {client.publish(b"t", b"stays", 1)}
    client.subscribe(b"t", print)
    client.flush()
    taken.add(peer.split(bytes(bench.stream.writes[-1]))[0][-1].pid)
    seen = []
    for i in range(65_600):
        if what == "SUBSCRIBE":
            client.subscribe(b"a" if i % 2 else b"b", print)
        else:
            client.publish(b"t", b"", int(what[-1]))
        client.flush()
        packet = peer.split(bytes(bench.stream.writes[-1]))[0][-1]
        pid = packet.pid if what == "SUBSCRIBE" else peer.take_apart(packet).pid
        seen.append(pid)
        acks = {"QoS 1": peer.puback(pid), "QoS 2": peer.pubrec(pid) + peer.pubcomp(pid)}
        bench.feed(acks.get(what) or peer.suback(pid, 0))
        bench.stream.written.clear()
    round_and_round = [(seen[0] - 1 + i) % 65_535 + 1 for i in range(65_700)]
    assert seen == [pid for pid in round_and_round if pid not in taken][: len(seen)]
    assert {1, 65_535} < set(seen)


# What goes again is counted


@pytest.mark.parametrize(("present", "dup", "renewed"), [(True, True, 0), (False, False, 1)])
def test_an_unacknowledged_publish_goes_again(
    present: bool, dup: bool, renewed: int, clock: Clock
) -> None:
    bench = Bench(clock, clean_session=False).online()
    bench.client.publish(b"t", b"x", 1)
    bench.client.poll()
    bench.sent()
    bench.outage()
    bench.online(present=present)
    assert [p.dup for p in bench.published()] == [dup]
    assert (bench.client.stats.resent, bench.client.stats.renewed) == (1, renewed)


# PINGREQ, and dead links


def ping_times(bench: Bench, ms: int, answered: bool = True) -> list[int]:
    """Return when PINGREQ leaves in the next `ms`, from now on."""
    start = bench.clock.now
    found = []
    while bench.clock.now < start + ms and bench.client.connected:
        bench.clock.now += 10
        bench.client.poll()
        for packet in bench.sent():
            assert packet == (0xC0, b"")
            found.append(bench.clock.now - start)
            if answered:
                bench.feed(peer.PINGRESP)
    return found


@pytest.mark.parametrize("keepalive", [1, 2, 5, 10, 14, 60, 600])
@pytest.mark.parametrize("start", [1000, (1 << 30) - 700])
def test_no_keep_alive_passes_without_a_packet(keepalive: int, start: int) -> None:
    with fake_clock(start) as clock:
        bench = Bench(clock, keepalive=keepalive).online()
        times = ping_times(bench, 5000 * keepalive)
    gaps = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert len(gaps) >= 5
    assert max(gaps) <= 900 * keepalive, "something is left for the way"
    assert min(gaps) >= 700 * keepalive, "nor is it more than is needed"
    assert bench.client.connected


@pytest.mark.parametrize("start", [1000, (1 << 30) - 47_000])
def test_a_dead_link_is_found(start: int) -> None:
    with fake_clock(start) as clock:
        bench = Bench(clock, keepalive=60, timeout=10).online()
        assert ping_times(bench, 90_000, answered=False) == [45_000]
        assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")
        assert clock.now - start == pytest.approx(55_000, abs=200)
