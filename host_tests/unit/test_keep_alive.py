"""No keep alive passes without a packet, and a dead link is found."""

import itertools

import pytest

import peer
from flatmq.engine import HOLD
from unit.fake_link import Bench, Clock, fake_clock


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


@pytest.mark.parametrize("every", [3000, 25_000])
def test_an_application_that_polls_rarely_is_not_cut_off(every: int) -> None:
    """A message is there at each poll, so the client is never seen to have read everything."""
    with fake_clock() as clock:
        bench = Bench(clock, keepalive=60).online()
        times = [clock.now]
        while clock.now < 600_000:
            clock.now += every
            bench.stream.incoming.append(peer.publish(b"t", b"x"))
            bench.client.poll()
            for packet in bench.sent():
                assert packet == (0xC0, b"")
                times.append(clock.now)
                bench.stream.incoming.append(peer.PINGRESP)
        assert bench.client.connected
        assert max(b - a for a, b in itertools.pairwise([*times, clock.now])) <= 60_000


@pytest.mark.parametrize("start", [1000, (1 << 30) - 47_000])
def test_a_dead_link_is_found(start: int) -> None:
    with fake_clock(start) as clock:
        bench = Bench(clock, keepalive=60, timeout=10).online()
        assert ping_times(bench, 90_000, answered=False) == [45_000]
        assert (bench.client.state, bench.client.error.kind) == ("waiting", "timeout")
        assert clock.now - start == pytest.approx(55_000, abs=200)


class Holding(Bench):
    """A client that has published, and whose handler keeps a message back while `full`.

    The answers of the broker are behind that message.
    """

    def __init__(self, clock: Clock, size: int) -> None:
        super().__init__(clock, keepalive=60, timeout=10, rx_size=64)
        self.full = True
        self.got = 0  # bytes of payload
        self.online()
        self.client.subscribe(b"t", self._handle, 1, chunks=True)
        self.client.publish(b"t", b"", 1)
        self.client.poll()
        packets = {packet.first & 0xF0: packet for packet in self.sent()}
        self.feed(peer.suback(int.from_bytes(packets[0x80].body[:2], "big"), 1))
        self.answers = [peer.puback(peer.take_apart(packets[0x30]).pid)]
        self.stream.incoming.append(peer.publish(b"t", bytes(size), 1, 7))
        self.client.poll()

    def _handle(self, message: object) -> object:
        if self.full:
            return HOLD
        self.got += len(message)  # type: ignore[arg-type]
        return None

    def release(self) -> None:
        """Let the handler take the message, and have everything behind it read."""
        self.full = False
        self.stream.incoming.extend(self.answers)
        self.pass_time(1000)


@pytest.mark.parametrize("size", [1, 300], ids=["whole", "in pieces"])
def test_a_message_that_is_kept_back_does_not_end_the_connection(size: int) -> None:
    with fake_clock() as clock:
        bench = Holding(clock, size)
        start = clock.now
        times = [0]
        while clock.now < start + 300_000:
            clock.now += 100
            bench.client.poll()
            for packet in bench.sent():
                assert packet == (0xC0, b"")
                bench.answers.append(peer.PINGRESP)
                times.append(clock.now - start)
        assert max(b - a for a, b in itertools.pairwise(times)) <= 54_000
        assert times[-1] > 300_000 - 54_000
        bench.release()
    assert (bench.client.connected, bench.client.stats.losses) == (True, 0)
    assert (bench.got, bench.client.pending) == (size, 0)
    assert peer.puback(7) in b"".join(bench.stream.writes)


def test_a_dead_link_is_found_while_a_message_is_kept_back() -> None:
    with fake_clock() as clock:
        bench = Holding(clock, 1)
        start = clock.now
        bench.stream.room = 0
        while bench.client.connected and clock.now < start + 600_000:
            clock.now += 100
            bench.client.poll()
        assert bench.client.error.kind == "timeout"
        assert clock.now - start == pytest.approx(55_000, abs=1000)
