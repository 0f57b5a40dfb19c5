"""No keep alive passes without a packet, and a dead link is found."""

from __future__ import annotations

import pytest

import peer
from unit.fake_link import Bench, fake_clock


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
